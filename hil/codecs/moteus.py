"""What the frames of a moteus mean: subframes with registers that are written, asked for and answered, little endian.

A subframe is `kind << 4 | resolution << 2 | count`, the count (0: a varuint follows), the first register (a varuint),
and for writes and replies the values. Integers count in steps that depend on the register; the smallest integer means
NaN. A frame is filled with 0x50 to a length that CAN FD has.

The mode must come first in a frame: writing it resets the whole command, and a frame without it commands nothing.
Torque is commanded in position mode, because only that mode has a watchdog: position NaN, all gains scaled to 0, and
the torque as feedforward.

Sources: mjbots/moteus, docs/protocol/can.md, registers.md and diagnostic.md; fw/moteus_controller.cc for what a mode
resets.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil, isfinite, isinf, isnan, nan
from typing import NamedTuple

from hil.codecs.field import Field
from hil.frame import fd_size

PADDING = b"\x50"

INT8, INT16, INT32, FLOAT = range(4)  # resolutions of a register
LETTERS = "bhif"  # of a value in each resolution, as in `struct`

WRITE, READ, REPLY = 0x00, 0x10, 0x20
WRITE_ERROR, READ_ERROR = 0x30, 0x31
TUNNEL_WRITE, TUNNEL_DATA, TUNNEL_POLL = 0x40, 0x41, 0x42
CHANNEL = 1  # channel of the tunnel to the console of the drive

MODE, POSITION, VELOCITY, TORQUE = 0x000, 0x001, 0x002, 0x003
MOTOR_TEMPERATURE, HOME_STATE, VOLTAGE, TEMPERATURE, FAULT = 0x00A, 0x00C, 0x00D, 0x00E, 0x00F
COMMAND_POSITION, COMMAND_VELOCITY, FEEDFORWARD_TORQUE, KP_SCALE, KD_SCALE = 0x020, 0x021, 0x022, 0x023, 0x024
MAX_TORQUE, WATCHDOG, ILIMIT_SCALE, IGNORE_BOUNDS = 0x025, 0x027, 0x02B, 0x02D
MODEL, FIRMWARE, MAP_VERSION = 0x100, 0x101, 0x102
SERIAL = 0x120

_MOST = (127, 32767, 2147483647)

_POSITION_STEPS = (0.01, 0.0001, 0.00001)
_VELOCITY_STEPS = (0.1, 0.00025, 0.00001)
_TORQUE_STEPS = (0.5, 0.01, 0.001)
_TIME_STEPS = (0.01, 0.001, 0.000001)
_QUANTITIES = (
    (_POSITION_STEPS, (0x001, 0x006, 0x020, 0x026, 0x038, 0x03B, 0x040, 0x041, 0x050, 0x052, 0x054, 0x130, 0x131)),
    (_VELOCITY_STEPS, (0x002, 0x01E, 0x021, 0x028, 0x039, 0x03C, 0x051, 0x053, 0x055)),
    ((0.05, 0.001, 0.00001), (0x029,)),  # acceleration
    (_TORQUE_STEPS, (0x003, 0x022, 0x025, *range(0x030, 0x035), 0x03A, 0x03D, 0x042, 0x045)),
    (
        tuple(1.0 / most for most in _MOST),  # shares
        (0x010, 0x011, 0x012, 0x018, 0x023, 0x024, 0x02B, 0x043, 0x044, 0x047, *range(0x060, 0x06D), 0x073, 0x075,
         *range(0x076, 0x080)),
    ),
    (_TIME_STEPS, (0x027, 0x046)),
    ((0.5, 0.1, 0.001), (0x00D, 0x014, 0x015, 0x016, 0x019, 0x01A, 0x01B, 0x02A)),  # voltage
    ((1.0, 0.1, 0.001), (0x00A, 0x00E, 0x004, 0x005, 0x01C, 0x01D, 0x02C)),  # temperature, and current
    ((10.0, 0.05, 0.0001), (0x007,)),  # power
)  # fmt: skip
"""Value of one step in each integer resolution [rev, rev/s, rev/s^2, N m, 1, s, V, degree C and A, W]; registers."""

_STEPS = {register: steps for steps, members in _QUANTITIES for register in members}
"""Register -> value of one step; other registers hold plain integers."""

_PLAIN = (1.0, 1.0, 1.0)

WATCHDOG_STEP = _TIME_STEPS[INT8]  # [s] step of the watchdog time in a torque command
LONGEST_WATCHDOG = _MOST[INT8] * WATCHDOG_STEP
MAX_TORQUE_STEP = _TORQUE_STEPS[INT16]
LARGEST_TORQUE = _MOST[INT16] * MAX_TORQUE_STEP  # [N m] largest torque of a torque command


class Subframe(NamedTuple):
    kind: int  # `WRITE` to `TUNNEL_POLL`
    first: int  # its first register, or the channel of the tunnel
    number: int = 1  # registers that it is about, or bytes that a poll asks for
    resolution: int = 0  # of its values
    values: tuple[float, ...] = ()  # values of these registers, in their units, where it brings them
    text: bytes = b""  # text of the console


def padded(data: bytes) -> bytes:
    """The payload, filled to a length that CAN FD has: at most 64 bytes."""
    return data.ljust(fd_size(len(data)), PADDING)


def write(register: int, values: Sequence[float], resolution: int) -> bytes:
    """Subframe that writes registers from `register` on, rounded to the nearest step; NaN is the smallest integer."""
    for i, value in enumerate(values):
        if isinf(value):
            raise ValueError(f"register 0x{register + i:03X}: {value} is infinite")
    return _with_values(WRITE, register, values, resolution)


def reply(register: int, values: Sequence[float], resolution: int) -> bytes:
    """Subframe that answers with registers from `register` on, each cut off at the largest number; infinite: NaN."""
    if resolution != FLOAT:
        ends = [_MOST[resolution] * _step(number, resolution) for number in range(register, register + len(values))]
        values = [min(end, max(-end, x)) if isfinite(x) else nan for x, end in zip(values, ends, strict=True)]
    return _with_values(REPLY, register, values, resolution)


def error(kind: int, register: int) -> bytes:
    """Subframe that says that a register cannot be written, or read."""
    return bytes((kind,)) + _varuint(register) + _varuint(1)


def tunnelled(kind: int, text: bytes) -> bytes:
    """Subframe with text for the console, or of it."""
    return bytes((kind, CHANNEL)) + _varuint(len(text)) + text


def _with_values(kind: int, register: int, values: Sequence[float], resolution: int) -> bytes:
    numbers = [_raw(register + i, value, resolution) for i, value in enumerate(values)]
    return _head(kind, register, len(values), resolution) + struct.pack(
        f"<{len(numbers)}{LETTERS[resolution]}", *numbers
    )


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


def _step(register: int, resolution: int) -> float:
    return _STEPS.get(register, _PLAIN)[resolution]


def _raw(register: int, value: float, resolution: int) -> float:
    """The number on the wire: an integer of steps, or the value itself as a float."""
    if resolution == FLOAT:
        return value
    most = _MOST[resolution]
    if isnan(value):
        return -most - 1
    steps = value / _step(register, resolution)
    if not -most - 0.5 < steps < most + 0.5:
        raise ValueError(f"register 0x{register:03X}: {value} is out of the range of {8 << resolution} bits")
    return round(steps)


def answered(data: bytes) -> tuple[dict[int, float], str | None] | None:
    """What a reply of any form holds; None if it is cut short, empty, or holds anything else.

    Register -> value, NaN for one that the drive does not know; and the text of its console, None without any.
    """
    values: dict[int, float] = {}
    text = None
    try:
        for part in subframes(data):
            if part.kind == REPLY:
                values |= dict(enumerate(part.values, part.first))
            elif part.kind in (WRITE_ERROR, READ_ERROR):
                values[part.first] = nan
            elif part.kind == TUNNEL_DATA and part.first == CHANNEL:
                text = (text or "") + part.text.decode(errors="replace")
            else:
                return None
    except ValueError:
        return None
    return None if text is None and not values else (values, text)


def subframes(data: bytes) -> Iterator[Subframe]:
    """The subframes of a payload; ValueError where the next one is unknown, or cut short."""
    at = 0
    try:
        while at < len(data):
            if data[at] == PADDING[0]:
                at += 1
                continue
            part, at = _subframe(data, at)
            yield part
    except (IndexError, struct.error) as error:
        raise ValueError(f"the subframe before byte {at} is cut short") from error


def _subframe(data: bytes, at: int) -> tuple[Subframe, int]:
    """The subframe that begins at a byte, and where the bytes after it begin."""
    kind, at = data[at], at + 1
    if kind < WRITE_ERROR:
        count, resolution, kind = kind & 3, kind >> 2 & 3, kind & 0xF0
        if not count:
            count, at = _number(data, at)
        register, at = _number(data, at)
        if kind == READ:
            return Subframe(kind, register, count, resolution), at
        form = f"<{count}{LETTERS[resolution]}"
        raw = struct.unpack_from(form, data, at)
        values = tuple(_value(register + i, value, resolution) for i, value in enumerate(raw))
        return Subframe(kind, register, count, resolution, values), at + struct.calcsize(form)
    if not (kind in (WRITE_ERROR, READ_ERROR) or TUNNEL_WRITE <= kind <= TUNNEL_POLL):
        raise ValueError(f"no subframe begins with 0x{kind:02X}")
    first, at = _number(data, at)
    number, at = _number(data, at)  # why, or how many bytes
    if kind in (WRITE_ERROR, READ_ERROR):
        return Subframe(kind, first), at
    if kind == TUNNEL_POLL:
        return Subframe(kind, first, number), at
    if at + number > len(data):
        raise IndexError
    return Subframe(kind, first, text=data[at : at + number]), at + number


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varuint, and where the bytes after it begin."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1


def _value(register: int, raw: float, resolution: int) -> float:
    if resolution == FLOAT or register not in _STEPS:
        return raw
    return nan if raw == -_MOST[resolution] - 1 else raw * _STEPS[register][resolution]


NODES = range(1, 127)
REPLY_WANTED = 0x8000  # bit of an id by which the sender asks for a reply

MOST_TEXT = 61  # most bytes of text in one frame to the console
POLLED_TEXT = 48  # most bytes of text that a poll asks for

STOPPED, IN_FAULT, IN_POSITION, TIMED_OUT, ZERO_VELOCITY, BRAKE = 0, 1, 10, 11, 12, 15
MODES = (
    "stopped", "fault", "enabling", "calibrating", "calibration complete", "pwm", "voltage", "voltage foc",
    "voltage dq", "current", "position", "timeout", "zero velocity", "stay within", "measure inductance", "brake",
)  # fmt: skip

HOME_STATES = ("relative", "rotor", "output")

FAULTS = {
    32: "calibration: the encoder senses no magnet",
    33: "motor driver",
    34: "over-voltage",
    35: "encoder",
    36: "motor not calibrated",
    37: "pwm cycle overrun",
    38: "over-temperature",
    39: "outside servopos.position_min and position_max",
    40: "under-voltage",
    41: "configuration changed while running",
    42: "no valid commutation encoder",
    43: "no valid output encoder",
    44: "driver cannot be enabled",
    45: "stop position with other limits",
    46: "timing",
    47: "bemf_feedforward without an acceleration limit",
    48: "servopos limits outside the range of positions",
    49: "position error above servo.fault_position_error",
    50: "velocity error above servo.fault_velocity_error",
}
LIMITING = {  # codes of the fault register in a working mode: what limits the torque
    96: "servo.max_velocity",
    97: "servo.max_power_W",
    98: "supply voltage",
    99: "servo.max_current_A",
    100: "servo.fault_temperature",
    101: "servo.motor_fault_temperature",
    102: "the commanded maximum torque",
    103: "servopos.position_min or position_max",
}


def identifier(node: int, source: int = 0, reply: bool = True) -> int:
    """Arbitration id of a frame to a node; ids above 0x7FF are sent with 29 bits."""
    return (REPLY_WANTED if reply else 0) | source << 8 | node


def command_identifiers(node: int, source: int = 0) -> frozenset[int]:
    """Ids by which any master asks or commands a node; of those without a reply, only those of this source."""
    wanted = {identifier(node, each) for each in range(128)}
    return frozenset({*wanted, identifier(node, source, reply=False)})


def reply_identifier(node: int, source: int = 0) -> int:
    """Arbitration id of a node's replies; ids above 0x7FF, those of nodes from 8 on, have 29 bits."""
    return node << 8 | source


