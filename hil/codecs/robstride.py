"""What the frames of RobStride's own protocol mean: classic frames with ids of 29 bits, which hold data too.

Id: `kind << 24 | data << 8 | target`, five bits of kind, 16 of data and 8 of target. A motion command holds the torque
in its id and position, velocity, kp, kd in its payload, 16 bits each, big endian; each is linear over a range, which is
in the data sheet of the motor. Parameters are little endian.

Feedback has the motor in bits 8 to 15 of its id, faults in bits 16 to 21, the mode in bits 22 and 23, and the host as
target; payload: position, velocity, torque, temperature in tenths of a degree.

Sources: manual of CyberGear (belovictor/cybergear-docs), RobStride's SampleProgram, sirwart/robstride (client.py).
"""

from struct import Struct

from hil.codecs.field import Field, LinearFields, packed

GET_ID, MOTION, FEEDBACK, ENABLE, STOP = 0, 1, 2, 3, 4
SET_ZERO, SET_ID, READ, WRITE = 6, 7, 17, 18
COMMANDS = (MOTION, ENABLE, STOP, SET_ZERO, SET_ID, WRITE)  # kinds that only a master sends, and that change something

RESET, RUN = 0, 2  # modes; 1: calibration

RUN_MODE, TORQUE_LIMIT, CAN_TIMEOUT = 0x7005, 0x700B, 0x7028
"""Parameters: mode of operation (0: motion command), largest torque [N m], time without a command until mode reset."""

TIMEOUT_STEPS = 20_000  # steps of `CAN_TIMEOUT` in one second

FAULTS = {
    0x01: "under-voltage",
    0x02: "over-current",
    0x04: "over-temperature",
    0x08: "magnetic encoder",
    0x10: "hall encoder",
    0x20: "not calibrated",
}

KIND_AND_TARGET = 0x1F00_00FF  # bits of an id that do not depend on its data
FEEDBACK_BITS = 0x1F00_FFFF  # bits of the id of feedback that do not depend on mode and faults
NO_MOTION = bytes.fromhex("7fff7fff00000000")
"""A command without gains; position and velocity are half a step below 0, and have no effect without gains."""
_FIRST, _SECOND, _THIRD, _LAST = (Field(first, 2, big=True) for first in range(0, 8, 2))
TEMPERATURE = _LAST
# the torque of a command is in bits 8 to 23 of its id
FIELDS = LinearFields(_FIRST, _SECOND, _THIRD, _FIRST, _SECOND, _THIRD, _LAST, Field(-3, 2, big=True))

SIZE = 8  # bytes of every frame
BUS_VOLTAGE = 0x701C  # parameter: bus voltage [V], a float
PARAMETER, VALUE = Field(0, 4), Field(4, 4, "float")
"""The parameter in the answer to a read, with two zero bytes, and its value."""
TEMPERATURE_STEP = 10.0  # steps of the temperature in a degree
SETTINGS = {  # parameter that a driver sets -> its name, and where its value is in a payload
    RUN_MODE: ("run_mode", Field(4, 1)),
    TORQUE_LIMIT: ("limit_torque", VALUE),
    CAN_TIMEOUT: ("canTimeout", Field(4, 4)),
}
_PARAMETER = Struct("<HHI")


def identifier(kind: int, data: int, target: int) -> int:
    """Arbitration id, 29 bits."""
    return kind << 24 | data << 8 | target


def feedback_identifier(node: int, host: int, mode: int = RESET) -> int:
    """Arbitration id of feedback without faults."""
    return identifier(FEEDBACK, mode << 14 | node, host)


def mode_and_faults(identity: int) -> tuple[int, int]:
    """Mode, and bits of `FAULTS` in the id of feedback."""
    return identity >> 22 & 3, identity >> 16 & 0x3F


def read_parameter(number: int) -> bytes:
    """Payload that asks for a parameter."""
    return _PARAMETER.pack(number, 0, 0)


def write_parameter(number: int, value: float) -> bytes:
    """Payload that sets one of `SETTINGS`, until the motor is switched off."""
    return packed(SIZE, {PARAMETER: number, SETTINGS[number][1]: value})


def parameter(identity: int, data: bytes) -> tuple[int, float | None] | None:
    """Decodes the answer to a read, or a write: number and value, None where the motor has no such parameter.

    None if it is not 8 bytes.
    """
    if len(data) != SIZE:
        return None
    number = PARAMETER.read(data) & 0xFFFF
    _, field = SETTINGS.get(number, ("", VALUE))
    return number, None if identity >> 16 & 0xFF else field.number(data)


def stop(clear: bool) -> bytes:
    """Payload of `STOP`; `clear` clears faults too."""
    return bytes((clear, 0, 0, 0, 0, 0, 0, 0))


def fault_text(bits: int) -> str:
    """The faults in words, with their bits; empty for no fault."""
    if not bits:
        return ""
    names = [name for bit, name in FAULTS.items() if bits & bit]
    return f"{' | '.join(names) or 'unknown fault'} (fault bits 0x{bits:02X})"
