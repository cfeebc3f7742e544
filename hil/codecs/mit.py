"""What the frames of MIT drives mean: mini-cheetah's motor driver and its descendants (CubeMars AK, RobStride, Damiao).

Command, eight bytes, big-endian bits: position 16, velocity 12, kp 12, kd 12, torque 12. The motor makes the torque
kp (position - measured position) + kd (velocity - measured velocity) + torque. Reply: id of the motor 8, position 16,
velocity 12, torque 12, then two bytes that differ by maker. Each number is linear over a range, which is not in the
frame but in the data sheet of the motor.

Sources: mini-cheetah-tmotor-python-can (canmotorlib.py), TMotorCANControl (mit_can.py), the manual of CubeMars' AK80-64
(V1.0.8), RobStride's extract of the RS00 specification, DAMIAO_Control_Arduino for the codes of Damiao.
"""

from math import ceil, floor
from struct import Struct
from typing import NamedTuple

ENABLE, DISABLE, CLEAR_FAULT = 0xFC, 0xFD, 0xFB

_SPECIAL = b"\xff" * 7
_NO_MOTION = bytes.fromhex("7fff7ff00000")
"""First six bytes of a torque command: position and velocity 0 (half a step below), kp = kd = 0; torque bits 0."""

_TORQUE = Struct(">H")
MOST_12 = 0xFFF
MOST_16 = 0xFFFF

CUBEMARS_FAULTS = {
    1: "over-temperature",
    2: "over-current",
    3: "over-voltage",
    4: "under-voltage",
    5: "encoder",
    6: "phase current unbalanced",
}

DAMIAO_DISABLED, DAMIAO_ENABLED, DAMIAO_LOST = 0x0, 0x1, 0xD
DAMIAO_FAULTS = {
    0x5: "sensor",
    0x6: "parameter",
    0x8: "over-voltage",
    0x9: "under-voltage",
    0xA: "over-current",
    0xB: "electronics over-temperature",
    0xC: "winding over-temperature",
    DAMIAO_LOST: "communication lost",
    0xE: "overload",
}


class Ranges(NamedTuple):
    """Largest values in the frames of a motor: position, velocity and torque are symmetric, gains start at 0.

    Attributes:
        position: Position [rad].
        velocity: Velocity [rad/s].
        torque: Torque [N m].
        kp: Stiffness [N m/rad].
        kd: Damping [N m s/rad].
    """

    position: float
    velocity: float
    torque: float
    kp: float
    kd: float


class Reply(NamedTuple):
    """Content of a reply.

    Attributes:
        first: First byte: the id of the motor; for Damiao its upper four bits are the status.
        position: Position [rad].
        velocity: Velocity [rad/s].
        torque: Torque [N m].
        rest: The bytes that differ by maker: none or two.
    """

    first: int
    position: float
    velocity: float
    torque: float
    rest: bytes


def special(code: int) -> bytes:
    """Payload of a special command: `ENABLE`, `DISABLE` or `CLEAR_FAULT`."""
    return _SPECIAL + bytes((code,))


def _value(bits: int, low: float, high: float, most: int) -> float:
    return low + bits * (high - low) / most


def is_special(data: bytes) -> bool:
    """Whether a payload is a special command rather than a command of motion."""
    return data[:6] == _SPECIAL[:6] and data[7:] in (bytes((ENABLE,)), bytes((DISABLE,)), bytes((CLEAR_FAULT,)))


def torque_command(ranges: Ranges, torque: float) -> bytes:
    """Payload of a command of torque alone, rounded towards zero.

    Position, velocity and gains are 0, so it never looks like a special command, which starts with six bytes FF.
    Zero lies between the steps 2047 and 2048 of the 12 bits; it is sent as 2047, half a step below zero.

    Raises:
        ValueError: The torque is not finite, or out of range.
    """
    return _NO_MOTION + _TORQUE.pack(_torque_bits(ranges, torque))


def carried(ranges: Ranges, torque: float) -> float:
    """The torque in the frame that commands this one [N m]; raises as `torque_command`."""
    return _value(_torque_bits(ranges, torque), -ranges.torque, ranges.torque, MOST_12)


def _torque_bits(ranges: Ranges, torque: float) -> int:
    largest = ranges.torque
    if not -largest <= torque <= largest:
        raise ValueError(f"torque {torque} N m is not finite and within +-{largest} N m")
    step = (torque + largest) * MOST_12 / (2 * largest)
    return max(floor(step), 2048) if torque > 0 else min(ceil(step), 2047)


def reply(data: bytes, ranges: Ranges) -> Reply | None:
    """Decodes a reply of six or eight bytes."""
    if len(data) not in (6, 8):
        return None
    return Reply(
        data[0],
        _value(data[1] << 8 | data[2], -ranges.position, ranges.position, MOST_16),
        _value(data[3] << 4 | data[4] >> 4, -ranges.velocity, ranges.velocity, MOST_12),
        _value((data[4] & 0xF) << 8 | data[5], -ranges.torque, ranges.torque, MOST_12),
        data[6:],
    )
