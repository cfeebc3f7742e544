"""Frames of registers as an emulated moteus reads and writes them: the multiplex protocol of its maker.

Source: mjbots/moteus, docs/protocol/can.md and registers.md.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from hil.frame import fd_size

NOTHING = b"\x50"

_LETTERS = "bhif"  # letters of `struct`, by resolution
_FORMS = tuple(struct.Struct("<" + letter) for letter in _LETTERS)

_MOST = (0x7F, 0x7FFF, 0x7FFF_FFFF)

_PER_UNIT = {
    "position": (100, 10_000, 100_000),
    "velocity": (10, 4_000, 100_000),
    "acceleration": (20, 1_000, 100_000),
    "torque": (2, 100, 1_000),
    "share": (127, 32_767, 2_147_483_647),
    "time": (100, 1_000, 1_000_000),
    "voltage": (2, 10, 1_000),
    "temperature": (1, 10, 1_000),
    "current": (1, 10, 1_000),
    "power": (0.1, 20, 10_000),
}
"""Quantity -> steps per unit, by resolution: rev, rev/s, rev/s^2, N m, 1, s, V, degree C, A, W."""

_QUANTITIES = {
    "position": [0x001, 0x006, 0x020, 0x026, 0x038, 0x03B, 0x040, 0x041, 0x050, 0x052, 0x054, 0x130, 0x131],
    "velocity": [0x002, 0x01E, 0x021, 0x028, 0x039, 0x03C, 0x051, 0x053, 0x055],
    "acceleration": [0x029],
    "torque": [0x003, 0x022, 0x025, *range(0x030, 0x035), 0x03A, 0x03D, 0x042, 0x045],
    "share": [0x010, 0x011, 0x012, 0x018, 0x023, 0x024, 0x02B, 0x043, 0x044, 0x047, *range(0x060, 0x06D), 0x073, 0x075,
              *range(0x076, 0x080)],
    "time": [0x027, 0x046],
    "voltage": [0x00D, 0x014, 0x015, 0x016, 0x019, 0x01A, 0x01B, 0x02A],
    "temperature": [0x00A, 0x00E],
    "current": [0x004, 0x005, 0x01C, 0x01D, 0x02C],
    "power": [0x007],
}  # fmt: skip
_STEPS = {register: _PER_UNIT[quantity] for quantity, members in _QUANTITIES.items() for register in members}


class RegisterWrite(NamedTuple):
    """A register that is written, with its value in its unit."""

    register: int
    value: float


class RegisterRead(NamedTuple):
    """Registers that are asked for."""

    register: int
    number: int
    resolution: int


class ConsoleText(NamedTuple):
    """Text for the console."""

    channel: int
    text: bytes


class ConsolePoll(NamedTuple):
    """A request for text of the console."""

    channel: int
    most: int


Subframe = RegisterWrite | RegisterRead | ConsoleText | ConsolePoll


def subframes(data: bytes) -> Sequence[Subframe]:
    """The subframes of a payload; those after an unknown one, or after one that is cut short, are left out."""
    only_asks = data[:1] >= b"\x10"  # the same questions come again and again
    return _remembered(data) if only_asks else tuple(_subframes(data))


def _subframes(data: bytes) -> Iterator[Subframe]:
    at, end = 0, len(data)
    try:
        while at < end:
            first = data[at]
            at += 1
            if first == NOTHING[0]:
                continue
            if first < 0x20:
                resolution, count = first >> 2 & 3, first & 3
                if not count:
                    count, at = _varuint_at(data, at)
                register, at = _varuint_at(data, at)
                if first >= 0x10:
                    yield RegisterRead(register, count, resolution)
                    continue
                form = _FORMS[resolution]
                for each in range(register, register + count):
                    (raw,) = form.unpack_from(data, at)
                    at += form.size
                    yield RegisterWrite(each, value_of(each, raw, resolution))
            elif first in (0x40, 0x42):
                channel, at = _varuint_at(data, at)
                size, at = _varuint_at(data, at)
                if first == 0x42:
                    yield ConsolePoll(channel, size)
                    continue
                if at + size > end:
                    return
                yield ConsoleText(channel, data[at : at + size])
                at += size
            else:
                return
    except (IndexError, struct.error):  # it is cut short
        return


_remembered = lru_cache(maxsize=256)(lambda data: tuple(_subframes(data)))


def _varuint_at(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and the place after it."""
    number = place = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << place
        if byte < 128:
            return number, at
        place += 7


def value_of(register: int, raw: float, resolution: int) -> float:
    """Value of a register [its unit] for a number on the wire."""
    if resolution == 3 or register not in _STEPS:
        return raw
    return math.nan if raw < -_MOST[resolution] else raw / _STEPS[register][resolution]


def reply(register: int, values: list[float], resolution: int) -> bytes:
    """Subframe that answers with the values of registers [their units], each cut off at the largest number."""
    count = len(values)
    first = 0x20 + 4 * resolution
    head = bytes([first + count]) if count < 4 else bytes([first]) + varuint(count)
    raw = (
        values
        if resolution == 3
        else [_raw(number, value, resolution) for number, value in enumerate(values, register)]
    )
    return head + varuint(register) + struct.pack(f"<{count}{_LETTERS[resolution]}", *raw)


def _raw(register: int, value: float, resolution: int) -> int:
    most = _MOST[resolution]
    if register not in _STEPS:
        return min(most, max(-most - 1, int(value)))
    if not math.isfinite(value):
        return -most - 1
    return min(most, max(-most, int(value * _STEPS[register][resolution])))


def read_error(register: int, code: int = 1) -> bytes:
    """Subframe that says that a register cannot be read."""
    return b"\x31" + varuint(register) + varuint(code)


def write_error(register: int, code: int = 1) -> bytes:
    """Subframe that says that a register cannot be written."""
    return b"\x30" + varuint(register) + varuint(code)


def console_data(channel: int, text: bytes) -> bytes:
    """Subframe with text of the console."""
    return b"\x41" + varuint(channel) + varuint(len(text)) + text


def varuint(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    if number < 128:
        return bytes([number])
    return bytes([number % 128 + 128]) + varuint(number // 128)


def filled(data: bytes) -> bytes:
    """A payload with fill bytes up to a length that CAN FD has."""
    return data.ljust(fd_size(len(data)), NOTHING)
