"""How emulated drives on a loopback bus are told from real ones: they answer one frame that no drive uses.

Design: three frames of 29 bits. A loop asks, an emulator answers whether it is there and free, and the loop says when
its task begins, which is when faults that count from there begin to count. None of them goes out on a real bus.
"""

from hil.bus.base import Bus, BusError
from hil.frame import Frame
from hil.loop.clock import Clock, nanoseconds

REQUEST = 0x1FFF5E50
"""Id of the question, 29 bits."""

REPLY = 0x1FFF5E51
"""Id of the answer, 29 bits."""

BEGINNING = 0x1FFF5E52
"""Id of the frame that says that the task begins, 29 bits."""

VERSION = 2
PAYLOAD = b"servoctl"[:7] + bytes([VERSION])
"""Of all of them: changes with what host and emulator must agree on."""
BUSY = PAYLOAD[:7] + bytes([0x80 | VERSION])
"""Of the answer while another loop has the drives."""


def question() -> Frame:
    """The frame that asks whether an emulator is there."""
    return Frame(REQUEST, PAYLOAD, extended=True)


def is_question(frame: Frame) -> bool:
    """Whether a frame asks for an emulator of this version."""
    return _is(frame, REQUEST)


def answer(busy: bool) -> Frame:
    """What an emulator says to the question, busy with another loop or free."""
    return Frame(REPLY, BUSY if busy else PAYLOAD, extended=True)


def beginning() -> Frame:
    """The frame that tells an emulator that the task begins."""
    return Frame(BEGINNING, PAYLOAD, extended=True)


def is_beginning(frame: Frame) -> bool:
    """Whether a frame says so."""
    return _is(frame, BEGINNING)


def _is(frame: Frame, identity: int, payload: bytes = PAYLOAD) -> bool:
    return frame.extended and not frame.remote and frame.id == identity and frame.data == payload


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version is on a bus; sends one frame, so only for buses that are loopback.

    Frames that come in meanwhile are discarded.

    Args:
        bus: That `hil.bus.open.is_loopback` says yes to.
        clock: The run's.
        timeout: How long to wait for the answer [s].

    Raises:
        BusError: The bus is down, or an emulator answers that another loop has its drives.
    """
    bus.send(question())
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if _is(frame, REPLY):
            return True
        if _is(frame, REPLY, BUSY):
            raise BusError(f"bus {bus.name}: another loop has the emulated drives (end it, or wait until they are off)")
    return False
