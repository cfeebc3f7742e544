"""What every bus offers: send at once, receive until a deadline, and say how it is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from hil.frame import Frame
from servoctl.errors import RigError


@mypyc_attr(native_class=False)
class BusError(RigError):
    """A bus cannot be opened, or is down: no frame goes out."""


class Link(Enum):
    """How a CAN controller stands; in order of severity."""

    ACTIVE = "error active"
    WARNING = "error warning"
    PASSIVE = "error passive"
    OFF = "bus-off"
    DOWN = "down"


class Health(NamedTuple):
    """What a bus knows of itself.

    Attributes:
        link: Of the controller, by the error frames that came in; latched until `Bus.restarted`.
        reason: What made it so, in a person's words; of an active link the last error, empty where there was none.
        sent: Frames handed to the controller.
        received: Frames taken in, own echoes and error frames left out.
        echoes: Own frames that came back and were dropped.
        errors: Error frames.
        refused: Frames that the controller did not take.
        invalid: What came in and is no classic frame: FD, too long, unreadable.
        lost: Frames that came in while the receive buffer was full; 0 where the bus cannot tell.
    """

    link: Link = Link.ACTIVE
    reason: str = ""
    sent: int = 0
    received: int = 0
    echoes: int = 0
    errors: int = 0
    refused: int = 0
    invalid: int = 0
    lost: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Bus(ABC):
    """One CAN bus, open.

    Attributes:
        name: As the config calls it.
    """

    name: str

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Hands a frame to the controller, without waiting.

        Raises:
            BusError: The bus is down, or the controller's queue is full: which counts as down.
        """

    @abstractmethod
    def receive(self, until: int) -> Frame | None:
        """The next frame, with its time; error frames and own echoes are taken out and counted.

        Args:
            until: How long to wait, a moment on the run's clock [ns]; one that has passed takes what is there.

        Returns:
            The frame, or None where none came in time.

        Raises:
            BusError: The bus is down.
        """

    @property
    @abstractmethod
    def health(self) -> Health:
        """How the bus stands now."""

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with it: quicker to ask than `health`."""
        health = self.health
        return health.link is Link.ACTIVE and not health.errors

    @abstractmethod
    def restarted(self) -> None:
        """Forgets how bad the link was: an operator says that it is well again. Counts stay."""

    @abstractmethod
    def close(self) -> None:
        """Closes; further calls do nothing."""


def close_all(buses: Iterable[Bus]) -> None:
    """Closes every bus, whatever closing another one raises; the first such error comes last."""
    failure: Exception | None = None
    for bus in buses:
        try:
            bus.close()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
