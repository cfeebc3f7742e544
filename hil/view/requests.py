"""What the loop and the process of its live page share: the page's settings, and its requests in shared memory."""

import mmap
import os
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from hil.bus.load import BusRates
from hil.recorder.memory import Capacity, nameless

SIGNAL = signal.SIGUSR1  # signal to the loop that the stop button was pressed
LINGER = 2.0  # [s] time limit for viewers to receive the last picture


class PickledPlant(NamedTuple):
    """A plant that is sent to the page's process."""

    pickled: bytes  # the plant
    module: str  # name of the module of its class
    path: str  # `file.py:Name` if the class is in a user's file, which the process must load by path; otherwise empty


class PageSettings(NamedTuple):
    """Parameters of the page's process."""

    memory: int  # file descriptor of the recorder's memory
    capacity: Capacity  # capacity of its rings
    requests: int  # file descriptor of the memory of `Requests`
    columns: list[str]  # columns of a row, in order
    rates: dict[str, BusRates]  # name of a bus -> its bit rates
    gains: dict[str, tuple[float, float]]  # path of a gain -> its bounds
    about: dict[str, Any]  # further constant values for the page
    plant: PickledPlant | None  # the plant to be drawn; None: no drawing
    parent: int  # process id of the loop


STOP, COUNT, HEAD = 0, 1, 2
"""Words of the memory: stop pressed, for good; number of requests for gains; number of words before the gains."""


class Requests:
    """Shared memory that only the page's process writes and only the loop reads; neither waits for the other.

    Args:
        gains: Number of gains.
        descriptor: File descriptor of existing memory; None: the memory is made.

    Raises:
        OSError: The system has no memory.
    """

    def __init__(self, gains: int, descriptor: int | None = None) -> None:
        size = 8 * (HEAD + 2 * gains)
        # file descriptor of the memory, for the other process
        self.descriptor = nameless("servoctl view", size) if descriptor is None else descriptor
        self._mapped = mmap.mmap(self.descriptor, size)
        whole = memoryview(self._mapped)
        self._words = whole[: 8 * (HEAD + gains)].cast("Q")
        self._values = whole[8 * (HEAD + gains) :].cast("d")
        self._whole = whole
        self._taken = self._due = 0
        self._counts = [0] * gains

    def stop(self) -> None:
        """Requests the stop; called by the page."""
        self._words[STOP] = 1

    def request_gain(self, index: int, value: float) -> None:
        """Requests a value for a gain; called by the page."""
        self._values[index] = value  # before the counts: the loop reads the value after it sees them
        self._words[HEAD + index] += 1
        self._words[COUNT] += 1

    @property
    def stopped(self) -> bool:
        """Whether the stop was ever requested; read by the loop."""
        return bool(self._words[STOP])

    def look(self) -> Sequence[tuple[int, float]]:
        """Indices and values of newly requested gains; called by the loop.

        A request is returned one look late: by then all its stores have certainly reached memory.
        """
        due, self._due = self._due, self._words[COUNT]
        if due == self._taken:
            return ()
        self._taken, requests = due, []
        for index, count in enumerate(self._counts):
            if self._words[HEAD + index] != count:
                self._counts[index] = self._words[HEAD + index]
                requests.append((index, self._values[index]))
        return requests

    def close(self) -> None:
        """Frees the memory in this process."""
        for view in (self._words, self._values, self._whole):
            view.release()
        self._mapped.close()
        os.close(self.descriptor)
