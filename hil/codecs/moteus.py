"""What the frames of a moteus mean: the messages that are sent and answered over CAN FD, made of registers.

The mode must come first in a frame: writing it resets the whole command, and a frame without it commands nothing.
Torque is commanded in position mode, because only that mode has a watchdog: position NaN, all gains scaled to 0, and
the torque as feedforward.

Sources: mjbots/moteus, docs/protocol/diagnostic.md; fw/moteus_controller.cc for what a mode resets.
"""

from math import ceil, nan
from struct import calcsize, unpack_from

from hil.codecs.field import Field
from hil.codecs.moteus_registers import (
    CHANNEL,
    COMMAND_POSITION,
    FAULT,
    FLOAT,
    HOME_STATE,
    ILIMIT_SCALE,
    INT8,
    INT16,
    INT32,
    KP_SCALE,
    LETTERS,
    MAX_TORQUE,
    MAX_TORQUE_STEP,
    MODE,
    MODEL,
    MOTOR_TEMPERATURE,
    POSITION,
    SERIAL,
    TUNNEL_DATA,
    TUNNEL_POLL,
    TUNNEL_WRITE,
    VOLTAGE,
    WATCHDOG,
    WATCHDOG_STEP,
    padded,
    read,
    tunnelled,
    write,
)

NODES = range(1, 127)
REPLY_WANTED = 0x8000  # bit of an id by which the sender asks for a reply

MOST_TEXT = 61  # most bytes of text in one frame to the console
POLLED_TEXT = 48  # most bytes of text that a poll asks for

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
"""Asks for mode, position, velocity, torque and fault. The answer has 20 bytes.

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
    """The mode that a frame of a master writes first, as an integer of any size; None if it writes none."""
    if len(data) < 3 or data[0] & 0xF0 or data[0] & 3 == 0 or data[1] != MODE:
        return None
    resolution = data[0] >> 2 & 3
    if resolution == FLOAT or len(data) < 2 + calcsize(LETTERS[resolution]):
        return None
    return int(unpack_from(f"<{LETTERS[resolution]}", data, 2)[0])


def query() -> bytes:
    """Payload that asks for the state; it does not feed the watchdog."""
    return padded(QUERY)


_TORQUE_HEAD = write(MODE, [IN_POSITION], INT8) + write(COMMAND_POSITION, [nan], INT8) + b"\x0d\x22"
COMMAND_TORQUE = Field(len(_TORQUE_HEAD), 4, "float")  # the torque in a torque command


def torque_command(max_torque: float, watchdog: float) -> bytes:
    """Payload of a command of zero torque, 32 bytes: torque, gains of 0, limit, watchdog, query, padding.

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


def has_heads(data: bytes, heads: dict[Field, int]) -> bool:
    """Whether a payload has these first bytes of subframes."""
    return all(field.read(data) == head for field, head in heads.items())


def console_write(text: str) -> bytes:
    """Payload that writes text to the console of the drive.

    Raises:
        ValueError: It is longer than `MOST_TEXT` bytes.
    """
    data = text.encode()
    if len(data) > MOST_TEXT:
        raise ValueError(f"{len(data)} bytes of text, at most {MOST_TEXT} fit in a frame")
    return padded(tunnelled(TUNNEL_WRITE, data))


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
