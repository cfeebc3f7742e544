"""What the frames of a CiA 402 drive in torque mode mean: process data, NMT, emergencies, the state machine.

Process data, little endian, torques in thousandths of the rated torque:
- RPDO1: controlword U16, target torque I16;
- TPDO1: position I32, velocity I32;
- TPDO2: statusword U16, torque I16, error code U16.

Sources: CiA 301 (ids of the predefined connection set) and CiA 402 as vendors publish their tables: Beckhoff's object
references of the AMP8000 and EL72x1, the rst tables of CiA402 implementations, the EDS of RobStride's drive.
"""

from enum import Enum
from struct import Struct

from hil.codecs.field import Field

NODES = range(1, 128)

NMT = 0x000
SYNC = 0x080
EMERGENCY = 0x080
TPDO1, TPDO2 = 0x180, 0x280
RPDOS = (0x200, 0x300, 0x400, 0x500)
RPDO1 = RPDOS[0]
SDO_ANSWER = 0x580
SDO_REQUEST = 0x600
HEARTBEAT = 0x700

START, RESET_COMMUNICATION = 1, 130
BOOT_UP, STOPPED, OPERATIONAL, PRE_OPERATIONAL = 0, 4, 5, 127
NMT_STATES = {BOOT_UP: "boot-up", STOPPED: "stopped", OPERATIONAL: "operational", PRE_OPERATIONAL: "pre-operational"}

DISABLE_VOLTAGE = 0x00
QUICK_STOP = 0x02
SHUTDOWN = 0x06
SWITCH_ON = 0x07  # controlword; where operation is enabled: disable operation
ENABLE_OPERATION = 0x0F
FAULT_RESET = 0x80

TORQUE_MODE = 10  # cyclic synchronous torque, as a value of 0x6060 and 0x6061
TORQUE_MODE_BIT = 1 << 9  # cyclic synchronous torque, as a bit of 0x6502

HEARTBEAT_LOST = 0x8130
ERRORS = {
    0x2310: "over-current",
    0x3210: "DC link over-voltage",
    0x3220: "DC link under-voltage",
    0x4210: "device over-temperature",
    0x4310: "drive over-temperature",
    0x7305: "encoder 1",
    0x7306: "encoder 2",
    0x8110: "CAN overrun",
    0x8120: "CAN error passive",
    HEARTBEAT_LOST: "heartbeat of the master lost",
    0x8140: "recovered from bus-off",
    0x8210: "PDO too short",
    0x8250: "RPDO timeout",
    0x8611: "following error",
    0x8700: "SYNC",
}
ERROR_GROUPS = {
    0x10: "generic",
    0x20: "current",
    0x30: "voltage",
    0x40: "temperature",
    0x50: "device hardware",
    0x60: "device software",
    0x70: "additional modules",
    0x80: "monitoring",
    0x90: "external",
    0xF0: "additional functions",
    0xFF: "device specific",
}

CONTROLWORD, TARGET = Field(0, 2), Field(2, 2, "signed")
POSITION, VELOCITY = Field(0, 4, "signed"), Field(4, 4, "signed")
STATUSWORD, TORQUE, ERROR = Field(0, 2), Field(2, 2, "signed"), Field(4, 2)
STATE = Field(0, 1)  # the byte of a heartbeat

WARNING = Field(0, 1, shift=7)
"""The bit of the statusword by which the drive warns: a temperature, a voltage or a load is near its limit."""
OBEYS = 0x200  # bit of the statusword: the drive obeys the controlword
LIMITED = 0x800  # bit of the statusword: an internal limit is active, so that the torque is less than the target
STATE_BITS = 0x6F  # bits of the statusword by which the states differ
WORKING = 0x27  # those bits while the drive is enabled
NMT_BITS = 0x7F  # bits of a heartbeat that hold the state

U8, U16, U32, I8, I16, I32 = (Struct(f"<{code}") for code in "BHIbhi")
MAPPED = 3  # objects that one of our PDOs carries at most

OBJECTS = {  # index, subindex -> name, type of the objects that a driver uses
    (0x1000, 0): ("Device type", U32),
    (0x1016, 1): ("Consumer heartbeat time, Consumer 1", U32),
    (0x1017, 0): ("Producer heartbeat time", U16),
    (0x1029, 1): ("Error behaviour, Communication error", U8),
    (0x6007, 0): ("Abort connection option code", I16),
    (0x603F, 0): ("Error code", U16),
    (0x6040, 0): ("Controlword", U16),
    (0x6041, 0): ("Statusword", U16),
    (0x605A, 0): ("Quick stop option code", I16),
    (0x605B, 0): ("Shutdown option code", I16),
    (0x605C, 0): ("Disable operation option code", I16),
    (0x605E, 0): ("Fault reaction option code", I16),
    (0x6060, 0): ("Modes of operation", I8),
    (0x6061, 0): ("Modes of operation display", I8),
    (0x6064, 0): ("Position actual value", I32),
    (0x606C, 0): ("Velocity actual value", I32),
    (0x6071, 0): ("Target torque", I16),
    (0x6072, 0): ("Max torque", U16),
    (0x6073, 0): ("Max current", U16),
    (0x6076, 0): ("Motor rated torque", U32),
    (0x6077, 0): ("Torque actual value", I16),
    (0x607E, 0): ("Polarity", U8),
    (0x6085, 0): ("Quick stop deceleration", U32),
    (0x60B2, 0): ("Torque offset", I16),
    (0x60E0, 0): ("Positive torque limit", U16),
    (0x60E1, 0): ("Negative torque limit", U16),
    (0x6502, 0): ("Supported drive modes", U32),
}
for _number in range(len(RPDOS)):
    for _base, _pdo in ((0x1400, f"RPDO{_number + 1}"), (0x1800, f"TPDO{_number + 1}")):
        _places = {sub: (f"{_pdo} mapping, Entry {sub}", U32) for sub in range(1, MAPPED + 1)}
        _mapping = {0: (f"{_pdo} mapping, Number of entries", U8), **_places}
        OBJECTS |= {(_base + 0x200 + _number, sub): each for sub, each in _mapping.items()}
        OBJECTS[_base + _number, 1] = f"{_pdo} communication, COB-ID", U32
        OBJECTS[_base + _number, 2] = f"{_pdo} communication, Type", U8


