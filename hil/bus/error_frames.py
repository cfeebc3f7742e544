"""What a CAN controller reports by the error frames of SocketCAN.

Design: `state` of a python-can bus says ACTIVE whatever happens, on most interfaces, so the link is read off here.

Source: Linux, include/uapi/linux/can/error.h.
"""

from typing import NamedTuple

from hil.bus.base import Link
from hil.frame import Frame

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
_PLACES = {
    0x03: "start of frame",
    **dict.fromkeys((0x02, 0x06, 0x07, 0x0F, 0x0E), "id"),
    0x04: "substitute RTR bit",
    0x05: "IDE bit",
    0x0C: "RTR bit",
    **dict.fromkeys((0x0D, 0x09), "reserved bit"),
    0x0B: "length",
    0x0A: "data",
    0x08: "CRC",
    0x18: "CRC delimiter",
    0x19: "acknowledge slot",
    0x1B: "acknowledge delimiter",
    0x1A: "end of frame",
    0x12: "intermission",
}
_WIRES = {
    0x04: "CAN high: no wire",
    0x05: "CAN high: short to battery",
    0x06: "CAN high: short to supply",
    0x07: "CAN high: short to ground",
    0x40: "CAN low: no wire",
    0x50: "CAN low: short to battery",
    0x60: "CAN low: short to supply",
    0x70: "CAN low: short to ground",
    0x80: "CAN low: short to CAN high",
}
_SEVERITY = {link: severity for severity, link in enumerate(Link)}


class Report(NamedTuple):
    """What one error frame says.

    Attributes:
        link: The worst state of the controller that it names; ACTIVE where it names none.
        sentence: In a person's words.
    """

    link: Link
    sentence: str


def worse(one: Link, other: Link) -> Link:
    """The more severe of two; the first of equals."""
    return one if _SEVERITY[one] >= _SEVERITY[other] else other


def report(frame: Frame) -> Report:
    """Reads an error frame.

    Args:
        frame: With the class bits as id; what is missing of its eight bytes counts as zero.
    """
    classes, data = frame.id, frame.data.ljust(8, b"\0")
    link, said = Link.ACTIVE, []
    if classes & BUS_OFF:
        link = Link.OFF
        said.append("bus-off: check cables, termination and bit rate")
    if classes & TX_TIMEOUT:
        link = worse(link, Link.DOWN)
        said.append("the controller did not send in time")
    if classes & CONTROLLER:
        for bit, state, words in _CONTROLLER:
            if data[1] & bit:
                link = worse(link, state)
                said.append(words)
        if not data[1]:
            said.append("unspecified problem of the controller")
    if classes & NO_ACKNOWLEDGEMENT:
        said.append("no acknowledgement: nobody else on the bus, or a broken cable")
    if classes & PROTOCOL:
        said.append(_protocol(data))
    if classes & TRANSCEIVER:
        said.append(f"transceiver: {_WIRES.get(data[4], 'unspecified')}")
    if classes & LOST_ARBITRATION:
        said.append(f"arbitration lost in bit {data[0]}" if data[0] else "arbitration lost")
    if classes & BUS_ERROR:
        said.append("bus error")
    if classes & RESTARTED:
        said.append("the controller restarted")
    if classes & COUNTERS:
        said.append(f"{data[6]} transmit and {data[7]} receive errors counted")
    return Report(link, "; ".join(said) or f"error frame of unknown class 0x{classes:X}")


def _protocol(data: bytes) -> str:
    kinds = [words for bit, words in _PROTOCOL if data[2] & bit]
    place = f" in {_PLACES[data[3]]}" if data[3] in _PLACES else ""
    return f"protocol error: {', '.join(kinds) or 'unspecified'}{place}"