QUERY = read(MODE, 1, INT8) + read(POSITION, 3, FLOAT) + read(FAULT, 1, INT8)
"""Asks for mode, position, velocity, torque and fault, and does not feed the watchdog. The answer has 20 bytes.

Floats, because a position of 16 bits has steps of 0.6 mrad and ends at 3.3 turns; the answer would have 16 bytes.
"""
GAUGES = read(VOLTAGE, 2, FLOAT) + read(MOTOR_TEMPERATURE, 1, FLOAT)
"""Asks for supply voltage and both temperatures, as floats: NaN is then NaN in Python and in C. 16 bytes answer it."""
IDENTITY = read(MODEL, 3, INT32) + read(SERIAL, 3, INT32)
HOME = read(HOME_STATE, 1, INT8)


def mode_command(mode: int) -> bytes:
    """Payload that sets a mode with the defaults of the drive: `STOPPED`, `BRAKE` or `ZERO_VELOCITY`."""
    return padded(write(MODE, [mode], INT8) + QUERY)


def commanded_mode(data: bytes) -> int | None:
    """The mode that a frame of a master writes, in any resolution; None if it writes none.

    A drive carries out the subframes before one that it cannot read.
    """
    mode = None
    with suppress(ValueError):
        for part in subframes(data):
            if part.kind == WRITE and part.first == MODE and part.values and isfinite(part.values[0]):
                mode = int(part.values[0])
    return mode


