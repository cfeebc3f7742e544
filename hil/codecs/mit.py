"""What the frames of MIT drives mean: mini-cheetah's motor driver and its descendants (CubeMars AK, RobStride, Damiao).

Command, eight bytes, big-endian bits: position 16, velocity 12, kp 12, kd 12, torque 12. The motor makes the torque
kp (position - measured position) + kd (velocity - measured velocity) + torque. Reply: id of the motor 8, position 16,
velocity 12, torque 12, then two bytes that differ by maker. Each number is linear over a range, which is not in the
frame but in the data sheet of the motor.

A Damiao also has registers. Request with id 0x7FF: id of the motor 16 (low byte first), command 8, register 8, value 32
(low byte first). The motor answers with the same layout and the id of its other replies. The lowest four bits of the
first byte are its id, as in a reply to a command; the upper four, a status there, are 0.

Sources: mini-cheetah-tmotor-python-can (canmotorlib.py), TMotorCANControl (mit_can.py), the manual of CubeMars' AK80-64
(V1.0.8), RobStride's extract of the RS00 specification, DAMIAO_Control_Arduino for the codes of Damiao; damiao-motor
1.0.6 (core/motor.py) for its table of registers and their units.
"""

import struct

from hil.codecs.field import Field, LinearFields

ENABLE, DISABLE, SET_ZERO, CLEAR_FAULT = 0xFC, 0xFD, 0xFE, 0xFB

SPECIAL = b"\xff" * 7  # begins a special command
NO_MOTION = bytes.fromhex("7fff7ff000000000")
"""A command without gains. Position and velocity are 0, half a step below, so that no torque in it makes it look like a
special command, which starts with six bytes FF."""

FIRST = Field(0, 1)  # id of the motor; for Damiao its upper four bits are the status
FIELDS = LinearFields(
    position=Field(1, 2, big=True),
    velocity=Field(3, 2, big=True, shift=4),
    torque=Field(4, 2, big=True, bits=12),
    command_position=Field(0, 2, big=True),
    command_velocity=Field(2, 2, big=True, shift=4),
    command_stiffness=Field(3, 2, big=True, bits=12),
    command_damping=Field(5, 2, big=True, shift=4, bits=12),
    command_torque=Field(6, 2, big=True, bits=12),
)
ERROR = Field(7, 1)  # the fault in a reply of CubeMars
TEMPERATURE = Field(6, 1, "signed")  # [degree C] temperature in a reply of CubeMars
ELECTRONICS, ROTOR = Field(6, 1), Field(7, 1)
"""Temperatures of the electronics and of the rotor in a reply of Damiao [degree C]."""
SIZES = (6, 8)  # bytes of a reply

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


def special(code: int) -> bytes:
    """Payload of a special command: `ENABLE`, `DISABLE` or `CLEAR_FAULT`."""
    return SPECIAL + bytes((code,))


REGISTERS = 0x7FF  # id of requests about registers, to all Damiao motors

READ, WRITE, REFRESH = 0x33, 0x55, 0xCC

MASTER_ID, TIMEOUT, CONTROL_MODE, PMAX, VMAX, TMAX = 7, 9, 10, 21, 22, 23
"""Registers: id of replies, watchdog [50 us], mode, ranges of position [rad], velocity [rad/s] and torque [N m]."""

COUNTS = frozenset({MASTER_ID, 8, TIMEOUT, CONTROL_MODE, 13, 14, 15, 16, 35, 36})
"""Registers that are whole numbers; the others are single-precision numbers."""

LAST_REGISTER = 81  # last register
TICK = 50e-6  # [s] unit of `TIMEOUT`

MIT_MODE = 1
MODES = {MIT_MODE: "MIT", 2: "position and velocity", 3: "velocity", 4: "position with force limit"}

_REQUEST = struct.Struct("<HBB4x")


def read_register(node: int, register: int) -> bytes:
    """Payload of a request for the value of a register."""
    return _REQUEST.pack(node, READ, register)


def refresh(node: int) -> bytes:
    """Payload of a request for a reply as to a command; it commands nothing."""
    return _REQUEST.pack(node, REFRESH, 0)


def register_value(data: bytes, node: int) -> tuple[int, float] | None:
    """Decodes an answer about a register of this motor: its number and value; None for a reply to a command.

    A reply to a command looks the same only if the motor is disabled, at one of two positions near the end of its range
    and at more than 0.36 of its largest speed.
    """
    if len(data) != 8 or data[0] != node or data[1] or data[2] not in (READ, WRITE) or data[3] > LAST_REGISTER:
        return None
    register = data[3]
    form = "<I" if register in COUNTS else "<f"
    return register, float(struct.unpack_from(form, data, 4)[0])
