"""The recorder's process: takes what the loop left in the shared memory and writes the run folder."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from hil.recorder.bits import BusBits
from hil.recorder.events import EventLog, split
from hil.recorder.frame_log import FrameLog
from hil.recorder.memory import FRAME, Capacity, SharedRings
from servoctl.errors import RunFolderError
from servoctl.run_folder import RunFolder
from servoctl.types import Array

IDLE, BUSY = 0.02, 0.001
"""Time between two looks at the memory, and where a ring is more than a quarter full [s]."""

FLUSH = 1.0
"""Time after which frames are on disk, in a run on the wall clock [s]."""

INTEGERS = ("status", "rank", "passive_rank")
"""Columns that a run folder has as integers; a number that is not finite is -1 there."""


def failed(metadata: Mapping[str, Any], error: str) -> dict[str, Any]:
    """What a run says of itself whose folder could not be finished: that, behind what was wrong before."""
    before = [str(metadata["error"])] if metadata.get("error") else []
    status = "killed" if metadata.get("status") == "killed" else "failed"
    return {**metadata, "status": status, "error": "; ".join([*before, error])}


class RecorderSettings(NamedTuple):
    """What the recorder is started with.

    Attributes:
        memory: Descriptor of the shared memory.
        capacity: Of its rings.
        folder: The run folder to make.
        columns: Column -> unit, in the order of a row.
        metadata: What is known of the run beforehand.
        config_text: For `config.yaml`.
        lossless: Whether the loop waits for room, and files must not depend on wall time.
        parent: Process id of the loop.
    """

    memory: int
    capacity: Capacity
    folder: str
    columns: dict[str, str]
    metadata: dict[str, Any]
    config_text: str
    lossless: bool
    parent: int


def main(descriptor: int) -> None:
    """Records until the loop says that it is over, or is no more.

    Args:
        descriptor: Of the connection to the loop, which sends the plan first.
    """
    connection = Connection(descriptor)
    try:
        plan = connection.recv()
    except EOFError:  # the loop is no more
        return
    memory = SharedRings(len(plan.columns), plan.capacity, plan.memory)
    try:
        try:
            desk = Desk(memory, plan)
        except (OSError, RunFolderError) as error:
            _tell(connection, ("failed", str(error)))
            return
        _tell(connection, ("ready", str(desk.folder.path)))
        metadata, drawing = _listen(connection, desk, plan.parent)
        try:
            desk.close(metadata, drawing)
        except (OSError, RunFolderError) as error:
            desk.give_up(metadata, str(error))
            _tell(connection, ("failed", str(error)))
        else:
            _tell(connection, ("closed", str(desk.folder.path)))
    finally:
        memory.close()


def _listen(connection: Connection, desk: "Desk", parent: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """Takes what comes until the run ends: what it says of itself, or is to be said of it, and its drawing."""
    while True:
        try:
            if connection.poll(BUSY if desk.pressed else IDLE):
                order = connection.recv()
                if order is not None:
                    return order[0], order[1]
                desk.flush()
                _tell(connection, ("flushed", str(desk.folder.path)))
        except (EOFError, OSError):
            return desk.obituary(), {}
        if os.getppid() != parent:
            return desk.obituary(), {}
        desk.take()


def _tell(connection: Connection, message: tuple[str, str]) -> None:
    with contextlib.suppress(OSError):  # the loop may be no more
        connection.send(message)


class Desk:
    """The three files and the rings that feed them; a file that cannot be written does not keep the others from it."""

    def __init__(self, memory: SharedRings, plan: RecorderSettings) -> None:
        """Makes the folder and its files.

        Raises:
            OSError, RunFolderError: They cannot be made.
        """
        self._memory, self._plan = memory, plan
        self.folder = RunFolder.create(plan.folder, plan.config_text, plan.metadata, plan.columns)
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
        self.folder.append(self._columns(np.empty((0, len(plan.columns)))))  # known though no row may come

    @property
    def pressed(self) -> bool:
        """Whether a ring is so full that it wants looking after."""
        memory = self._memory
        return max(memory.rows.level, memory.frames.level, memory.events.level) > 0.25

    def take(self) -> None:
        """Writes what stood in the rings at the previous look."""
        rows, frames = self._memory.rows.take(), self._memory.frames.take()
        events = split(self._memory.events.take())
        if not self._try("rows", lambda: self._write_rows(rows)):
            self._memory.rows.drop(len(rows) // self._memory.rows.size)
        if frames and not self._try("frames", lambda: self._write_frames(frames)):
            self._memory.frames.drop(len(frames) // FRAME.size)
        if events and not self._try("events", lambda: self._events.add(events)):
            self._memory.events.drop(len(events))
        if not self._plan.lossless and time.monotonic() > self._flushed + FLUSH:
            self._flushed = time.monotonic()
            self._try("frames", self._frames.flush)

    def _write_rows(self, data: bytes) -> None:
        if not data:
            self.folder.append({})  # raises what went wrong with rows that it had taken over
            return
        table = np.frombuffer(data).reshape(-1, len(self._plan.columns))
        columns = self._columns(table)
        self.folder.append(columns)
        first, last = float(columns["t"][0]), float(columns["t"][-1])
        self._span = (first if self._span is None else self._span[0], last)
        self._counts["rows"] += len(table)

    def _columns(self, table: Array) -> dict[str, Array]:
        columns = {name: table[:, i] for i, name in enumerate(self._plan.columns)}
        for name in columns.keys() & set(INTEGERS):
            columns[name] = np.where(np.isfinite(columns[name]), columns[name], -1.0).astype(np.int64)
        return columns

    def _write_frames(self, data: bytes) -> None:
        self._frames.add(FRAME.iter_unpack(data))
        self._bits.add(data)
        self._counts["frames"] += len(data) // FRAME.size

    def _try(self, kind: str, write: Callable[[], None]) -> bool:
        """Writes, unless that has failed before; says so once where it fails."""
        if kind in self._broken:
            return False
        try:
            write()
        except (OSError, RunFolderError) as error:
            self._broken.add(kind)
            self._memory.complain(f"{kind} are no longer recorded: {error}")
            return False
        return True

    def flush(self) -> None:
        """Brings to disk what the loop has left up to now."""
        for _ in range(2):  # what stood there at the previous look, then what came since
            self.take()
        self._try("rows", self.folder.flush)
        self._try("frames", self._frames.flush)

    def obituary(self) -> dict[str, Any]:
        """What is to be said of a run whose loop is no more."""
        return {"status": "killed", "error": "the loop's process ended without closing the run"}

    def close(self, metadata: dict[str, Any], drawing: dict[str, Array]) -> None:
        """Writes what is left and finishes the folder.

        Args:
            metadata: What the run says of itself at its end.
            drawing: As in `Trajectory.drawing`.

        Raises:
            RunFolderError: The folder cannot be finished; what was written stays.
        """
        self.flush()
        self._try("frames", self._frames.stop)
        self._events.close()
        self.folder.close(self._facts() | metadata, drawing)

    def give_up(self, metadata: dict[str, Any], error: str) -> None:
        """Says how the run ended where the folder cannot be finished; arguments as of `close`, and why."""
        self.folder.give_up(self._facts() | failed(metadata, error))

    def _facts(self) -> dict[str, Any]:
        """What the recorder itself knows of the run."""
        first, last = self._span or (0.0, 0.0)
        written: dict[str, Any] = {**self._counts, "events": self._events.count}
        return {
            "duration": last - first,
            "steps": max(0, self._counts["rows"] - 1),
            "events": self._events.first,
            "bus_bits": self._bits.as_dict(),
            "recorder": {**written, "lost": self._memory.lost, "problem": self._memory.problem or None},
        }
