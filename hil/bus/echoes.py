"""Which received frames are echoes of what this program sent."""

from collections import Counter, deque

from hil.frame import Frame
from hil.loop.clock import SECOND

_AGE = SECOND // 10
_MOST = 1024

_Key = tuple[int, bytes, bool, bool, int, bool]


class Echoes:
    """The frames that were sent lately, each expected to come back once.

    Design: an echo that does not come is given up after 0.1 s. That time is measured between sending and the arrival
    of other frames, so an echo that waited in a queue for a long time is still recognised.
    """

    def __init__(self) -> None:
        self._order: deque[tuple[int, _Key]] = deque()
        self._expected: Counter[_Key] = Counter()

    def add(self, frame: Frame, moment: int) -> None:
        """Expects the echo of a frame that was sent at `moment` [ns]."""
        if len(self._order) >= _MOST:
            self._forget()
        key = _key(frame)
        self._order.append((moment, key))
        self._expected[key] += 1

    def take(self, frame: Frame) -> bool:
        """Whether a received frame is an expected echo; it is then no longer expected."""
        while self._order and self._order[0][0] < frame.time - _AGE:
            self._forget()
        key = _key(frame)
        if not self._expected[key]:
            del self._expected[key]
            return False
        del self._order[next(index for index, (_, each) in enumerate(self._order) if each == key)]
        self._drop(key)
        return True

    def _forget(self) -> None:
        self._drop(self._order.popleft()[1])

    def _drop(self, key: _Key) -> None:
        self._expected[key] -= 1
        if not self._expected[key]:
            del self._expected[key]


def _key(frame: Frame) -> _Key:
    length = frame.length if frame.remote else len(frame.data)
    return frame.id, frame.data, frame.extended, frame.remote, length, frame.fd
