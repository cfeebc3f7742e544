"""The object dictionary of an emulated CANopen node, and the PDOs that carry its objects."""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from hil.codecs.cia402 import I16, OBJECTS, RPDOS, TPDO1, U8, U16, U32

UNKNOWN_COMMAND, UNSUPPORTED, READ_ONLY, NO_OBJECT = 0x0504_0001, 0x0601_0000, 0x0601_0002, 0x0602_0000
NOT_MAPPABLE, PDO_TOO_LONG, WRONG_LENGTH = 0x0604_0041, 0x0604_0042, 0x0607_0010
NO_SUBINDEX, OUT_OF_RANGE = 0x0609_0011, 0x0609_0030

Key = tuple[int, int]  # index, subindex
LAST_SYNCHRONOUS = 240  # transmission types up to this wait for SYNC
INVALID = 1 << 31  # bit in the id of a PDO that is off
MAPPED = 8  # largest number of objects in a PDO
MODE: Key = (0x6060, 0)
POSITION, VELOCITY = (0x6064, 0), (0x606C, 0)
POLARITY, TURNED_POSITION, TURNED_SPEED, TURNED_TORQUE = (0x607E, 0), 0x80, 0x40, 0x20


class ObjectEntry(NamedTuple):
    form: Struct  # its type
    value: int = 0  # its value at power-on
    writable: bool = True
    mappable: bool = False  # whether a PDO may carry it
    allowed: range | None = None  # values that can be written; None: all

    def refusal(self, value: int) -> int:
        """Abort code of a write of this value; 0: none."""
        if not self.writable:
            return READ_ONLY
        return 0 if self.allowed is None or value in self.allowed else OUT_OF_RANGE


DEFAULT_MAPS = {  # default mappings of a drive's PDOs; a receive PDO that stays on obeys every frame with its id
    0x1600: (0x6040_0010,),
    0x1601: (0x6040_0010, 0x6060_0008),
    0x1602: (0x6040_0010, 0x6071_0010),
    0x1A00: (0x6041_0010,),
}


def communication_objects(node: int, maps: Mapping[int, tuple[int, ...]]) -> dict[Key, ObjectEntry]:
    """Objects 0x1000 to 0x1FFF of a node; `maps`: index of a PDO's mapping -> mapped objects at power-on."""
    entries = {
        (0x1000, 0): ObjectEntry(U32, 0x0002_0192, False),  # servo drive, CiA 402
        (0x1001, 0): ObjectEntry(U8, 0, False, True),
        (0x1005, 0): ObjectEntry(U32, 0x80),
        (0x1014, 0): ObjectEntry(U32, 0x80 + node),
        (0x1016, 0): ObjectEntry(U8, 1, False),
        (0x1016, 1): ObjectEntry(U32),
        (0x1017, 0): ObjectEntry(U16),
        (0x1018, 0): ObjectEntry(U8, 4, False),
        **{(0x1018, sub): ObjectEntry(U32, value, False) for sub, value in enumerate((0, 1, 1, node), 1)},
        (0x1029, 0): ObjectEntry(U8, 1, False),
        (0x1029, 1): ObjectEntry(U8, allowed=range(3)),
    }
    for number in range(len(RPDOS)):
        for base, first, mapping in ((0x1400, RPDOS[0], 0x1600), (0x1800, TPDO1, 0x1A00)):
            carried = maps.get(mapping + number, ())
            entries |= {
                (base + number, 0): ObjectEntry(U8, 5, False),
                (base + number, 1): ObjectEntry(U32, first + 0x100 * number + node),
                (base + number, 2): ObjectEntry(U8, 255),
                (base + number, 3): ObjectEntry(U16),  # inhibit time, which has no effect
                (base + number, 5): ObjectEntry(U16),  # [ms] event timer, of what the node sends
                (mapping + number, 0): ObjectEntry(U8, len(carried), allowed=range(MAPPED + 1)),
            }
            for place in range(MAPPED):
                entry = carried[place] if place < len(carried) else 0
                entries[mapping + number, place + 1] = ObjectEntry(U32, entry)
    return entries


DRIVE_TEMPERATURE, MOTOR_LOAD = (0x2000, 1), (0x2000, 2)
"""Objects of the maker: temperature [0.1 degree C], and load [1/1000]."""

