"""What the frames of MIT drives mean: mini-cheetah's motor driver and its descendants (CubeMars AK, RobStride, Damiao).

Command, eight bytes, big-endian bits: position 16, velocity 12, kp 12, kd 12, torque 12. The motor makes the torque
kp (position - measured position) + kd (velocity - measured velocity) + torque. Reply: id of the motor 8, position 16,
velocity 12, torque 12, then two bytes that differ by maker. Each number is linear over a range, which is not in the
frame but in the data sheet of the motor.

Sources: mini-cheetah-tmotor-python-can (canmotorlib.py), TMotorCANControl (mit_can.py), the manual of CubeMars' AK80-64
(V1.0.8), RobStride's extract of the RS00 specification, DAMIAO_Control_Arduino for the codes of Damiao.
"""

from math import ceil, floor
from typing import NamedTuple

from hil.codecs.field import Field

ENABLE, DISABLE, CLEAR_FAULT = 0xFC, 0xFD, 0xFB

_SPECIAL = b"\xff" * 7
_NO_MOTION = bytes.fromhex("7fff7ff000")
"""First five bytes of a torque command: position and velocity 0 (half a step below), kp = 0."""

COMMAND_TORQUE = Field(6, 2, big=True, bits=12)  # the torque in a command
FIRST = Field(0, 1)
POSITION = Field(1, 2, big=True)
VELOCITY = Field(3, 2, big=True, shift=4)
TORQUE = Field(4, 2, big=True, bits=12)
ERROR = Field(7, 1)  # the fault in a reply of CubeMars
TEMPERATURE = Field(6, 1, "signed")  # [degree C] temperature in a reply of CubeMars
ELECTRONICS, ROTOR = Field(6, 1), Field(7, 1)
"""Temperatures of the electronics and of the rotor in a reply of Damiao [degree C]."""
SIZES = (6, 8)  # bytes of a reply

MOST_12 = 0xFFF
MOST_16 = 0xFFFF

_position, _velocity, _torque = POSITION.reader(), VELOCITY.reader(), TORQUE.reader()

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
    """Largest values in the frames of a motor: position, velocity and torque are symmetric, gains start at 0."""

    position: float  # [rad] position
    velocity: float  # [rad/s] velocity
    torque: float  # [N m] torque
    kp: float  # [N m/rad] stiffness
    kd: float  # [N m s/rad] damping


class Reply(NamedTuple):
    """Content of a reply."""

    first: int  # first byte: the id of the motor; for Damiao its upper four bits are the status
    position: float  # [rad] position
    velocity: float  # [rad/s] velocity
    torque: float  # [N m] torque
    rest: bytes  # the bytes that differ by maker: none or two


def special(code: int) -> bytes:
    """Payload of a special command: `ENABLE`, `DISABLE` or `CLEAR_FAULT`."""
    return _SPECIAL + bytes((code,))


def number_of(bits: int, largest: float, most: int) -> float:
    """The number from `-largest` to `largest` that an integer up to `most` stands for."""
    return bits * (2 * largest) / most - largest


def is_special(data: bytes) -> bool:
    """Whether a payload is a special command rather than a command of motion."""
    return data[:6] == _SPECIAL[:6] and data[7:] in (bytes((ENABLE,)), bytes((DISABLE,)), bytes((CLEAR_FAULT,)))


def torque_command(ranges: Ranges, torque: float, damping: float = 0.0) -> bytes:
    """Payload of a command of torque, rounded towards zero, and of damping, kd, with velocity zero.

    Position, velocity and kp are 0, so it never looks like a special command, which starts with six bytes FF.
    Zero lies between the steps 2047 and 2048 of the 12 bits; it is sent as 2047, half a step below zero.

    Raises:
        ValueError: The torque is not finite, or out of range.
    """
    bits = torque_bits(ranges.torque, torque, MOST_12) | gain_bits(ranges.kd, damping, MOST_12) << 12
    return _NO_MOTION + bits.to_bytes(3, "big")


def gain_bits(largest: float, gain: float, most: int) -> int:
    """A gain from 0 to `largest` as an integer up to `most`, rounded down; larger gains are cut off."""
    return int(min(gain, largest) * most / largest) if largest else 0


def carried(ranges: Ranges, torque: float) -> float:
    """The torque in the frame that commands this one [N m]; raises as `torque_command`."""
    return number_of(torque_bits(ranges.torque, torque, MOST_12), ranges.torque, MOST_12)


def torque_bits(largest: float, torque: float, most: int) -> int:
    """A torque from `-largest` to `largest` [N m] as an integer up to `most`, rounded towards zero.

    Zero lies between two integers, and is sent as the lower one.

    Raises:
        ValueError: The torque is not finite, or out of range.
    """
    if not -largest <= torque <= largest:
        raise ValueError(f"torque {torque} N m is not finite and within +-{largest} N m")
    step, middle = (torque + largest) * most / (2 * largest), most >> 1
    return max(floor(step), middle + 1) if torque > 0 else min(ceil(step), middle)


def reply(data: bytes, ranges: Ranges) -> Reply | None:
    """Decodes a reply of six or eight bytes."""
    if len(data) not in SIZES:
        return None
    return Reply(
        data[0],
        number_of(_position(data), ranges.position, MOST_16),
        number_of(_velocity(data), ranges.velocity, MOST_12),
        number_of(_torque(data), ranges.torque, MOST_12),
        data[6:],
    )