def object_name(index: int, sub: int = 0) -> str:
    """An object in an error: its place, with the subindex in a record, and its name."""
    place = f"0x{index:04X}:{sub}" if (index, 1) in OBJECTS else f"0x{index:04X}"
    return f"{place} ({OBJECTS[index, sub][0]})"


COMMAND_SIZE, FEEDBACK_SIZE, STATUS_SIZE = 4, 8, 6
HEAD = Field(0, 4)  # command and object of an SDO frame
_EMERGENCY = Struct("<HB5s")
_SDO_HEAD = Struct("<BHB")
UPLOAD, DOWNLOAD, DOWNLOADED, ABORT = 0x40, 0x23, 0x60, 0x80  # commands of SDO frames; 0x23: the size is given
UPLOADED, UPLOADED_BITS = 0x42, 0xE2  # answer to a read that holds the value


class Cia402State(Enum):
    """State of a CiA 402 drive, by the names of the standard."""

    NOT_READY = "not ready to switch on"
    SWITCH_ON_DISABLED = "switch on disabled"
    READY = "ready to switch on"
    SWITCHED_ON = "switched on"
    ENABLED = "operation enabled"
    QUICK_STOP = "quick stop active"
    FAULT_REACTION = "fault reaction active"
    FAULT = "fault"


PATTERNS = (  # mask and value of the statusword in each state; bit 5, quick stop, is active low
    (0x4F, 0x00, Cia402State.NOT_READY),
    (0x4F, 0x40, Cia402State.SWITCH_ON_DISABLED),
    (0x6F, 0x21, Cia402State.READY),
    (0x6F, 0x23, Cia402State.SWITCHED_ON),
    (STATE_BITS, WORKING, Cia402State.ENABLED),
    (0x6F, 0x07, Cia402State.QUICK_STOP),
    (0x4F, 0x0F, Cia402State.FAULT_REACTION),
    (0x4F, 0x08, Cia402State.FAULT),
)


def state_of(statusword: int) -> Cia402State | None:
    """The state in a statusword; None if no state has this pattern."""
    return next((state for mask, value, state in PATTERNS if statusword & mask == value), None)


def emergency(data: bytes) -> tuple[int, int, bytes] | None:
    """Decodes an emergency: error code (0x00xx: the error is over), error register, five bytes of the vendor."""
    return _EMERGENCY.unpack(data) if len(data) == 8 else None


def sdo_request(index: int, sub: int = 0, value: int | None = None) -> bytes:
    """Payload of the SDO request that reads an object, or sets one of `OBJECTS` to a value (expedited transfer).

    Raises struct.error if the value does not fit.
    """
    data = b"" if value is None else OBJECTS[index, sub][1].pack(value)
    command = DOWNLOAD | 4 - len(data) << 2 if data else UPLOAD
    return _SDO_HEAD.pack(command, index, sub) + data.ljust(4, b"\0")


def answer_heads(index: int, sub: int) -> dict[int, Field]:
    """First four bytes of the answer to a read, as a number -> where its value is, by its size."""
    object_bits = index << 8 | sub << 24
    return {UPLOADED | 1 | 4 - size << 2 | object_bits: Field(4, size, "signed") for size in (1, 2, 4)}


def read_status(data: bytes) -> Cia402State | None:
    """The state in the answer to a request of the statusword; None for any other answer."""
    if len(data) != 8:
        return None
    command, index, sub = _SDO_HEAD.unpack_from(data)
    of_statusword = command & UPLOADED_BITS == UPLOADED and (index, sub) == (0x6041, 0)
    return state_of(STATUSWORD.read(data[4:])) if of_statusword else None


def nmt_state(data: bytes) -> int | None:
    """Decodes a heartbeat: an NMT state out of `NMT_STATES`."""
    return state if len(data) == 1 and (state := data[0] & NMT_BITS) in NMT_STATES else None


def nmt(command: int, node: int) -> bytes:
    """Payload of an NMT command to one node; node 0 addresses all."""
    return bytes((command, node))


def error_text(code: int) -> str:
    """An error code of 0x603F or of an emergency in words; empty for no error."""
    if code >> 8 == 0:
        return ""
    group = ERROR_GROUPS.get(code >> 8) or ERROR_GROUPS.get(code >> 8 & 0xF0, "unknown")
    return f"{ERRORS.get(code, f'{group} error')} (0x{code:04X})"
