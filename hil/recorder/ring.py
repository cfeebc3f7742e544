"""How two processes exchange records without waiting: one fills a ring in shared memory, the other empties it."""

from struct import Struct
from typing import Any

import numpy as np

HEAD, TAIL, LOST, UNWRITTEN = 0, 8, 1, 9
"""Indices of the counts. The producer writes HEAD and LOST, the consumer TAIL and UNWRITTEN, in two cache lines."""

COUNTS = 128  # bytes before the first record


class Ring:
    """Records of one size, for one producer and one consumer; neither ever waits for the other.

    Design: head and tail count all records that were ever put and taken. The consumer takes only what it saw at its
    previous call, so the records have reached the memory before they are read: Python has no memory barrier, but no
    machine delays a store for the time between two calls.

    Args:
        memory: `Ring.footprint(size, capacity)` bytes, zero at first; each process makes its own ring on them.
        size: Bytes of a record.
        capacity: Largest number of records in it.
    """

    def __init__(self, memory: memoryview, size: int, capacity: int) -> None:
        # size: bytes of a record
        # capacity: largest number of records in it
        self.size, self.capacity = size, capacity
        self._counts = memory[:COUNTS].cast("Q")
        self.slots = memory[COUNTS : COUNTS + size * capacity]  # the records' bytes, shape (capacity * size,)
        self._head, self._tail, self._seen = self._counts[HEAD], self._counts[TAIL], self._counts[TAIL]

    @staticmethod
    def footprint(size: int, capacity: int) -> int:
        """Size of the memory of a ring, a multiple of 64 [byte]."""
        return COUNTS + -(-size * capacity // 64) * 64

    @property
    def head(self) -> int:
        """Number of records that were ever put."""
        return self._counts[HEAD]

    @property
    def lost(self) -> int:
        """Number of records that found no room, or that the consumer could not write."""
        return self._counts[LOST] + self._counts[UNWRITTEN]

    @property
    def level(self) -> float:
        """Fraction of the ring in use, 0 to 1."""
        return (self._counts[HEAD] - self._counts[TAIL]) / self.capacity

    def slot(self, count: int = 1) -> int:
        """Producer: index of the next slot, or -1 if there is no room for `count` records."""
        head = self._head
        if head - self._tail + count > self.capacity:
            self._tail = self._counts[TAIL]
            if head - self._tail + count > self.capacity:
                return -1
        return head % self.capacity

    def publish(self, count: int = 1) -> None:
        """Producer: makes the records in the next slots visible to the consumer."""
        self._head += count
        self._counts[HEAD] = self._head

    def reread(self) -> None:
        """Producer: takes note of the records that C has put."""
        self._head = self._counts[HEAD]

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the counts and the slots are in memory, for a producer in C."""
        return np.frombuffer(self._counts, np.uint64).ctypes.data, np.frombuffer(self.slots, np.uint8).ctypes.data

    def pack(self, form: Struct, *values: Any) -> bool:
        """Producer: puts a record of these values; False if there is no room."""
        head = self._head
        if head - self._tail >= self.capacity and self.slot() < 0:
            return False
        form.pack_into(self.slots, head % self.capacity * self.size, *values)
        self._head = self._counts[HEAD] = head + 1
        return True

    def lose(self, count: int = 1) -> None:
        """Producer: counts records that found no room."""
        self._counts[LOST] += count

    def put_bytes(self, data: bytes | memoryview) -> bool:
        """Producer: puts whole records, one after the other; False if there is no room for all."""
        count = len(data) // self.size
        start = self.slot(count) * self.size
        if start < 0:
            return False
        first = min(len(data), self.capacity * self.size - start)
        self.slots[start : start + first] = data[:first]
        self.slots[: len(data) - first] = data[first:]
        self.publish(count)
        return True

    def take(self) -> bytes:
        """Consumer: takes the records that were there at the previous call."""
        start, count = self._tail % self.capacity, self._seen - self._tail
        first = min(count, self.capacity - start)
        data = bytes(self.slots[start * self.size : (start + first) * self.size])
        data += bytes(self.slots[: (count - first) * self.size])
        self._tail = self._seen
        self._counts[TAIL] = self._tail
        self._seen = self._counts[HEAD]
        return data

    def drop(self, count: int) -> None:
        """Consumer: counts records that it took and could not write."""
        self._counts[UNWRITTEN] += count

    def release(self) -> None:
        """Releases the views of the memory."""
        self._counts.release()
        self.slots.release()
