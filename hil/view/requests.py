"""What the loop and the process of its live page share: the page's settings, and its requests."""

import contextlib
import os
import signal
from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from hil.bus.load import BusRates
from hil.recorder.memory import Capacity

SIGNAL = signal.SIGUSR1  # signal to the loop that the stop button was pressed
MOST = 1024  # requests that the loop takes at once
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
    requests: int  # file descriptor to write `Requests` to
    columns: list[str]  # columns of a row, in order
    rates: dict[str, BusRates]  # name of a bus -> its bit rates
    gains: dict[str, tuple[float, float]]  # path of a gain -> its bounds
    about: dict[str, Any]  # further constant values for the page
    plant: PickledPlant | None  # the plant to be drawn; None: no drawing
    parent: int  # process id of the loop


STOP = -1  # stands for the stop, in place of the number of a gain
RECORD = Struct("=id")  # number of a gain, and its value; written at once, as every pipe writes so few bytes


class Requests:
    """A pipe from the page's process to the loop, which never waits for it.

    `descriptor`: end to write to, in the page's process; None: the pipe is made.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            self._source, descriptor = os.pipe()
            os.set_blocking(self._source, False)
        self.descriptor = descriptor  # file descriptor to write to, for the page's process
        self._stopped, self._gains = False, dict[int, float]()

    def stop(self) -> None:
        """Requests the stop; called by the page."""
        os.write(self.descriptor, RECORD.pack(STOP, 0.0))

    def request_gain(self, index: int, value: float) -> None:
        """Requests a value for a gain; called by the page."""
        os.write(self.descriptor, RECORD.pack(index, value))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for index, value in RECORD.iter_unpack(os.read(self._source, RECORD.size * MOST)):
                self._stopped |= index == STOP
                if index != STOP:
                    self._gains[index] = value

    @property
    def stopped(self) -> bool:
        """Whether the stop was ever requested; read by the loop."""
        self._read()
        return self._stopped

    def look(self) -> Sequence[tuple[int, float]]:
        """Indices and last values of newly requested gains; called by the loop."""
        self._read()
        requests, self._gains = tuple(self._gains.items()), {}
        return requests

    def close(self) -> None:
        """Closes the pipe in the loop's process."""
        os.close(self._source)
        os.close(self.descriptor)
