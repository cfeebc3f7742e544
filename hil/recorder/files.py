"""How `events.jsonl`, one event per line, and `can.blf`, every frame of a run, are written and read.

Design: python-can writes and reads the frames, in Vector's format. The channel is the index of the bus + 1. Times count
from the start of the run, so the header has no date. Containers are small and end with every second of the run, so a
file that was cut off lacks little, and a run in lock-step writes the same bytes each time.
"""

import contextlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from can.io.blf import BLFParseError, BLFReader, BLFWriter
from can.util import channel2int

from hil.bus.python_can import frame_of, message_of
from hil.frame import Frame
from hil.loop.clock import SECOND
from hil.recorder.memory import FIELDS, recorded_bits, unpacked
from servoctl.run_folder.metrics import plain
from servoctl.types import Array


def as_entry(
    kind: str,  # one word: `state`, `fault`, `operator`, ...
    text: str,  # the event in words
    time: int,  # time on the run's clock [ns]
    fields: dict[str, Any],  # further values
) -> dict[str, Any]:
    """An event as a dictionary of plain values."""
    return dict({"t": time / SECOND, "event": kind, "text": text} | plain(fields))


def encode(entry: dict[str, Any]) -> bytes:
    """An event as a line of the file; JSON has no line end within it."""
    return json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class EventLog:
    """An `events.jsonl` to write to; OSError if it cannot be made."""

    kept = 1000

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (open until `close`)
        self.first: list[dict[str, Any]] = []  # the first `kept` events, for the summary
        self.count = 0  # number of events

    def add(self, lines: list[bytes]) -> None:
        """Writes lines; OSError if the file cannot be written."""
        for line in lines:
            left = line
            while left:
                left = left[self._file.write(left) :]
            self.count += 1
            if len(self.first) < self.kept:
                self.first.append(json.loads(line))

    def close(self) -> None:
        self._file.close()


def add_missing(folder: str | PathLike[str], entries: Iterable[dict[str, Any]]) -> None:
    """Adds the events that are missing in an `events.jsonl` because its recorder died; never raises.

    `entries`: all events of the run, in order, as `as_entry` makes them.
    """
    path = Path(folder) / "events.jsonl"
    with contextlib.suppress(OSError, ValueError):
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]  # without an incomplete last line
        written = set(whole.split(b"\n"))
        missing = [line for line in map(encode, entries) if line[:-1] not in written]
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.truncate(len(whole))
            file.seek(len(whole))
            file.writelines(missing)


def read_events(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """The events of a run, in order: `t` [s], `event`, `text`, and further values.

    An incomplete last line is left out; OSError: the folder has no `events.jsonl`.
    """
    lines = (Path(folder) / "events.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


CONTAINER = 16384  # largest content of a container [byte]: about 340 frames


class FrameLog(BLFWriter):
    """A `can.blf` to write to; OSError if it cannot be made."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, max_container_size=CONTAINER)
        self.start_timestamp = 0.0
        self._due = SECOND
        self.flush()

    def add(self, records: Iterable[tuple[Any, ...]]) -> None:
        """Adds frames, each as the values of a `memory.FRAME`; OSError if the file cannot be written."""
        for record in records:
            bus, sent, frame, time = unpacked(*record)
            if time >= self._due:
                self.flush()
                self._due = time - time % SECOND + SECOND
            # half a nanosecond more, because python-can truncates to whole ones
            stamp = (time + 0.5) / SECOND
            self.on_message_received(message_of(frame, timestamp=stamp, channel=bus, is_rx=not sent))

    def flush(self) -> None:
        """Writes everything up to now to disk; OSError if the file cannot be written."""
        self._flush()
        self.file.flush()


def read_frames(folder: str | PathLike[str]) -> Iterator[tuple[int, bool, Frame, int]]:
    """The frames of a run, in the order in which the loop sent and received them; also of a killed run.

    Yields the index of the bus, whether the frame was sent, the frame, and its time on the run's clock [ns].
    `Frame.time` is set for received frames only. Raises OSError: the folder has no `can.blf`.
    """
    cut_off = (struct.error, BLFParseError, zlib.error)
    with open(Path(folder) / "can.blf", "rb") as file, contextlib.suppress(*cut_off):
        for message in BLFReader(file):
            sent = not (message.is_rx or message.is_error_frame)
            time = round(message.timestamp * SECOND)
            frame = frame_of(message, message.dlc if message.is_remote_frame else 0, 0 if sent else time)
            yield channel2int(message.channel) or 0, sent, frame, time


MOST = 600  # largest number of windows


class BusBits:
    """Bits per bus and time window, those of the worst case, apart for the nominal and the data bit rate."""

    def __init__(self) -> None:
        self._window = SECOND // 50
        self._bits = np.zeros((2, 0, 0), dtype=np.int64)

    def add(self, data: bytes) -> None:
        """Counts frames, given as consecutive `memory.FRAME` records."""
        frames = np.frombuffer(data, FIELDS)
        if not len(frames):
            return
        bits = recorded_bits(frames)
        time = np.maximum(frames["time"], 0)
        while int(time.max()) // self._window >= MOST:
            self._window *= 2
            even = np.pad(self._bits, ((0, 0), (0, 0), (0, self._bits.shape[2] % 2)))
            self._bits = even[..., ::2] + even[..., 1::2]
        window, bus = time // self._window, frames["bus"]
        self._reserve(int(bus.max()) + 1, int(window.max()) + 1)
        for phase in (0, 1):
            np.add.at(self._bits[phase], (bus, window), bits[:, phase])

    def as_dict(self) -> dict[str, Any]:
        """`window`: length of the windows [s]; `bits`: bits in each window of the run, for each bus in order.

        Where FD frames switched their bit rate, `data_bits` has those at the data bit rate, `bits` only the others.
        """
        nominal, data = self._bits
        counts = {"window": self._window / SECOND, "bits": nominal.tolist()}
        return counts | ({"data_bits": data.tolist()} if data.any() else {})

    def _reserve(self, buses: int, windows: int) -> None:
        bits: Array = self._bits
        missing = (max(0, wanted - have) for wanted, have in zip((buses, windows), bits.shape[1:], strict=True))
        self._bits = np.pad(bits, ((0, 0), *((0, more) for more in missing)))
