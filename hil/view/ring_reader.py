"""Reading a ring beside the one who takes from it."""

from hil.recorder.ring import Ring

MARGIN = 2
"""Records next to the one being written that are not trusted: a store may be seen late."""


class RingReader:
    """Sees every record of a ring and takes none; where it looks too seldom it misses some, and says how many.

    Design: it reads what stood there at its previous look, as `Ring` does, and afterwards throws away what may have
    been overwritten meanwhile; so no record is ever torn, and who writes knows nothing of it.
    """

    def __init__(self, ring: Ring) -> None:
        """Takes a ring, from its oldest record on that is still there."""
        self._ring, self._seen = ring, ring.head
        self._next = max(0, self._seen - ring.capacity + MARGIN)

    def look(self) -> tuple[bytes, int]:
        """Records that stood there at the previous look, and how many before them are missing."""
        ring, end = self._ring, self._seen
        first = max(self._next, min(end, ring.head - ring.capacity + MARGIN))
        size, start, count = ring.size, first % ring.capacity, end - first
        here = min(count, ring.capacity - start)
        data = bytes(ring.slots[start * size : (start + here) * size]) + bytes(ring.slots[: (count - here) * size])
        self._seen = ring.head
        whole = max(first, min(end, self._seen - ring.capacity + MARGIN))
        missed, self._next = whole - self._next, end
        return data[(whole - first) * size :], missed
