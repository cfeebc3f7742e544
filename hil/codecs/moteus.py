"""What the frames of a moteus mean: registers that are written and read by subframes, little endian, over CAN FD.

A frame holds subframes: `kind << 4 | resolution << 2 | count`, the count (0: a varuint follows), the first register (a
varuint), and for writes and replies the values. Integers count in steps that depend on the register; the smallest
integer means NaN. A frame is filled with 0x50 to a length that CAN FD has.

The mode must come first in a frame: writing it resets the whole command, and a frame without it commands nothing.
Torque is commanded in position mode, because only that mode has a watchdog: position NaN, all gains scaled to 0, and
the torque as feedforward.

Sources: mjbots/moteus, docs/protocol/can.md, registers.md and diagnostic.md; fw/moteus_controller.cc for what a mode
resets.
"""

import struct
from collections.abc import Iterator, Sequence
from math import ceil, nan
from struct import Struct
from typing import NamedTuple

from hil.codecs.field import Field, layout, single_towards_zero

NODES = range(1, 127)
SIZES = (*range(9), 12, 16, 20, 24, 32, 48, 64)
"""Lengths of a CAN FD frame [byte]."""
PADDING = 0x50
REPLY_WANTED = 0x8000
"""Bit of an id by which the sender asks for a reply."""

INT8, INT16, INT32, FLOAT = range(4)
"""Resolutions of a register."""

WRITE, READ, REPLY = 0x00, 0x10, 0x20
WRITE_ERROR, READ_ERROR = 0x30, 0x31
TUNNEL_WRITE, TUNNEL_DATA, TUNNEL_POLL = 0x40, 0x41, 0x42
CHANNEL = 1
"""Channel of the tunnel to the console of the drive."""
MOST_TEXT = 61
"""Most bytes of text in one frame to the console."""
POLLED_TEXT = 48
"""Most bytes of text that a poll asks for."""

MODE, POSITION, VELOCITY, TORQUE = 0x000, 0x001, 0x002, 0x003
HOME_STATE, VOLTAGE, TEMPERATURE, FAULT = 0x00C, 0x00D, 0x00E, 0x00F
COMMAND_POSITION, COMMAND_VELOCITY, FEEDFORWARD_TORQUE, KP_SCALE, KD_SCALE = 0x020, 0x021, 0x022, 0x023, 0x024
MAX_TORQUE, WATCHDOG, ILIMIT_SCALE = 0x025, 0x027, 0x02B
MODEL, FIRMWARE, MAP_VERSION = 0x100, 0x101, 0x102
SERIAL = 0x120
SET_OUTPUT_EXACT = 0x131

STOPPED, IN_FAULT, CURRENT, IN_POSITION, TIMED_OUT, ZERO_VELOCITY, BRAKE = 0, 1, 9, 10, 11, 12, 15
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
LIMITING = {
    96: "servo.max_velocity",
    97: "servo.max_power_W",
    98: "supply voltage",
    99: "servo.max_current_A",
    100: "servo.fault_temperature",
    101: "servo.motor_fault_temperature",
    102: "the commanded maximum torque",
    103: "servopos.position_min or position_max",
}
"""Codes of the fault register in a working mode: what limits the torque."""

_FORMATS = tuple(Struct(f"<{letter}") for letter in "bhif")
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

WATCHDOG_STEP = _TIME_STEPS[INT8]
"""Step of the watchdog time in a torque command [s]."""
LONGEST_WATCHDOG = _MOST[INT8] * WATCHDOG_STEP
MAX_TORQUE_STEP = _TORQUE_STEPS[INT16]
LARGEST_TORQUE = _MOST[INT16] * MAX_TORQUE_STEP
"""Largest torque of a torque command [N m]."""


class MoteusState(NamedTuple):
    """Content of the answer to `QUERY`.

    Attributes:
        mode: Mode, an index of `MODES`.
        position: Position of the output shaft [rev].
        velocity: Its velocity [rev/s].
        torque: Torque at the output shaft [N m].
        fault: Key of `FAULTS` or `LIMITING`; 0: none.
    """

    mode: int
    position: float
    velocity: float
    torque: float
    fault: int


class Registers(NamedTuple):
    """Content of a reply.

    Attributes:
        values: Register -> value, in its unit.
        unknown: Registers that the drive does not know.
    """

    values: dict[int, float]
    unknown: tuple[int, ...]


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
    return _head(WRITE, register, len(values), resolution) + b"".join(map(_FORMATS[resolution].pack, numbers))


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


QUERY = read(MODE, 1, INT8) + read(POSITION, 3, FLOAT) + read(FAULT, 1, INT8)
"""Asks for the content of `MoteusState`. The answer has 20 bytes.

Floats, because a position of 16 bits has steps of 0.6 mrad and ends at 3.3 turns; the answer would have 16 bytes.
"""
IDENTITY = read(MODEL, 3, INT32) + read(SERIAL, 3, INT32)
HOME = read(HOME_STATE, 1, INT8)
IDENTITY_HEAD, ANSWERED_MAP_VERSION = bytes((0x2B, 0x80, 0x02)), Field(11, 4)
"""First bytes of the answer to `IDENTITY`, and the map version in it."""
HOME_HEAD, ANSWERED_HOME = bytes((0x21, HOME_STATE)), Field(2, 1)
"""First bytes of the answer to `HOME`, and the home state in it."""


def mode_command(mode: int) -> bytes:
    """Payload that sets a mode with the defaults of the drive: `STOPPED`, `BRAKE` or `ZERO_VELOCITY`."""
    return padded(write(MODE, [mode], INT8) + QUERY)


