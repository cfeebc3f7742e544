"""What `events.jsonl` holds, and how it is written and read: one event per line, as a JSON object."""

import contextlib
import json
import struct
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from hil.loop.clock import SECOND
from servoctl.run_folder.values import plain

LENGTH = struct.Struct("<I")


def as_entry(kind: str, text: str, time: int, fields: dict[str, Any]) -> dict[str, Any]:
    """An event as a dictionary of plain values.

    Args:
        kind: One word: `state`, `fault`, `operator`, ...
        text: The event in words.
        time: Time on the run's clock [ns].
        fields: Further values.
    """
    return dict({"t": time / SECOND, "event": kind, "text": text} | plain(fields))


def encode(entry: dict[str, Any]) -> bytes:
    """An event as a line of the file, after its length in four bytes."""
    line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    return LENGTH.pack(len(line)) + line


def split(data: bytes) -> list[bytes]:
    """The lines in a sequence of complete events of `encode`."""
    lines, position = [], 0
    while position < len(data):
        (length,) = LENGTH.unpack_from(data, position)
        position += LENGTH.size + length
        lines.append(data[position - length : position])
    return lines


class EventLog:
    """An `events.jsonl` to write to.

    Args:
        path: The file to make.

    Raises:
        OSError: It cannot be made.
    """

    kept = 1000

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (open until `close`)
        self.first: list[dict[str, Any]] = []  # the first `kept` events, for the summary
        self.count = 0  # number of events

    def add(self, lines: list[bytes]) -> None:
        """Writes lines.

        Raises:
            OSError: The file cannot be written.
        """
        for line in lines:
            left = line
            while left:
                left = left[self._file.write(left) :]
            self.count += 1
            if len(self.first) < self.kept:
                self.first.append(json.loads(line))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def add_missing(folder: str | PathLike[str], entries: Iterable[dict[str, Any]]) -> None:
    """Adds the events that are missing in an `events.jsonl` because its recorder died; never raises.

    Args:
        folder: The run folder.
        entries: All events of the run, in order, as `as_entry` makes them.
    """
    path = Path(folder) / "events.jsonl"
    with contextlib.suppress(OSError, ValueError):
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]  # without an incomplete last line
        written = set(whole.split(b"\n"))
        missing = [line for line in (encode(entry)[LENGTH.size :] for entry in entries) if line[:-1] not in written]
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.truncate(len(whole))
            file.seek(len(whole))
            file.writelines(missing)


def read_events(folder: str | PathLike[str]) -> list[dict[str, Any]]:
    """The events of a run, in order: `t` [s], `event`, `text`, and further values.

    An incomplete last line is left out.

    Args:
        folder: The run folder.

    Raises:
        OSError: The folder has no `events.jsonl`.
    """
    lines = (Path(folder) / "events.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]