_TORQUE_HEAD = write(MODE, [IN_POSITION], INT8) + write(COMMAND_POSITION, [nan], INT8) + b"\x0d\x22"
COMMAND_TORQUE = Field(len(_TORQUE_HEAD), 4, "float")  # the torque in a torque command


def torque_command(max_torque: float, watchdog: float) -> bytes:
    """Payload of a command of zero torque, 32 bytes: torque, gains of 0, limit, watchdog, query, padding.

    `max_torque`: largest torque that the drive may make [N m], rounded up to its step; `watchdog`: time without a
    command after which the drive stops by itself [s], a multiple of `WATCHDOG_STEP`.
    """
    steps = round(watchdog / WATCHDOG_STEP)
    if steps < 1:  # 0 would mean servo.default_timeout_s
        raise ValueError(f"a watchdog of {watchdog} s is less than {WATCHDOG_STEP} s")
    limit = ceil(max_torque / MAX_TORQUE_STEP - 1e-9) * MAX_TORQUE_STEP
    return padded(
        _TORQUE_HEAD
        + bytes(COMMAND_TORQUE.size)
        + write(KP_SCALE, [0.0, 0.0], INT8)
        + write(MAX_TORQUE, [limit], INT16)
        + write(WATCHDOG, [watchdog], INT8)
        + write(ILIMIT_SCALE, [0.0], INT8)
        + QUERY
    )


