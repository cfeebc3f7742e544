"""What the page wants of the loop, in memory that both share: a stop, and values for gains."""

import mmap
import os
from collections.abc import Sequence

from hil.recorder.memory import nameless

STOP, COUNT, HEAD = 0, 1, 2
"""Words: whether the stop was pressed, for good; how many wishes there were; how many words come before the gains."""


class Requests:
    """Written by the page's process alone, read by the loop alone; neither waits.

    Attributes:
        descriptor: Of the file without a name that it is, for the other process.
    """

    def __init__(self, gains: int, descriptor: int | None = None) -> None:
        """Makes the memory for so many gains, or takes over a descriptor of it.

        Raises:
            OSError: The system has none to give.
        """
        size = 8 * (HEAD + 2 * gains)
        self.descriptor = nameless("servoctl view", size) if descriptor is None else descriptor
        self._mapped = mmap.mmap(self.descriptor, size)
        whole = memoryview(self._mapped)
        self._words = whole[: 8 * (HEAD + gains)].cast("Q")
        self._values = whole[8 * (HEAD + gains) :].cast("d")
        self._whole = whole
        self._taken = self._due = 0
        self._counts = [0] * gains

    def stop(self) -> None:
        """The page: wants the run stopped."""
        self._words[STOP] = 1

    def ask(self, index: int, value: float) -> None:
        """The page: wants a gain to have a value."""
        self._values[index] = value
        self._words[HEAD + index] += 1
        self._words[COUNT] += 1

    @property
    def stopped(self) -> bool:
        """The loop: whether the stop was ever pressed."""
        return bool(self._words[STOP])

    def look(self) -> Sequence[tuple[int, float]]:
        """The loop: gains and values that are wanted anew; taken a look late, when they have surely reached memory."""
        due, self._due = self._due, self._words[COUNT]
        if due == self._taken:
            return ()
        self._taken, found = due, []
        for index, count in enumerate(self._counts):
            if self._words[HEAD + index] != count:
                self._counts[index] = self._words[HEAD + index]
                found.append((index, self._values[index]))
        return found

    def close(self) -> None:
        """Lets go."""
        for view in (self._words, self._values, self._whole):
            view.release()
        self._mapped.close()
        os.close(self.descriptor)
