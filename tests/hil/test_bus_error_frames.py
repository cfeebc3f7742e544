"""Error frames, against the bits of Linux' include/uapi/linux/can/error.h."""

import pytest

from hil.bus import Link
from hil.bus.base import Report, report, worse
from hil.frame import Frame

GOLDEN = [
    (0x001, "", Link.DOWN, "the controller did not send in time"),
    (0x002, "05", Link.ACTIVE, "arbitration lost in bit 5"),
    (0x002, "", Link.ACTIVE, "arbitration lost"),
    (0x004, "0001", Link.ACTIVE, "receive buffer of the controller full, frames lost"),
    (0x004, "0002", Link.ACTIVE, "transmit buffer of the controller full, frames lost"),
    (0x004, "0004", Link.WARNING, "many receive errors"),
    (0x004, "0008", Link.WARNING, "many transmit errors"),
    (0x004, "0010", Link.PASSIVE, "error passive by receive errors"),
    (0x004, "0020", Link.PASSIVE, "error passive by transmit errors"),
    (0x004, "0040", Link.ACTIVE, "error active again"),
    (0x004, "000c", Link.WARNING, "many receive errors; many transmit errors"),
    (0x004, "0024", Link.PASSIVE, "many receive errors; error passive by transmit errors"),
    (0x004, "", Link.ACTIVE, "unspecified problem of the controller"),
    (0x008, "00000408", Link.ACTIVE, "protocol error: stuff in CRC"),
    (0x008, "00008819", Link.ACTIVE, "protocol error: cannot send a dominant bit, while sending in acknowledge slot"),
    (0x008, "", Link.ACTIVE, "protocol error: unspecified"),
    (0x010, "0000000004", Link.ACTIVE, "transceiver: CAN high: no wire"),
    (0x010, "0000000080", Link.ACTIVE, "transceiver: CAN low: short to CAN high"),
    (0x020, "", Link.ACTIVE, "no acknowledgement: no other node on the bus, or a broken cable"),
    (0x040, "0000000000000000", Link.OFF, "bus-off: check cables, termination and bit rate"),
    (0x080, "", Link.ACTIVE, "bus error"),
    (0x100, "", Link.ACTIVE, "the controller restarted"),
    (
        0x204,
        "0020000000008007",
        Link.PASSIVE,
        "error passive by transmit errors; 128 transmit and 7 receive errors counted",
    ),
    (0x041, "", Link.DOWN, "bus-off: check cables, termination and bit rate; the controller did not send in time"),
    (0x140, "", Link.OFF, "bus-off: check cables, termination and bit rate; the controller restarted"),
    (0x400, "", Link.ACTIVE, "error frame of unknown class 0x400"),
]


@pytest.mark.parametrize(("classes", "data", "link", "sentence"), GOLDEN)
def test_an_error_frame_is_decoded(classes: int, data: str, link: Link, sentence: str) -> None:
    assert report(Frame(classes, bytes.fromhex(data), error=True)) == Report(link, sentence)


def test_no_error_frame_makes_the_decoder_raise() -> None:
    for classes in range(0x800):
        assert report(Frame(classes, bytes([classes % 256] * 8), error=True)).sentence


def test_links_are_ordered_by_severity() -> None:
    order = [Link.ACTIVE, Link.WARNING, Link.PASSIVE, Link.OFF, Link.DOWN]
    for i, low in enumerate(order):
        for high in order[i:]:
            assert worse(low, high) is high
            assert worse(high, low) is high
