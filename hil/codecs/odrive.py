"""What the frames of ODrive CANSimple mean, firmware 0.6: ids of 11 bits, `node << 5 | command`; little endian.

Sources: ODrive's CAN protocol reference (docs.odriverobotics.com, can-protocol), its DBC for firmware 0.6.10 as the
package odrive-can contains it, and the error words of `odrive.enums` 0.6.11.
"""

from hil.codecs.field import Field

NODES = range(0x3F)
PROTOCOL = 2  # number of this protocol in Get_Version
COMMANDS = 32  # ids of one node: the command is in the lower five bits

GET_VERSION = 0x00
HEARTBEAT = 0x01
ESTOP = 0x02
GET_ERROR = 0x03
SET_AXIS_STATE = 0x07
GET_ENCODER_ESTIMATES = 0x09
GET_TEMPERATURE = 0x15
GET_BUS_VOLTAGE_CURRENT = 0x17
SET_CONTROLLER_MODE = 0x0B
SET_INPUT_TORQUE = 0x0E
SET_LIMITS = 0x0F
CLEAR_ERRORS = 0x18

MASTER_COMMANDS = bytes.fromhex("02 04 06 07 0B 0C 0D 0E 0F 11 12 13 16 18 19 1A 1B 1F")
"""Commands that only a master sends; all others are answers, which a master requests by a remote frame."""

IDLE, CLOSED_LOOP = 1, 8
STATES = (
    "UNDEFINED", "IDLE", "STARTUP_SEQUENCE", "FULL_CALIBRATION_SEQUENCE", "MOTOR_CALIBRATION", "SENSORLESS_CONTROL",
    "ENCODER_INDEX_SEARCH", "ENCODER_OFFSET_CALIBRATION", "CLOSED_LOOP_CONTROL", "LOCKIN_SPIN", "ENCODER_DIR_FIND",
    "HOMING", "ENCODER_HALL_POLARITY_CALIBRATION", "ENCODER_HALL_PHASE_CALIBRATION", "ANTICOGGING_CALIBRATION",
)  # fmt: skip

WATCHDOG_EXPIRED = 0x0100_0000
ERRORS = {
    0x1: "INITIALIZING",
    0x2: "SYSTEM_LEVEL",
    0x4: "TIMING_ERROR",
    0x8: "MISSING_ESTIMATE",
    0x10: "BAD_CONFIG",
    0x20: "DRV_FAULT",
    0x40: "MISSING_INPUT",
    0x100: "DC_BUS_OVER_VOLTAGE",
    0x200: "DC_BUS_UNDER_VOLTAGE",
    0x400: "DC_BUS_OVER_CURRENT",
    0x800: "DC_BUS_OVER_REGEN_CURRENT",
    0x1000: "CURRENT_LIMIT_VIOLATION",
    0x2000: "MOTOR_OVER_TEMP",
    0x4000: "INVERTER_OVER_TEMP",
    0x8000: "VELOCITY_LIMIT_VIOLATION",
    0x1_0000: "POSITION_LIMIT_VIOLATION",
    0x2_0000: "REQUESTED_CURRENT_TOO_HIGH",
    WATCHDOG_EXPIRED: "WATCHDOG_TIMER_EXPIRED",
    0x0200_0000: "ESTOP_REQUESTED",
    0x0400_0000: "SPINOUT_DETECTED",
    0x0800_0000: "BRAKE_RESISTOR_DISARMED",
    0x1000_0000: "THERMISTOR_DISCONNECTED",
    0x4000_0000: "CALIBRATION_ERROR",
}

PROTOCOL_NUMBER = Field(0, 1)  # in Get_Version, whose bytes 4 to 6 are the firmware
POSITION, VELOCITY = Field(0, 4, "float"), Field(4, 4, "float")  # encoder estimates [turn, turn/s]
ERROR, DISARM_REASON = Field(0, 4), Field(4, 4)
"""Active errors, in Heartbeat too, and those of the last disarming, in Get_Error: bits of `ERRORS`."""
STATE, RESULT, TRAJECTORY_DONE = Field(4, 1), Field(5, 1), Field(6, 1)
"""Axis state, an index of `STATES`, result of the last procedure, and a flag, in Heartbeat."""
TORQUE = Field(0, 4, "float")  # [N m] at the shaft of the motor
INVERTER, MOTOR = Field(0, 4, "float"), Field(4, 4, "float")
"""Temperatures in Get_Temperature [degree C]; NaN without a thermistor."""
BUS_VOLTAGE = Field(0, 4, "float")
REQUESTED_STATE = Field(0, 4)
CONTROL_MODE, INPUT_MODE = Field(0, 4), Field(4, 4)
TORQUE_CONTROL, PASSTHROUGH = 1, 1  # the modes in which Set_Input_Torque is the torque of the motor
VELOCITY_LIMIT, CURRENT_LIMIT = Field(0, 4, "float"), Field(4, 4, "float")  # [turn/s, A]
SIZE = 8  # bytes of all these frames, but for those of Clear_Errors


def identifier(node: int, command: int) -> int:
    """Arbitration id of a node's command."""
    return node << 5 | command


def error_text(bits: int) -> str:
    """The errors in words, with their code; empty for no error."""
    if not bits:
        return ""
    names = [name for bit, name in ERRORS.items() if bits & bit]
    return f"{' | '.join(names) or 'unknown error'} (0x{bits:X})"


def state_text(state: int) -> str:
    """Name of an axis state, as in `odrive.enums`."""
    return STATES[state] if state < len(STATES) else f"unknown state {state}"


def firmware(data: bytes) -> tuple[int, ...]:
    """The version of the firmware in Get_Version, the most significant number first."""
    return tuple(data[4:7])
