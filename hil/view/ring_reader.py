"""Reads a ring without consuming its records, beside the consumer."""

from hil.recorder.ring import Ring

MARGIN = 2
"""Number of records after the one being written that are not trusted: a store may become visible late."""


class RingReader:
    """Reads every record of a ring, from its oldest on; if it looks too rarely it misses some, and reports how many.

    Design: like `Ring`, it reads the records that were complete at its previous look. Then it drops those that may have
    been overwritten meanwhile. So no record is ever torn, and the writer needs no lock.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring, self._seen = ring, ring.head
        self._next = max(0, self._seen - ring.capacity + MARGIN)

    def look(self) -> tuple[bytes, int]:
        """Records that were complete at the previous look, and the number of missed records before them."""
        ring, end = self._ring, self._seen
        first = max(self._next, min(end, ring.head - ring.capacity + MARGIN))
        size, start, count = ring.size, first % ring.capacity, end - first
        here = min(count, ring.capacity - start)
        data = bytes(ring.slots[start * size : (start + here) * size]) + bytes(ring.slots[: (count - here) * size])
        self._seen = ring.head
        whole = max(first, min(end, self._seen - ring.capacity + MARGIN))
        missed, self._next = whole - self._next, end
        return data[(whole - first) * size :], missed