STATE_MODE, STATE_FAULT = Field(2, 1, "signed"), Field(19, 1, "signed")
STATE_POSITION, STATE_VELOCITY, STATE_TORQUE = (Field(first, 4, "float") for first in (5, 9, 13))
STATE_HEADS = {Field(0, 2): 0x0021, Field(3, 2): 0x012F, Field(17, 2): 0x0F21}
"""First bytes of the three subframes in the answer to `QUERY`, as numbers."""

STATE_SIZE = 20

GAUGE_VOLTAGE, GAUGE_TEMPERATURE, GAUGE_MOTOR = (Field(first, 4, "float") for first in (2, 6, 12))
GAUGE_HEADS = {Field(0, 2): 0x0D2E, Field(10, 2): 0x0A2D}
"""First bytes of the two subframes in the answer to `GAUGES`, as numbers."""
GAUGE_SIZE = 16


def console_write(text: str) -> bytes:
    """Payload that writes text to the console of the drive, at most `MOST_TEXT` bytes."""
    data = text.encode()
    if len(data) > MOST_TEXT:
        raise ValueError(f"{len(data)} bytes of text, at most {MOST_TEXT} fit in a frame")
    return padded(tunnelled(TUNNEL_WRITE, data))


CONSOLE_POLL = bytes((TUNNEL_POLL, CHANNEL, POLLED_TEXT))
"""Asks for the text that the console has written since the last poll."""


def mode_text(mode: int) -> str:
    return f"{MODES[mode] if 0 <= mode < len(MODES) else 'unknown'} (mode {mode})"


def fault_text(code: int) -> str:
    return f"{FAULTS.get(code, 'unknown fault')} (fault {code})"
