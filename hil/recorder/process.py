"""What the process of the recorder does: it takes rows, frames and events from the shared memory and writes them."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from hil.recorder.files import BusBits, EventLog, FrameLog
from hil.recorder.memory import FRAME, Capacity, SharedRings, named_columns
from servoctl.errors import RunFolderError, WriteError
from servoctl.run_folder import RunFolder

IDLE, BUSY = 0.02, 0.001  # [s] time between two reads of the memory, and the same if a ring is more than a quarter full
FLUSH = 0.5  # [s] wall time after which rows, and frames of a run on the wall clock, are written to disk


def failed(metadata: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Metadata of a run whose folder could not be finished: its earlier error, if any, then this one."""
    earlier = [str(metadata["error"])] if metadata.get("error") else []
    status = "killed" if metadata.get("status") == "killed" else "failed"
    return {**metadata, "status": status, "error": "; ".join([*earlier, error])}


KILLED = {"status": "killed", "error": "the loop's process ended without closing the run"}
"""Metadata of a run whose loop has ended without closing it."""


class RecorderSettings(NamedTuple):
    """What the process of the recorder is started with."""

    memory: int  # file descriptor of the shared memory
    capacity: Capacity  # sizes of its rings
    folder: str  # the run folder to make
    columns: dict[str, str]  # column -> unit, in the order of a row
    metadata: dict[str, Any]  # what is known about the run at its start
    config_text: str  # content of `config.yaml`
    lossless: bool  # whether the loop waits for room, and files must not depend on wall time
    parent: int  # process id of the loop


def main(descriptor: int) -> None:
    """Records until the loop closes the run, or its process has ended.

    `descriptor`: file descriptor of the connection to the loop, which sends the settings first.
    """
    connection = Connection(descriptor)
    try:
        settings = connection.recv()
    except EOFError:  # the loop has ended
        return
    memory = SharedRings(len(settings.columns), settings.capacity, settings.memory)
    try:
        try:
            writer = FolderWriter(memory, settings)
        except (OSError, RunFolderError) as error:
            _tell(connection, ("failed", _as_folder_error(error)))
            return
        _tell(connection, ("ready", str(writer.folder.path)))
        metadata = _record(connection, writer, settings.parent)
        try:
            writer.close(metadata)
        except (OSError, RunFolderError) as error:
            writer.give_up(metadata, str(error))
            _tell(connection, ("failed", _as_folder_error(error)))
        else:
            _tell(connection, ("closed", str(writer.folder.path)))
    finally:
        memory.close()


def _record(connection: Connection, writer: "FolderWriter", parent: int) -> dict[str, Any]:
    """Writes until the run ends; returns the metadata of its end."""
    while True:
        try:
            if connection.poll(BUSY if writer.filling else IDLE):
                return dict(connection.recv())
        except (EOFError, OSError):
            return dict(KILLED)
        if os.getppid() != parent:
            return dict(KILLED)
        writer.take()


def _as_folder_error(error: Exception) -> RunFolderError:
    return error if isinstance(error, RunFolderError) else WriteError(str(error))


def _tell(connection: Connection, message: tuple[str, str | RunFolderError]) -> None:
    with contextlib.suppress(OSError):  # the loop may have ended
        connection.send(message)


class FolderWriter:
    """Writes the rings to the run folder; if one file cannot be written, the others still are.

    Raises OSError, RunFolderError if the folder or its files cannot be made.
    """

    def __init__(self, memory: SharedRings, settings: RecorderSettings) -> None:
        self._memory, self._settings = memory, settings
        self.folder = RunFolder(settings.folder, settings.config_text, settings.metadata, settings.columns)
        try:
            self._frames = FrameLog(self.folder.path / "can.blf")
            self._events = EventLog(self.folder.path / "events.jsonl")
        except OSError as error:
            self.folder.give_up({"status": "failed", "error": str(error)})
            raise
        self._bits = BusBits()
        self._counts = {"rows": 0, "frames": 0}
        self._span: tuple[float, float] | None = None
        self._broken: set[str] = set()
        self._flushed = time.monotonic()
        self._rows = bytearray()  # taken from the ring and not written yet
        self.folder.append(
            named_columns(np.empty((0, len(settings.columns))), settings.columns)
        )  # also a run without rows has columns

    @property
    def filling(self) -> bool:
        """Whether a ring is more than a quarter full."""
        memory = self._memory
        return max(memory.rows.level, memory.frames.level, memory.events.level) > 0.25

    def take(self) -> None:
        """Takes what was in the rings at the previous call (see `Ring`), and writes what is due."""
        self._rows += self._memory.rows.take()
        frames = self._memory.frames.take()
        events = self._memory.events.take().splitlines(keepends=True)
        if frames and not self._try("frames", lambda: self._write_frames(frames)):
            self._memory.frames.drop(len(frames) // FRAME.size)
        if events and not self._try("events", lambda: self._events.add(events)):
            self._memory.events.drop(len(events))
        if time.monotonic() > self._flushed + FLUSH:
            self._flushed = time.monotonic()
            self._flush_rows()
            if not self._settings.lossless:
                self._try("frames", self._frames.flush)

    def _flush_rows(self) -> None:
        rows, self._rows = self._rows, bytearray()
        if rows and not self._try("rows", lambda: self._write_rows(rows)):
            self._memory.rows.drop(len(rows) // self._memory.rows.size)

    def _write_rows(self, data: bytearray) -> None:
        table = np.frombuffer(data).reshape(-1, len(self._settings.columns))
        columns = named_columns(table, self._settings.columns)
        self.folder.append(columns)
        first, last = float(columns["t"][0]), float(columns["t"][-1])
        self._span = (first if self._span is None else self._span[0], last)
        self._counts["rows"] += len(table)

    def _write_frames(self, data: bytes) -> None:
        self._frames.add(FRAME.iter_unpack(data))
        self._bits.add(data)
        self._counts["frames"] += len(data) // FRAME.size

    def _try(self, kind: str, write: Callable[[], None]) -> bool:
        """Writes, unless that has failed before; a failure is stored as the problem of the recorder."""
        if kind in self._broken:
            return False
        try:
            write()
        except (OSError, RunFolderError) as error:
            self._broken.add(kind)
            self._memory.complain(f"{kind} are no longer recorded: {error}")
            return False
        return True

    def close(self, metadata: dict[str, Any]) -> None:
        """Writes the rest and finishes the folder, with metadata of the run at its end.

        Raises RunFolderError if the folder cannot be finished; what was written stays.
        """
        for _ in range(2):  # the records at the previous call, then those since
            self.take()
        self._flush_rows()
        self._try("frames", self._frames.stop)
        self._events.close()
        self.folder.close(self._facts() | metadata)

    def give_up(self, metadata: dict[str, Any], error: str) -> None:
        """Writes how the run ended, if the folder cannot be finished; metadata as for `close`, and the reason."""
        self.folder.give_up(self._facts() | failed(metadata, error))

    def _facts(self) -> dict[str, Any]:
        """Metadata that the recorder itself knows."""
        first, last = self._span or (0.0, 0.0)
        written: dict[str, Any] = {**self._counts, "events": self._events.count}
        return {
            "duration": last - first,
            "steps": max(0, self._counts["rows"] - 1),
            "events": self._events.first,
            "bus_bits": self._bits.as_dict(),
            "recorder": {**written, "lost": self._memory.lost, "problem": self._memory.problem or None},
        }
