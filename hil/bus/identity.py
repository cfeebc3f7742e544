"""How a loop recognises emulated drives on a loopback bus: they answer a frame that no real drive uses.

Design: three frames with ids of 29 bits. The loop asks, an emulator answers whether it is free, and the loop tells it
when the task begins, because scripted faults may be timed from there. None of them is sent on a real bus.
"""

from hil.bus.base import Bus, BusError
from hil.frame import Frame
from hil.loop.clock import Clock, nanoseconds

REQUEST = 0x1FFF5E50
"""Id of the question, 29 bits."""

REPLY = 0x1FFF5E51
"""Id of the answer, 29 bits."""

BEGINNING = 0x1FFF5E52
"""Id of the frame that announces the start of the task, 29 bits."""

VERSION = 2
PAYLOAD = b"servoctl"[:7] + bytes([VERSION])
"""Payload of all three frames; its version changes with what loop and emulator must agree on."""
BUSY = PAYLOAD[:7] + bytes([0x80 | VERSION])
"""Payload of the answer while another loop uses the drives."""


def question() -> Frame:
    """The frame that asks for an emulator."""
    return Frame(REQUEST, PAYLOAD, extended=True)


def is_question(frame: Frame) -> bool:
    """Whether a frame asks for an emulator of this version."""
    return _is(frame, REQUEST)


def answer(busy: bool) -> Frame:
    """The answer of an emulator that is busy with another loop, or free."""
    return Frame(REPLY, BUSY if busy else PAYLOAD, extended=True)


def beginning() -> Frame:
    """The frame that announces the start of the task."""
    return Frame(BEGINNING, PAYLOAD, extended=True)


def is_beginning(frame: Frame) -> bool:
    """Whether a frame announces the start of the task."""
    return _is(frame, BEGINNING)


def _is(frame: Frame, identity: int, payload: bytes = PAYLOAD) -> bool:
    return frame.extended and not frame.remote and frame.id == identity and frame.data == payload


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version is on a bus.

    It sends one frame and discards what comes before the answer.

    Args:
        bus: A loopback bus (`hil.bus.open.is_loopback`): nothing may be sent to real drives before they are checked.
        clock: The run's clock.
        timeout: Longest time to wait for the answer [s].

    Raises:
        BusError: The bus is down, or another loop uses the emulated drives.
    """
    bus.send(question())
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if _is(frame, REPLY):
            return True
        if _is(frame, REPLY, BUSY):
            raise BusError(f"bus {bus.name}: another loop has the emulated drives (end it, or wait until they are off)")
    return False
