"""What every bus can do: send at once, receive until a deadline, and report its health."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from hil.frame import Frame
from servoctl.errors import RigError

QUEUE = 10  # frames that usually can wait to be sent: the default `txqueuelen` of a SocketCAN interface

PATIENCE = 2_000_000
"""Longest wait for room in the queue of a controller [ns]: a frame takes 0.16 ms at 1 Mbit/s, 1.3 ms at 125 kbit/s."""


class BusError(RigError):
    """A bus cannot be opened, or is down: it sends no frame."""


class Link(Enum):
    """State of a CAN controller, in order of severity."""

    ACTIVE = "error active"
    WARNING = "error warning"
    PASSIVE = "error passive"
    OFF = "bus-off"
    DOWN = "down"


class Health(NamedTuple):
    """Health of a bus."""

    link: Link = Link.ACTIVE  # worst state of the controller according to error frames; it stays
    reason: str = ""  # why, as a sentence; for an active link the last error, or empty
    sent: int = 0  # number of frames handed to the controller
    received: int = 0  # number of frames received, without echoes and error frames
    echoes: int = 0  # number of own frames that came back and were dropped
    errors: int = 0  # number of error frames
    refused: int = 0  # number of frames that the controller did not accept
    invalid: int = 0  # number of records that are no frames of this bus: FD on a classic bus, too long, unreadable
    lost: int = 0  # number of frames that arrived while the receive buffer was full; 0 if the bus cannot tell


class Bus(ABC):
    """One CAN bus, open.

    Design: frames that go out at once may be more than the queue of the controller holds (SocketCAN: 10 by default).
    The rest are sent as room comes. A queue without room for `PATIENCE` counts as down, and is not waited for again
    until a frame gets through.
    """

    name: str  # its name in the config

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Hands a frame to the controller; waits for room in its queue, at most `PATIENCE`.

        Raises:
            BusError: The bus is down, or the queue of the controller stays full, which counts as down.
        """

    @abstractmethod
    def receive(self, until: int) -> Frame | None:
        """The next frame, with its time of arrival; error frames and own echoes are counted and left out.

        Args:
            until: Time on the run's clock until which to wait [ns]; if it is past, only a frame already there is taken.

        Returns:
            The frame, or None if none came in time.

        Raises:
            BusError: The bus is down.
        """

    def receive_each(self, until: int, take: Callable[[Frame], bool]) -> None:
        """Hands over each frame when it comes, until `take` returns False.

        Args:
            until: Time on the run's clock until which to wait [ns].
            take: Takes a frame; returns whether another one is wanted.

        Raises:
            BusError: The bus is down.
        """
        while (frame := self.receive(until)) is not None and take(frame):
            pass

    def take_back(self) -> bool:
        """Drops the frames that wait in the controller; returns whether it can. SocketCAN cannot. Never raises."""
        return False

    @property
    @abstractmethod
    def health(self) -> Health:
        """Health of the bus now."""

    @property
    def well(self) -> bool:
        """Whether the link is active and no error frame has come; faster than `health`."""
        health = self.health
        return health.link is Link.ACTIVE and not health.errors

    @abstractmethod
    def close(self) -> None:
        """Closes the bus; further calls do nothing."""


def close_all(buses: Iterable[Bus]) -> None:
    """Closes every bus, even if closing one of them fails; then raises the first error."""
    failure: BaseException | None = None
    for bus in buses:
        try:
            bus.close()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
