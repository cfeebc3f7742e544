"""How a loop recognises emulated drives on a loopback bus: they answer a frame that no real drive uses.

Design: frames with ids of 29 bits. The loop asks, an emulator answers whether it is free, and the loop tells it when
the task begins, because scripted faults may be timed from there. After a run with old samples the loop asks how late
the emulator was; before a calibration it asks for a hand, which moves the machine from the beginning of the task on.
None of these frames is sent on a real bus.
"""

from hil.bus.base import Bus, BusError
from hil.frame import Frame
from hil.loop.clock import Clock, nanoseconds

REQUEST = 0x1FFF5E50  # id of the question, 29 bits
REPLY = 0x1FFF5E51  # id of the answer, 29 bits
BEGINNING = 0x1FFF5E52  # id of the frame that announces the start of the task, 29 bits
LATENESS_REQUEST = 0x1FFF5E53  # id of the question how late the emulator was, 29 bits
LATENESS = 0x1FFF5E54  # id of the answer: the largest lateness in microseconds, an unsigned integer of 64 bits, 29 bits
HAND = 0x1FFF5E55  # id of the frame that asks for a hand: its time in microseconds, as in `LATENESS`, 29 bits

VERSION = 2
PAYLOAD = b"servoctl"[:7] + bytes([VERSION])
"""Payload of the frames without a number; its version changes with what loop and emulator must agree on."""
BUSY = PAYLOAD[:7] + bytes([0x80 | VERSION])  # payload of the answer while another loop uses the drives


QUESTION = Frame(REQUEST, PAYLOAD, extended=True)  # asks for an emulator of this version
FREE, TAKEN = Frame(REPLY, PAYLOAD, extended=True), Frame(REPLY, BUSY, extended=True)
"""Answers of an emulator that is free, or busy with another loop."""
START = Frame(BEGINNING, PAYLOAD, extended=True)  # announces the start of the task
LATENESS_QUESTION = Frame(LATENESS_REQUEST, PAYLOAD, extended=True)
"""Asks how late the emulator was since it powered its drives on."""


def same(frame: Frame, other: Frame) -> bool:
    """Whether a frame that was received is one of those above."""
    return frame.extended and not frame.remote and (frame.id, frame.data) == (other.id, other.data)


def lateness_answer(lateness: int) -> Frame:
    """The largest lateness of the emulator [ns]."""
    return Frame(LATENESS, (lateness // 1000).to_bytes(8, "little"), extended=True)


def hand(duration: float) -> Frame:
    """The frame that asks for a hand that moves the machine for a time [s]."""
    return Frame(HAND, round(1e6 * duration).to_bytes(8, "little"), extended=True)


def hand_time(frame: Frame) -> float | None:
    """The time for which a hand is asked for [s]; None for another frame."""
    return _microseconds(frame, HAND)


def _microseconds(frame: Frame, identity: int) -> float | None:
    fits = frame.extended and not frame.remote and frame.id == identity and len(frame.data) == 8
    return int.from_bytes(frame.data, "little") / 1e6 if fits else None


def emulator_lateness(bus: Bus, clock: Clock, timeout: float) -> float | None:
    """The largest lateness of the emulator on a loopback bus [s]; None if it does not answer in time [s].

    Raises:
        BusError: The bus is down.
    """
    bus.send(LATENESS_QUESTION)
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if (lateness := _microseconds(frame, LATENESS)) is not None:
            return lateness
    return None


def answers_as_emulator(bus: Bus, clock: Clock, timeout: float) -> bool:
    """Whether an emulator of this version is on a bus.

    It sends one frame and discards what comes before the answer.

    Args:
        bus: A loopback bus (`hil.bus.open.is_loopback`): nothing may be sent to real drives before they are checked.
        timeout: Longest time to wait for the answer [s].

    Raises:
        BusError: The bus is down, or another loop uses the emulated drives.
    """
    bus.send(QUESTION)
    until = clock.now() + nanoseconds(timeout)
    while (frame := bus.receive(until)) is not None:
        if same(frame, FREE):
            return True
        if same(frame, TAKEN):
            raise BusError(f"bus {bus.name}: another loop has the emulated drives (end it, or wait until they are off)")
    return False
