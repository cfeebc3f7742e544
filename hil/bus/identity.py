"""How emulated drives on a loopback bus are told from real ones: they answer one frame that no drive uses."""

from hil.bus.base import Bus
from hil.frame import Frame
from servoctl.loop.clock import Clock, nanoseconds

REQUEST = 0x1FFF5E50
"""Id of the question, 29 bits."""

REPLY = 0x1FFF5E51
"""Id of the answer, 29 bits."""

VERSION = 1
PAYLOAD = b"servoctl"[:7] + bytes([VERSION])
"""Of both frames: changes with what host and emulator must agree on."""


def question() -> Frame:
    """The frame that asks whether an emulator is there."""
    return Frame(REQUEST, PAYLOAD, extended=True)


def answer(frame: Frame) -> Frame | None:
    """What an emulator says to a frame; None where it was not asked."""
    asked = frame.extended and not frame.remote and frame.id == REQUEST and frame.data == PAYLOAD
    return Frame(REPLY, PAYLOAD, extended=True) if asked else None


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version is on a bus; sends one frame, so only for buses that are loopback.

    Frames that come in meanwhile are discarded.

    Args:
        bus: That `hil.bus.open.is_loopback` says yes to.
        clock: The run's.
        timeout: How long to wait for the answer [s].

    Raises:
        BusError: The bus is down.
    """
    bus.send(question())
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if frame.extended and not frame.remote and frame.id == REPLY and frame.data == PAYLOAD:
            return True
    return False
