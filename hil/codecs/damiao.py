"""What the requests about the registers of a Damiao motor mean.

Request with id 0x7FF: id of the motor 16 (low byte first), command 8, register 8, value 32 (low byte first). The motor
answers with the same layout and the id of its other replies. The lowest four bits of the first byte are its id, as in a
reply to a command; the upper four, a status there, are 0.

Sources: DAMIAO_Control_Arduino; damiao-motor 1.0.6 (core/motor.py) for the table of registers and their units.
"""

import struct
from typing import NamedTuple

REQUEST = 0x7FF  # id of requests to all motors

READ, WRITE, SAVE, REFRESH = 0x33, 0x55, 0xAA, 0xCC

MASTER_ID, TIMEOUT, CONTROL_MODE, PMAX, VMAX, TMAX = 7, 9, 10, 21, 22, 23
"""Registers: id of replies, watchdog [50 us], mode, ranges of position [rad], velocity [rad/s] and torque [N m]."""

COUNTS = frozenset({MASTER_ID, 8, TIMEOUT, CONTROL_MODE, 13, 14, 15, 16, 35, 36})
"""Registers that are whole numbers; the others are single-precision numbers."""

LAST = 81  # last register
TICK = 50e-6  # [s] unit of `TIMEOUT`

MIT_MODE = 1
MODES = {MIT_MODE: "MIT", 2: "position and velocity", 3: "velocity", 4: "position with force limit"}

_REQUEST = struct.Struct("<HBB4x")


class RegisterValue(NamedTuple):
    register: int  # its number
    value: float  # its value; whole numbers are exact


def read(node: int, register: int) -> bytes:
    """Payload of a request for the value of a register."""
    return _REQUEST.pack(node, READ, register)


def refresh(node: int) -> bytes:
    """Payload of a request for a reply as to a command; it commands nothing."""
    return _REQUEST.pack(node, REFRESH, 0)


def register_value(data: bytes, node: int) -> RegisterValue | None:
    """Decodes an answer about a register of this motor; None for a reply to a command.

    A reply to a command looks the same only if the motor is disabled, at one of two positions near the end of its range
    and at more than 0.36 of its largest speed.
    """
    if len(data) != 8 or data[0] != node or data[1] or data[2] not in (READ, WRITE) or data[3] > LAST:
        return None
    register = data[3]
    form = "<I" if register in COUNTS else "<f"
    return RegisterValue(register, float(struct.unpack_from(form, data, 4)[0]))
