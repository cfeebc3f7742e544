"""The memory that the process of the loop and that of the recorder share, and the bits of recorded frames.

Each ring is filled by one process and emptied by the other; neither waits.
"""

import mmap
import os
import struct
import tempfile
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from hil.bus.load import frame_bits
from hil.core.constants import RING_HEAD, RING_LOST, RING_TAIL, RING_UNWRITTEN
from hil.frame import BRS, CLASSIC_SIZE, ERROR, EXTENDED, FD, FD_SIZES, REMOTE, SENT, Frame
from servoctl.types import Array

COUNTS = 128  # bytes before the first record


class Ring:
    """Records of one size, for one producer and one consumer; neither ever waits for the other.

    Design: head and tail count all records that were ever put and taken. The consumer takes only what it saw at its
    previous call, so the records have reached the memory before they are read: Python has no memory barrier, but no
    machine delays a store for the time between two calls.
    """

    def __init__(
        self,
        # `Ring.footprint(size, capacity)` bytes, zero at first; each process makes its own ring on them
        memory: memoryview,
        size: int,  # bytes of a record
        capacity: int,  # largest number of records in it
    ) -> None:
        self.size, self.capacity = size, capacity
        self._counts = memory[:COUNTS].cast("Q")
        self.slots = memory[COUNTS : COUNTS + size * capacity]  # the records' bytes, shape (capacity * size,)
        self._tail = self._seen = self._counts[RING_TAIL]

    @staticmethod
    def footprint(size: int, capacity: int) -> int:
        """Size of the memory of a ring, a multiple of 64 [byte]."""
        return COUNTS + -(-size * capacity // 64) * 64

    @property
    def head(self) -> int:
        """Number of records that were ever put."""
        return self._counts[RING_HEAD]

    @property
    def lost(self) -> int:
        """Number of records that found no room, or that the consumer could not write."""
        return self._counts[RING_LOST] + self._counts[RING_UNWRITTEN]

    @property
    def level(self) -> float:
        """Fraction of the ring in use, 0 to 1."""
        return (self._counts[RING_HEAD] - self._counts[RING_TAIL]) / self.capacity

    def put(self, data: bytes | memoryview) -> bool:
        """Producer: puts whole records, one after the other; False if there is no room for all."""
        size, head, count = len(data), self._counts[RING_HEAD], len(data) // self.size
        if head - self._tail + count > self.capacity:
            self._tail = self._counts[RING_TAIL]
            if head - self._tail + count > self.capacity:
                return False
        start = head % self.capacity * self.size
        first = len(self.slots) - start
        if size <= first:
            self.slots[start : start + size] = data
        else:
            self.slots[start:], self.slots[: size - first] = data[:first], data[first:]
        self._counts[RING_HEAD] = head + count
        return True

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the counts and the slots are in memory, for a producer in C."""
        return np.frombuffer(self._counts, np.uint64).ctypes.data, np.frombuffer(self.slots, np.uint8).ctypes.data

    def lose(self, count: int = 1) -> None:
        """Producer: counts records that found no room."""
        self._counts[RING_LOST] += count

    def take(self) -> bytes:
        """Consumer: takes the records that were there at the previous call."""
        data = self.copy(self._tail, self._seen)
        self._tail = self._seen
        self._counts[RING_TAIL] = self._tail
        self._seen = self._counts[RING_HEAD]
        return data

    def copy(self, first: int, end: int) -> bytes:
        """The records from one number to another, both counted like `head`."""
        start, count = first % self.capacity, end - first
        here = min(count, self.capacity - start)
        data = bytes(self.slots[start * self.size : (start + here) * self.size])
        return data + bytes(self.slots[: (count - here) * self.size])

    def drop(self, count: int) -> None:
        """Consumer: counts records that it took and could not write."""
        self._counts[RING_UNWRITTEN] += count

    def release(self) -> None:
        self._counts.release()
        self.slots.release()


FRAME = struct.Struct("<qIBBBx64s")  # a frame in the ring, classic or FD: time [ns], id, bus, flags, length, data

FIELDS = np.dtype(
    {
        "names": ["time", "id", "bus", "flags", "length"], "formats": ["<i8", "<u4", "u1", "u1", "u1"],
        "offsets": [0, 8, 12, 13, 14], "itemsize": FRAME.size,
    }
)  # fmt: skip
"""The fields of `FRAME` without the data, for arrays of frames."""

INTEGERS = ("status", "rank", "passive_rank")  # columns of whole numbers; -1 stands for an unknown one
PROBLEM = 1024  # bytes at the start of the memory for the problem of the recorder: length, then text


class Capacity(NamedTuple):
    """Sizes of the rings, for the time that the recorder may wait for the disk."""

    rows: int = 4096  # number of rows; by default those of four seconds at 1 kHz
    # number of frames; by default those of five seconds on two full buses (1 Mbit/s, 6500 frames/s each)
    frames: int = 65536
    events: int = 1 << 20  # [byte] size of the events


class SharedRings:
    """Rings of rows, frames and events, and the problem of the recorder; OSError: the system has no memory to give."""

    def __init__(
        self,
        columns: int,  # number of columns of a row
        capacity: Capacity,
        descriptor: int | None = None,  # file descriptor of existing memory; None: make new memory
        writable: bool = True,  # whether to map it for writing; a process that only reads need not
    ) -> None:
        sizes = [(8 * columns, capacity.rows), (FRAME.size, capacity.frames), (1, capacity.events)]
        total = PROBLEM + sum(Ring.footprint(*size) for size in sizes)
        # file descriptor of the memory, for the process that shares it
        self.descriptor = nameless("servoctl recorder", total) if descriptor is None else descriptor
        self._mapped = mmap.mmap(self.descriptor, total, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        memory = memoryview(self._mapped)
        if descriptor is None:
            memory[:] = bytes(total)  # touches every page, so that no tick has to wait for one
        self._whole, self._problem = memory, memory[:PROBLEM]
        rings, start = [], PROBLEM
        for size in sizes:
            rings.append(Ring(memory[start : start + Ring.footprint(*size)], *size))
            start += Ring.footprint(*size)
        # rows: ring of rows
        # frames: ring of `FRAME`
        # events: ring of bytes
        self.rows, self.frames, self.events = rings

    @property
    def problem(self) -> str:
        """Why the recorder no longer records everything; empty while it does."""
        length = int.from_bytes(self._problem[:8], "little")
        return bytes(self._problem[8 : 8 + length]).decode(errors="replace") if length else ""

    def complain(self, text: str) -> None:
        """Stores the problem, if there is none yet: the first cause is the useful one."""
        if not self.problem:
            encoded = text.encode()[: PROBLEM - 8]
            self._problem[8 : 8 + len(encoded)] = encoded
            self._problem[:8] = len(encoded).to_bytes(8, "little")  # last: the length makes the text visible

    @property
    def lost(self) -> dict[str, int]:
        """Number of rows, frames and events that are in no file."""
        return {"rows": self.rows.lost, "frames": self.frames.lost, "events": self.events.lost}

    def close(self) -> None:
        """Unmaps the memory; the system frees it when both processes have done so."""
        for ring in (self.rows, self.frames, self.events):
            ring.release()
        self._problem.release()
        self._whole.release()
        self._mapped.close()
        os.close(self.descriptor)


def nameless(name: str, size: int) -> int:
    """File descriptor of new memory, filled with zeros; it is freed with its last descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def named_columns(table: Array, names: Iterable[str]) -> dict[str, Array]:
    """The columns of a table of rows, by name."""
    columns = {name: table[:, i] for i, name in enumerate(names)}
    for name in columns.keys() & set(INTEGERS):
        columns[name] = np.where(np.isfinite(columns[name]), columns[name], -1.0).astype(np.int64)
    return columns


def unpacked(time: int, id: int, bus: int, flags: int, length: int, data: bytes) -> tuple[int, bool, Frame, int]:
    """The values of a `FRAME` as: index of the bus, whether it was sent, the frame, its time [ns]."""
    sent, remote = bool(flags & SENT), bool(flags & REMOTE)
    extended, error = bool(flags & EXTENDED), bool(flags & ERROR)
    payload = b"" if remote else data[:length]
    asked, arrived, fd, brs = length if remote else 0, 0 if sent else time, bool(flags & FD), bool(flags & BRS)
    return bus, sent, Frame(id, payload, extended, remote, error, asked, arrived, fd, brs), time


_NO_YES = (False, True)
_SIZES = range(FD_SIZES[-1] + 1)
_CLASSIC = [[frame_bits(min(size, CLASSIC_SIZE), long) for size in _SIZES] for long in _NO_YES]
_FD = [[[frame_bits(size, long, True, switched) for size in _SIZES] for long in _NO_YES] for switched in _NO_YES]
_TABLE = np.array([_CLASSIC, *_FD], dtype=np.int64)


def recorded_bits(frames: Any) -> Array:
    """Bits at the nominal and at the data bit rate, shape (frames, 2); `frames`: records of `memory.FIELDS`."""
    flags = frames["flags"]
    size = np.where(flags & REMOTE, 0, np.minimum(frames["length"], FD_SIZES[-1]))
    kind = np.where(flags & FD, np.where(flags & BRS, 2, 1), 0)
    bits: Array = _TABLE[kind, (flags & EXTENDED != 0).astype(int), size]
    return bits