OPTIONS = {0x6007: (1, 4), 0x605A: (2, 9), 0x605B: (0, 2), 0x605C: (1, 2), 0x605E: (2, 5)}
"""Option code -> value at power-on, number of its values."""


def measured_objects(*indices: int) -> dict[Key, ObjectEntry]:
    """Objects of the profile that the node alone writes, and a PDO may carry."""
    return {(index, 0): ObjectEntry(OBJECTS[index, 0][1], 0, False, True) for index in indices}


MEASUREMENTS = measured_objects(POSITION[0], VELOCITY[0])
"""Objects of an encoder node."""


def drive_objects(rated_torque: int) -> dict[Key, ObjectEntry]:
    """Objects of the drive profile; `rated_torque` is the value of 0x6076 [mN m]."""
    told = {0x6040: 0, 0x6060: 0, 0x6071: 0, 0x6072: 1000, 0x60B2: 0}
    told |= {0x607E: 0, 0x60E0: 0xFFFF, 0x60E1: 0xFFFF, 0x6073: 0xFFFF}
    options = {
        (index, 0): ObjectEntry(OBJECTS[index, 0][1], value, allowed=range(count))
        for index, (value, count) in OPTIONS.items()
    }
    return MEASUREMENTS | measured_objects(0x603F, 0x6041, 0x6061, 0x6077) | options | {
        **{(index, 0): ObjectEntry(OBJECTS[index, 0][1], value, mappable=True) for index, value in told.items()},
        DRIVE_TEMPERATURE: ObjectEntry(I16, 250, False, True),
        MOTOR_LOAD: ObjectEntry(U16, 0, False, True),
        (0x6076, 0): ObjectEntry(U32, rated_torque, False),
        (0x6079, 0): ObjectEntry(U32, 48_000, False, True),
        (0x6085, 0): ObjectEntry(U32),
        (0x6502, 0): ObjectEntry(U32, 0x200, False),
    }  # fmt: skip


class Pdo:
    """The present configuration of a PDO."""

    def __init__(self, values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], index: int) -> None:
        """Reads the configuration from the objects; `index`: that of its communication object."""
        identity, mapping = values[index, 1], index + 0x200
        self.identity = identity & 0x7FF  # id of its frames
        self.kind = values[index, 2]  # its transmission type
        self.synchronous = self.kind <= LAST_SYNCHRONOUS  # whether it waits for SYNC
        mapped = [values[mapping, place] for place in range(1, values[mapping, 0] + 1)]
        self.keys: list[Key] = [(entry >> 16, entry >> 8 & 0xFF) for entry in mapped]  # mapped objects in order
        self._form = Struct("<" + "".join(entries[key].form.format[1:] for key in self.keys))
        self.size = self._form.size  # bytes of the frame
        self.unpack = self._form.unpack_from  # bytes of the frame, or more -> values
        self.valid = not identity & INVALID and bool(self.keys)  # whether it is on
        self.more = not {POSITION, VELOCITY}.issuperset(self.keys)  # whether it carries other objects
        self.counter = 0
        self.pending: bytes | None = None

    def packed(self, values: Mapping[Key, int]) -> bytes:
        """The frame with the values that the objects have."""
        return self._form.pack(*[values[key] for key in self.keys])


def unfit(values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], key: Key, value: int) -> int:
    """Abort code of a write of this value to the configuration of a PDO; 0 if it is allowed."""
    index, sub = key
    on = not values[index & ~0x200, 1] & INVALID
    if not index & 0x200:
        other_id = (value ^ values[key]) & 0x1FFF_FFFF
        return OUT_OF_RANGE if sub == 1 and on and other_id and not value & INVALID else 0
    if on or (sub and values[index, 0]):
        return UNSUPPORTED
    mapped = [value] if sub else [values[index, place] for place in range(1, value + 1)]
    if not all(_mappable(entries, each, index < 0x1A00) or (sub and not each) for each in mapped):
        return NOT_MAPPABLE
    return PDO_TOO_LONG if sum(each & 0xFF for each in mapped) > 64 else 0


def _mappable(entries: Mapping[Key, ObjectEntry], mapped: int, receive: bool) -> bool:
    entry = entries.get((mapped >> 16, mapped >> 8 & 0xFF))
    if entry is None or (receive and not entry.writable):
        return False
    return entry.mappable and entry.form.size * 8 == mapped & 0xFF
