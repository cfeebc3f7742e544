"""What every bus can do: send at once, receive until a deadline, and report its health.

Design: most interfaces of python-can leave `state` of a bus at ACTIVE even in bus-off (SocketcanBus does not override
the default of its base class), so the state of the link is read from the error frames of SocketCAN.

Source: Linux, include/uapi/linux/can/error.h.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
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
    # worst state of the link by error frames, why, and their number
    _link, _reason, _errors = Link.ACTIVE, "", 0

    @abstractmethod
    def send(self, frame: Frame) -> None:
        """Hands a frame to the controller; waits for room in its queue, at most `PATIENCE`.

        Raises BusError if the bus is down, or the queue of the controller stays full, which counts as down.
        """

    @abstractmethod
    def receive(self, until: int) -> Frame | None:
        """The next frame, with its time of arrival; error frames and own echoes are counted and left out.

        It waits until a time on the run's clock [ns], and then returns None; if that is past, only a frame already
        there is taken.

        Raises BusError if the bus is down.
        """

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
        return self._link is Link.ACTIVE and not self._errors

    def report_error(self, frame: Frame) -> None:
        """Takes note of an error frame: a state that is less severe does not replace the reason of the worst one."""
        self._errors += 1
        link, sentence = report(frame)
        if worse(link, self._link) is link:
            self._link, self._reason = link, sentence

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


TX_TIMEOUT, LOST_ARBITRATION, CONTROLLER, PROTOCOL = 0x001, 0x002, 0x004, 0x008
TRANSCEIVER, NO_ACKNOWLEDGEMENT, BUS_OFF, BUS_ERROR = 0x010, 0x020, 0x040, 0x080
RESTARTED, COUNTERS = 0x100, 0x200

_CONTROLLER = (
    (0x01, Link.ACTIVE, "receive buffer of the controller full, frames lost"),
    (0x02, Link.ACTIVE, "transmit buffer of the controller full, frames lost"),
    (0x04, Link.WARNING, "many receive errors"),
    (0x08, Link.WARNING, "many transmit errors"),
    (0x10, Link.PASSIVE, "error passive by receive errors"),
    (0x20, Link.PASSIVE, "error passive by transmit errors"),
    (0x40, Link.ACTIVE, "error active again"),
)
_PROTOCOL = (
    (0x01, "single bit"),
    (0x02, "form"),
    (0x04, "stuff"),
    (0x08, "cannot send a dominant bit"),
    (0x10, "cannot send a recessive bit"),
    (0x20, "overload"),
    (0x40, "active error announced"),
    (0x80, "while sending"),
)
_SEVERITY = {link: severity for severity, link in enumerate(Link)}


def worse(one: Link, other: Link) -> Link:
    """The more severe of two links; the first if they are equal."""
    return one if _SEVERITY[one] >= _SEVERITY[other] else other


def report(frame: Frame) -> tuple[Link, str]:
    """The worst state of the controller in an error frame, ACTIVE if it has none, and its content in words.

    Its id holds its class bits; bytes missing from its eight count as zero.
    """
    classes, data = frame.id, frame.data.ljust(8, b"\0")
    states = [(state, words) for bit, state, words in _CONTROLLER if classes & CONTROLLER and data[1] & bit]
    link = Link.DOWN if classes & TX_TIMEOUT else Link.OFF if classes & BUS_OFF else Link.ACTIVE
    for state, _ in states:
        link = worse(link, state)
    kinds = ", ".join(words for bit, words in _PROTOCOL if data[2] & bit)
    sentences = {
        BUS_OFF: "bus-off: check cables, termination and bit rate",
        TX_TIMEOUT: "the controller did not send in time",
        CONTROLLER: "; ".join(words for _, words in states) or "unspecified problem of the controller",
        NO_ACKNOWLEDGEMENT: "no acknowledgement: no other node on the bus, or a broken cable",
        PROTOCOL: f"protocol error: {kinds or 'unspecified'}",
        TRANSCEIVER: "the transceiver reports a fault of the wires",
        LOST_ARBITRATION: f"arbitration lost in bit {data[0]}" if data[0] else "arbitration lost",
        BUS_ERROR: "bus error",
        RESTARTED: "the controller restarted",
        COUNTERS: f"{data[6]} transmit and {data[7]} receive errors counted",
    }
    sentence = "; ".join(words for bit, words in sentences.items() if classes & bit)
    return link, sentence or f"error frame of unknown class 0x{classes:X}"
