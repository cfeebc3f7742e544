"""The subframes of a moteus: registers that are written, asked for and answered, little endian.

A subframe is `kind << 4 | resolution << 2 | count`, the count (0: a varuint follows), the first register (a varuint),
and for writes and replies the values. Integers count in steps that depend on the register; the smallest integer means
NaN. A frame is filled with 0x50 to a length that CAN FD has.

Sources: mjbots/moteus, docs/protocol/can.md and registers.md.
"""

import struct
from collections.abc import Iterator, Sequence
from math import nan
from struct import Struct
from typing import NamedTuple

SIZES = (*range(9), 12, 16, 20, 24, 32, 48, 64)  # [byte] lengths of a CAN FD frame
PADDING = 0x50

INT8, INT16, INT32, FLOAT = range(4)  # resolutions of a register

WRITE, READ, REPLY = 0x00, 0x10, 0x20
WRITE_ERROR, READ_ERROR = 0x30, 0x31

MODE, POSITION, VELOCITY, TORQUE = 0x000, 0x001, 0x002, 0x003
MOTOR_TEMPERATURE, HOME_STATE, VOLTAGE, TEMPERATURE, FAULT = 0x00A, 0x00C, 0x00D, 0x00E, 0x00F
COMMAND_POSITION, COMMAND_VELOCITY, FEEDFORWARD_TORQUE, KP_SCALE, KD_SCALE = 0x020, 0x021, 0x022, 0x023, 0x024
MAX_TORQUE, WATCHDOG, ILIMIT_SCALE = 0x025, 0x027, 0x02B
MODEL, FIRMWARE, MAP_VERSION = 0x100, 0x101, 0x102
SERIAL = 0x120
SET_OUTPUT_EXACT = 0x131

FORMATS = tuple(Struct(f"<{letter}") for letter in "bhif")  # of a value in each resolution
_MOST = (127, 32767, 2147483647)
_PWM = tuple(1.0 / most for most in _MOST)

_POSITION_STEPS = (0.01, 0.0001, 0.00001)
_VELOCITY_STEPS = (0.1, 0.00025, 0.00001)
_TORQUE_STEPS = (0.5, 0.01, 0.001)
_TIME_STEPS = (0.01, 0.001, 0.000001)
_STEPS = {
    POSITION: _POSITION_STEPS, COMMAND_POSITION: _POSITION_STEPS, SET_OUTPUT_EXACT: _POSITION_STEPS,
    VELOCITY: _VELOCITY_STEPS, COMMAND_VELOCITY: _VELOCITY_STEPS,
    TORQUE: _TORQUE_STEPS, FEEDFORWARD_TORQUE: _TORQUE_STEPS, MAX_TORQUE: _TORQUE_STEPS,
    KP_SCALE: _PWM, KD_SCALE: _PWM, ILIMIT_SCALE: _PWM, WATCHDOG: _TIME_STEPS,
    VOLTAGE: (0.5, 0.1, 0.001), TEMPERATURE: (1.0, 0.1, 0.001),
}  # fmt: skip
"""Register -> value of one step in each integer resolution; other registers hold plain integers."""

_PLAIN = (1.0, 1.0, 1.0)

WATCHDOG_STEP = _TIME_STEPS[INT8]  # [s] step of the watchdog time in a torque command
LONGEST_WATCHDOG = _MOST[INT8] * WATCHDOG_STEP
MAX_TORQUE_STEP = _TORQUE_STEPS[INT16]
LARGEST_TORQUE = _MOST[INT16] * MAX_TORQUE_STEP  # [N m] largest torque of a torque command


class Registers(NamedTuple):
    """Content of a reply."""

    values: dict[int, float]  # register -> value, in its unit
    unknown: tuple[int, ...]  # registers that the drive does not know


def padded(data: bytes) -> bytes:
    """The payload, filled to a length that CAN FD has.

    Raises:
        ValueError: It is longer than 64 bytes.
    """
    for size in SIZES:
        if len(data) <= size:
            return data.ljust(size, bytes((PADDING,)))
    raise ValueError(f"{len(data)} bytes do not fit in a CAN FD frame, which has at most {SIZES[-1]}")


def write(register: int, values: Sequence[float], resolution: int) -> bytes:
    """Subframe that writes registers from `register` on, each rounded to the nearest step.

    NaN is the smallest integer.

    Raises:
        ValueError: A value is infinite, or out of the range of the resolution.
    """
    numbers = [_raw(register + i, value, resolution) for i, value in enumerate(values)]
    return _head(WRITE, register, len(values), resolution) + b"".join(map(FORMATS[resolution].pack, numbers))


def read(register: int, count: int, resolution: int) -> bytes:
    """Subframe that asks for `count` registers from `register` on."""
    return _head(READ, register, count, resolution)


def _head(kind: int, register: int, count: int, resolution: int) -> bytes:
    first = kind | resolution << 2
    return (bytes((first | count,)) if 1 <= count <= 3 else bytes((first,)) + _varuint(count)) + _varuint(register)


def _varuint(number: int) -> bytes:
    """Seven bits in each byte, the lowest first; the top bit says that another byte follows."""
    parts = []
    while number > 0x7F:
        parts.append(0x80 | number & 0x7F)
        number >>= 7
    return bytes((*parts, number))


def _raw(register: int, value: float, resolution: int) -> float:
    """The number on the wire: an integer of steps, or the value itself as a float."""
    if resolution == FLOAT:
        if abs(value) == float("inf"):
            raise ValueError(f"register 0x{register:03X}: {value} is infinite")
        return value
    most = _MOST[resolution]
    if value != value:
        return -most - 1
    steps = value / _STEPS.get(register, _PLAIN)[resolution]
    if not -most - 0.5 < steps < most + 0.5:
        raise ValueError(f"register 0x{register:03X}: {value} is out of the range of {8 << resolution} bits")
    return round(steps)


def answered(data: bytes) -> Registers | None:
    """Decodes the registers in a reply of any form; None if it is cut short or holds anything else."""
    values: dict[int, float] = {}
    unknown = []
    try:
        for register, value in _answers(data):
            if value is None:
                unknown.append(register)
            else:
                values[register] = value
    except (IndexError, ValueError, struct.error):
        return None
    return Registers(values, tuple(unknown))


def _answers(data: bytes) -> Iterator[tuple[int, float | None]]:
    """Each register in a reply and its value; None: the drive does not know the register."""
    at = 0
    while at < len(data):
        first = data[at]
        at += 1
        if first == PADDING:
            continue
        if first in (WRITE_ERROR, READ_ERROR):
            register, at = _number(data, at)
            _, at = _number(data, at)  # why
            yield register, None
            continue
        if first & 0xF0 != REPLY:
            raise ValueError(f"no subframe of a reply begins with 0x{first:02X}")
        count, resolution = first & 3, first >> 2 & 3
        if not count:
            count, at = _number(data, at)
        register, at = _number(data, at)
        for i in range(count):
            (value,) = FORMATS[resolution].unpack_from(data, at)
            at += FORMATS[resolution].size
            yield register + i, _value(register + i, value, resolution)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varuint, and where the bytes after it begin."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1


def _value(register: int, raw: float, resolution: int) -> float:
    if resolution == FLOAT:
        return raw
    steps = _STEPS.get(register)
    if steps is None:
        return raw
    return nan if raw == -_MOST[resolution] - 1 else raw * steps[resolution]
