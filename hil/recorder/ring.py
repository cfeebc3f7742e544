"""A ring of records in memory that two processes share: one puts, the other takes."""

from struct import Struct
from typing import Any

HEAD, TAIL, LOST, UNWRITTEN = 0, 8, 1, 9
"""Words of the counts. The producer writes the first and the third, the consumer the others, in a cache line each."""

COUNTS = 128
"""Bytes before the first record."""


class Ring:
    """Records of one size, for a single producer and a single consumer; neither ever waits for the other.

    Design: head and tail count the records that were ever put and taken. The consumer takes what it saw at its previous
    look, so that records have reached memory before they are read: Python offers no memory barrier, but no machine
    keeps a store back for the time between two looks.

    Attributes:
        slots: The records' bytes, shape (capacity * size,).
        size: Bytes of a record.
        capacity: Most records that it holds.
    """

    def __init__(self, memory: memoryview, size: int, capacity: int) -> None:
        """Takes `Ring.footprint(size, capacity)` of memory, zero at first; both processes make their own on it."""
        self.size, self.capacity = size, capacity
        self._counts = memory[:COUNTS].cast("Q")
        self.slots = memory[COUNTS : COUNTS + size * capacity]
        self._head, self._tail, self._seen = self._counts[HEAD], self._counts[TAIL], self._counts[TAIL]

    @staticmethod
    def footprint(size: int, capacity: int) -> int:
        """Memory that a ring takes, a multiple of 64."""
        return COUNTS + -(-size * capacity // 64) * 64

    @property
    def head(self) -> int:
        """Records that were ever put."""
        return self._counts[HEAD]

    @property
    def lost(self) -> int:
        """Records that found no room, or that the consumer could not write."""
        return self._counts[LOST] + self._counts[UNWRITTEN]

    @property
    def level(self) -> float:
        """How full it is, 0 to 1."""
        return (self._counts[HEAD] - self._counts[TAIL]) / self.capacity

    def slot(self, count: int = 1) -> int:
        """Producer: index of the next slot, or -1 where `count` records have no room."""
        head = self._head
        if head - self._tail + count > self.capacity:
            self._tail = self._counts[TAIL]
            if head - self._tail + count > self.capacity:
                return -1
        return head % self.capacity

    def publish(self, count: int = 1) -> None:
        """Producer: hands over the records in the next slots."""
        self._head += count
        self._counts[HEAD] = self._head

    def pack(self, form: Struct, *values: Any) -> bool:
        """Producer: puts a record of these values; False where it has no room."""
        head = self._head
        if head - self._tail >= self.capacity and self.slot() < 0:
            return False
        form.pack_into(self.slots, head % self.capacity * self.size, *values)
        self._head = self._counts[HEAD] = head + 1
        return True

    def lose(self, count: int = 1) -> None:
        """Producer: notes records that found no room."""
        self._counts[LOST] += count

    def put_bytes(self, data: bytes) -> bool:
        """Producer, where a record is a byte: puts them all; False where they have no room."""
        start = self.slot(len(data))
        if start < 0:
            return False
        first = min(len(data), self.capacity - start)
        self.slots[start : start + first] = data[:first]
        self.slots[: len(data) - first] = data[first:]
        self.publish(len(data))
        return True

    def take(self) -> bytes:
        """Consumer: the records that stood there at the previous look."""
        start, count = self._tail % self.capacity, self._seen - self._tail
        first = min(count, self.capacity - start)
        data = bytes(self.slots[start * self.size : (start + first) * self.size])
        data += bytes(self.slots[: (count - first) * self.size])
        self._tail = self._seen
        self._counts[TAIL] = self._tail
        self._seen = self._counts[HEAD]
        return data

    def drop(self, count: int) -> None:
        """Consumer: notes records that it took and could not write."""
        self._counts[UNWRITTEN] += count

    def release(self) -> None:
        """Lets the memory go."""
        self._counts.release()
        self.slots.release()
