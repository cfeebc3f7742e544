"""Which objects of a CiA 402 drive the driver uses over SDO: their names and types, for python-canopen.

Design: built in code, because the EDS files of vendors may not be passed on. Errors call an object by its name here.

Source: CiA 301 and CiA 402, as in `hil.codecs.cia402`.
"""

from functools import cache

from canopen.objectdictionary import ObjectDictionary, ODRecord, ODVariable
from canopen.objectdictionary.datatypes import (
    INTEGER8,
    INTEGER16,
    INTEGER32,
    UNSIGNED8,
    UNSIGNED16,
    UNSIGNED32,
)

from hil.codecs.cia402 import RPDOS

MAPPED = 3  # objects that one of our PDOs carries at most

VARIABLES = {
    0x1000: ("Device type", UNSIGNED32),
    0x1017: ("Producer heartbeat time", UNSIGNED16),
    0x6007: ("Abort connection option code", INTEGER16),
    0x603F: ("Error code", UNSIGNED16),
    0x6040: ("Controlword", UNSIGNED16),
    0x6041: ("Statusword", UNSIGNED16),
    0x605A: ("Quick stop option code", INTEGER16),
    0x605B: ("Shutdown option code", INTEGER16),
    0x605C: ("Disable operation option code", INTEGER16),
    0x605E: ("Fault reaction option code", INTEGER16),
    0x6060: ("Modes of operation", INTEGER8),
    0x6061: ("Modes of operation display", INTEGER8),
    0x6064: ("Position actual value", INTEGER32),
    0x606C: ("Velocity actual value", INTEGER32),
    0x6071: ("Target torque", INTEGER16),
    0x6072: ("Max torque", UNSIGNED16),
    0x6076: ("Motor rated torque", UNSIGNED32),
    0x6077: ("Torque actual value", INTEGER16),
    0x6085: ("Quick stop deceleration", UNSIGNED32),
    0x60B2: ("Torque offset", INTEGER16),
    0x6502: ("Supported drive modes", UNSIGNED32),
}
"""Index -> name, type."""

COMMUNICATION = {1: ("COB-ID", UNSIGNED32), 2: ("Type", UNSIGNED8)}
MAPPING = {0: ("Number of entries", UNSIGNED8)} | {sub: (f"Entry {sub}", UNSIGNED32) for sub in range(1, MAPPED + 1)}

RECORDS = {
    0x1016: ("Consumer heartbeat time", {1: ("Consumer 1", UNSIGNED32)}),
    0x1029: ("Error behaviour", {1: ("Communication error", UNSIGNED8)}),
}
for _number in range(len(RPDOS)):
    for _base, _name in ((0x1400, f"RPDO{_number + 1}"), (0x1800, f"TPDO{_number + 1}")):
        RECORDS[_base + _number] = f"{_name} communication", COMMUNICATION
        RECORDS[_base + 0x200 + _number] = f"{_name} mapping", MAPPING
"""Index -> name, and subindex -> name, type."""


@cache
def object_dictionary() -> ObjectDictionary:
    """The objects of the tables; the same for every node, and not to be changed."""
    dictionary = ObjectDictionary()  # type: ignore[no-untyped-call]
    for index, (name, kind) in VARIABLES.items():
        dictionary.add_object(_variable(name, kind, index, 0))
    for index, (name, members) in RECORDS.items():
        record = ODRecord(name, index)
        for sub, (member, kind) in members.items():
            record.add_member(_variable(member, kind, index, sub))
        dictionary.add_object(record)
    return dictionary


def _variable(name: str, kind: int, index: int, sub: int) -> ODVariable:
    variable = ODVariable(name, index, sub)
    variable.data_type = kind
    return variable