def commanded_mode(data: bytes) -> int | None:
    """The mode that a frame of a master writes first, as an integer of any size; None if it writes none."""
    if len(data) < 3 or data[0] & 0xF0 or data[0] & 3 == 0 or data[1] != MODE:
        return None
    resolution = data[0] >> 2 & 3
    if resolution == FLOAT or len(data) < 2 + _FORMATS[resolution].size:
        return None
    return int(_FORMATS[resolution].unpack_from(data, 2)[0])


def query() -> bytes:
    """Payload that asks for the state; it does not feed the watchdog."""
    return padded(QUERY)


_TORQUE_HEAD = write(MODE, [IN_POSITION], INT8) + write(COMMAND_POSITION, [nan], INT8) + b"\x0d\x22"
COMMAND_TORQUE = Field(len(_TORQUE_HEAD), 4, "float")
"""The torque in a torque command."""
TORQUE_BYTES = slice(COMMAND_TORQUE.first, COMMAND_TORQUE.first + COMMAND_TORQUE.size)
"""Where a torque command holds its torque."""


def torque_tail(max_torque: float, watchdog: float) -> bytes:
    """What follows the torque in a torque command: gains of 0, limit, watchdog, query, padding.

    Args:
        max_torque: Largest torque that the drive may make [N m], rounded up to its step.
        watchdog: Time without a command after which the drive stops by itself [s], a multiple of `WATCHDOG_STEP`.

    Raises:
        ValueError: One is out of range.
    """
    steps = round(watchdog / WATCHDOG_STEP)
    if steps < 1:  # 0 would mean servo.default_timeout_s
        raise ValueError(f"a watchdog of {watchdog} s is less than {WATCHDOG_STEP} s")
    limit = ceil(max_torque / MAX_TORQUE_STEP - 1e-9) * MAX_TORQUE_STEP
    tail = (
        write(KP_SCALE, [0.0, 0.0], INT8)
        + write(MAX_TORQUE, [limit], INT16)
        + write(WATCHDOG, [watchdog], INT8)
        + write(ILIMIT_SCALE, [0.0], INT8)
        + QUERY
    )
    return padded(bytes(TORQUE_BYTES.stop) + tail)[TORQUE_BYTES.stop :]


def torque_command(torque: float, tail: bytes) -> bytes:
    """Payload of a torque command, 32 bytes; the torque is rounded towards zero.

    Args:
        torque: Torque at the output shaft [N m].
        tail: The rest of it, by `torque_tail`.

    Raises:
        ValueError: The torque is not finite, or too large.
    """
    if not -LARGEST_TORQUE <= torque <= LARGEST_TORQUE:
        raise ValueError(f"torque {torque} N m is not finite and within +-{LARGEST_TORQUE} N m")
    return _TORQUE_HEAD + single_towards_zero(torque) + tail


def is_torque_command(data: bytes) -> bool:
    """Whether a payload is one of `torque_command`."""
    return data.startswith(_TORQUE_HEAD)


STATE_MODE, STATE_FAULT = Field(2, 1, "signed"), Field(19, 1, "signed")
STATE_POSITION, STATE_VELOCITY, STATE_TORQUE = (Field(first, 4, "float") for first in (5, 9, 13))
STATE_HEADS = {Field(0, 2): 0x0021, Field(3, 2): 0x012F, Field(17, 2): 0x0F21}
"""First bytes of the three subframes in the answer to `QUERY`, as numbers."""

_STATE = layout(*sorted([*STATE_HEADS, STATE_MODE, STATE_POSITION, STATE_VELOCITY, STATE_TORQUE, STATE_FAULT]))
STATE_SIZE = _STATE.size
_HEADS = tuple(STATE_HEADS.values())


def state(data: bytes) -> MoteusState | None:
    """Decodes the answer to `QUERY`; None for any other payload. Position, velocity and torque may be NaN."""
    if len(data) != STATE_SIZE:
        return None
    first, mode, second, position, velocity, torque, third, fault = _STATE.unpack(data)
    if (first, second, third) != _HEADS:
        return None
    return MoteusState(mode, position, velocity, torque, fault)


def registers(data: bytes) -> Registers | None:
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
            (value,) = _FORMATS[resolution].unpack_from(data, at)
            at += _FORMATS[resolution].size
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


def console_write(text: str) -> bytes:
    """Payload that writes text to the console of the drive.

    Raises:
        ValueError: It is longer than `MOST_TEXT` bytes.
    """
    data = text.encode()
    if len(data) > MOST_TEXT:
        raise ValueError(f"{len(data)} bytes of text, at most {MOST_TEXT} fit in a frame")
    return padded(bytes((TUNNEL_WRITE, CHANNEL, len(data))) + data)


def console_poll() -> bytes:
    """Payload that asks for the text that the console has written since the last poll."""
    return bytes((TUNNEL_POLL, CHANNEL, POLLED_TEXT))


CONSOLE_HEAD = bytes((TUNNEL_DATA, CHANNEL))
"""First bytes of the answer to `console_poll`; the length of the text and the text follow."""


def console_text(data: bytes) -> str | None:
    """Decodes the answer to `console_poll`; None for any other payload."""
    if len(data) < 3 or data[:2] != CONSOLE_HEAD or data[2] > len(data) - 3:
        return None
    return data[3 : 3 + data[2]].decode(errors="replace")


def mode_text(mode: int) -> str:
    """A mode with its number."""
    return f"{MODES[mode] if 0 <= mode < len(MODES) else 'unknown'} (mode {mode})"


def fault_text(code: int) -> str:
    """A fault with its number."""
    return f"{FAULTS.get(code, 'unknown fault')} (fault {code})"
