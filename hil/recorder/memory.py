"""The memory that the loop's process and the recorder's share."""

import mmap
import os
import struct
import tempfile
from typing import NamedTuple

import numpy as np

from hil.frame import Frame
from hil.recorder.ring import Ring
from servoctl.types import Array

FRAME = struct.Struct("<qIBBBx8s")
"""Time [ns], id, bus, flags, length, data."""

SENT, EXTENDED, REMOTE, ERROR = 1, 2, 4, 8
"""Flags of a frame."""

PROBLEM = 1024
"""Bytes at the start, for what the recorder has to say: length, then text."""


class Capacity(NamedTuple):
    """How much the rings hold: what a tick leaves while the recorder waits for the disk.

    Attributes:
        rows: Four seconds at 1 kHz.
        frames: Five seconds of two full buses of 1 Mbit/s at 6500 frames/s each.
        events: [byte].
    """

    rows: int = 4096
    frames: int = 65536
    events: int = 1 << 20


class SharedRings:
    """Rings of rows, frames and events, and one sentence from the recorder.

    Attributes:
        descriptor: Of the file without a name that it is, for the process that shall share it.
        rows: Ring of rows.
        frames: Ring of `FRAME`.
        events: Ring of bytes.
        table: The slots of the rows, shape (capacity, columns).
    """

    def __init__(self, columns: int, capacity: Capacity, descriptor: int | None = None, writable: bool = True) -> None:
        """Makes the memory, or takes over a descriptor of it; who only looks on need not be able to write.

        Raises:
            OSError: The system has none to give.
        """
        sizes = [(8 * columns, capacity.rows), (FRAME.size, capacity.frames), (1, capacity.events)]
        total = PROBLEM + sum(Ring.footprint(*size) for size in sizes)
        self.descriptor = nameless("servoctl recorder", total) if descriptor is None else descriptor
        self._mapped = mmap.mmap(self.descriptor, total, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        memory = memoryview(self._mapped)
        if descriptor is None:
            memory[:] = bytes(total)  # every page is there before the first tick needs it
        self._whole, self._problem = memory, memory[:PROBLEM]
        rings, place = [], PROBLEM
        for size in sizes:
            rings.append(Ring(memory[place : place + Ring.footprint(*size)], *size))
            place += Ring.footprint(*size)
        self.rows, self.frames, self.events = rings
        table = np.frombuffer(self.rows.slots, count=capacity.rows * columns)
        self.table: Array = table.reshape(capacity.rows, columns)

    @property
    def problem(self) -> str:
        """What the recorder has to say; empty while all is well."""
        length = int.from_bytes(self._problem[:8], "little")
        return bytes(self._problem[8 : 8 + length]).decode(errors="replace") if length else ""

    def complain(self, text: str) -> None:
        """Says what is wrong, once: the first cause is the one that helps."""
        if not self.problem:
            said = text.encode()[: PROBLEM - 8]
            self._problem[8 : 8 + len(said)] = said
            self._problem[:8] = len(said).to_bytes(8, "little")

    @property
    def lost(self) -> dict[str, int]:
        """Rows, frames and events that are in no file."""
        return {"rows": self.rows.lost, "frames": self.frames.lost, "events": self.events.lost}

    def close(self) -> None:
        """Lets go; the system has it back when both processes have."""
        del self.table  # a view on the rows
        for ring in (self.rows, self.frames, self.events):
            ring.release()
        self._problem.release()
        self._whole.release()
        self._mapped.close()
        os.close(self.descriptor)


def nameless(name: str, size: int) -> int:
    """Descriptor of memory, zero at first, that is gone when nobody has it any more."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def unpacked(time: int, id: int, bus: int, flags: int, length: int, data: bytes) -> tuple[int, bool, Frame, int]:
    """Bus, whether it was sent, the frame and its time."""
    sent, remote = bool(flags & SENT), bool(flags & REMOTE)
    extended, error = bool(flags & EXTENDED), bool(flags & ERROR)
    payload = b"" if remote else data[:length]
    return bus, sent, Frame(id, payload, extended, remote, error, length if remote else 0, 0 if sent else time), time
