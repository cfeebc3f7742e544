"""The object dictionary of an emulated CANopen node, how SDO requests reach it, and how PDOs carry it."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

U8, U16, U32, I8, I16, I32 = (struct.Struct(code) for code in ("<B", "<H", "<I", "<b", "<h", "<i"))

UNKNOWN_COMMAND, UNSUPPORTED, READ_ONLY, NO_OBJECT = 0x0504_0001, 0x0601_0000, 0x0601_0002, 0x0602_0000
NOT_MAPPABLE, PDO_TOO_LONG, WRONG_LENGTH = 0x0604_0041, 0x0604_0042, 0x0607_0010
NO_SUBINDEX, OUT_OF_RANGE = 0x0609_0011, 0x0609_0030


@dataclass(frozen=True)
class ObjectEntry:
    form: struct.Struct  # its type
    value: int = 0  # its value at power-on
    access: str = "rw"  # `rw`, `ro` or `const`
    mappable: bool = False  # whether a PDO may carry it
    low: int | None = None  # smallest allowed value; None: no limit
    high: int | None = None  # largest allowed value; None: no limit

    def refusal(self, value: int) -> int:
        """Abort code of a write of this value; 0: none."""
        if self.access != "rw":
            return READ_ONLY
        low, high = self.low, self.high
        return OUT_OF_RANGE if (low is not None and value < low) or (high is not None and value > high) else 0


Key = tuple[int, int]  # index, subindex
LAST_SYNCHRONOUS = 240  # transmission types up to this wait for SYNC
INVALID = 1 << 31  # bit in the id of a PDO that is off
MAPPED = 8  # largest number of objects in a PDO

DEFAULT_MAPS = {  # default mappings of a drive's PDOs; a receive PDO that stays on obeys every frame with its id
    0x1600: (0x6040_0010,),
    0x1601: (0x6040_0010, 0x6060_0008),
    0x1602: (0x6040_0010, 0x6071_0010),
    0x1A00: (0x6041_0010,),
}


def communication_objects(node: int, maps: Mapping[int, tuple[int, ...]]) -> dict[Key, ObjectEntry]:
    """Objects 0x1000 to 0x1FFF of a node; `maps`: index of a PDO's mapping -> mapped objects at power-on."""
    entries = {
        (0x1000, 0): ObjectEntry(U32, 0x0002_0192, "const"),  # servo drive, CiA 402
        (0x1001, 0): ObjectEntry(U8, 0, "ro", True),
        (0x1005, 0): ObjectEntry(U32, 0x80),
        (0x1014, 0): ObjectEntry(U32, 0x80 + node),
        (0x1016, 0): ObjectEntry(U8, 2, "const"),
        (0x1016, 1): ObjectEntry(U32),
        (0x1016, 2): ObjectEntry(U32),
        (0x1017, 0): ObjectEntry(U16),
        (0x1018, 0): ObjectEntry(U8, 4, "const"),
        (0x1018, 1): ObjectEntry(U32, 0, "const"),
        (0x1018, 2): ObjectEntry(U32, 1, "const"),
        (0x1018, 3): ObjectEntry(U32, 1, "const"),
        (0x1018, 4): ObjectEntry(U32, node, "const"),
        (0x1029, 0): ObjectEntry(U8, 1, "const"),
        (0x1029, 1): ObjectEntry(U8, 0, low=0, high=2),
    }
    for number in range(4):
        for base, first, mapping in ((0x1400, 0x200, 0x1600), (0x1800, 0x180, 0x1A00)):
            carried = maps.get(mapping + number, ())
            entries |= {
                (base + number, 0): ObjectEntry(U8, 5, "const"),
                (base + number, 1): ObjectEntry(U32, first + 0x100 * number + node),
                (base + number, 2): ObjectEntry(U8, 255),
                (base + number, 3): ObjectEntry(U16),  # inhibit time, which has no effect
                (base + number, 5): ObjectEntry(U16),  # [ms] event timer, of what the node sends
                (mapping + number, 0): ObjectEntry(U8, len(carried), high=MAPPED),
            }
            for sub in range(1, MAPPED + 1):
                entries[mapping + number, sub] = ObjectEntry(U32, carried[sub - 1] if sub <= len(carried) else 0)
    return entries


MEASUREMENTS = {(0x6064, 0): ObjectEntry(I32, 0, "ro", True), (0x606C, 0): ObjectEntry(I32, 0, "ro", True)}
"""Objects of an encoder node."""

DRIVE_TEMPERATURE, MOTOR_LOAD = (0x2000, 1), (0x2000, 2)
"""Objects of the maker: temperature [0.1 degree C], and load [1/1000]."""


def drive_objects(rated_torque: int) -> dict[Key, ObjectEntry]:
    """Objects of the drive profile; `rated_torque` is the value of 0x6076 [mN m]."""
    return MEASUREMENTS | {
        DRIVE_TEMPERATURE: ObjectEntry(I16, 250, "ro", True),
        MOTOR_LOAD: ObjectEntry(U16, 0, "ro", True),
        (0x6007, 0): ObjectEntry(I16, 1, low=0, high=3),
        (0x603F, 0): ObjectEntry(U16, 0, "ro", True),
        (0x6040, 0): ObjectEntry(U16, 0, "rw", True),
        (0x6041, 0): ObjectEntry(U16, 0, "ro", True),
        (0x605A, 0): ObjectEntry(I16, 2, low=0, high=8),
        (0x605B, 0): ObjectEntry(I16, 0, low=0, high=1),
        (0x605C, 0): ObjectEntry(I16, 1, low=0, high=1),
        (0x605E, 0): ObjectEntry(I16, 2, low=0, high=4),
        (0x6060, 0): ObjectEntry(I8, 0, "rw", True),
        (0x6061, 0): ObjectEntry(I8, 0, "ro", True),
        (0x6071, 0): ObjectEntry(I16, 0, "rw", True),
        (0x6072, 0): ObjectEntry(U16, 1000, "rw", True),
        (0x6076, 0): ObjectEntry(U32, rated_torque, "ro"),
        (0x6077, 0): ObjectEntry(I16, 0, "ro", True),
        (0x6079, 0): ObjectEntry(U32, 48_000, "ro", True),
        (0x6085, 0): ObjectEntry(U32, 0),
        (0x60B2, 0): ObjectEntry(I16, 0, "rw", True),
        (0x6502, 0): ObjectEntry(U32, 0x200, "ro"),
    }


UPLOAD, DOWNLOAD = 2, 1


def answer(
    request: bytes,
    entries: Mapping[Key, ObjectEntry],
    aborts: Mapping[int | None, int],  # index of an object, or None for all -> abort code of every access to it
    read: Callable[[Key], int],  # gives the present value of an object
    write: Callable[[Key, int], int],  # returns 0, or an abort code
) -> bytes:
    """The node's answer to a request; both have 8 bytes."""
    index, sub = struct.unpack_from("<HB", request, 1)
    key, command = (index, sub), request[0] >> 5
    code, entry = aborts.get(index, aborts.get(None, 0)), entries.get(key)
    if not code and entry is None:
        code = NO_SUBINDEX if (index, 0) in entries else NO_OBJECT
    elif not code and entry is not None and command == UPLOAD:
        data = entry.form.pack(read(key))
        return (bytes([0x43 | 4 - len(data) << 2]) + request[1:4] + data).ljust(8, b"\0")
    elif not code and entry is not None and command == DOWNLOAD and request[0] & 2:
        size = 4 - (request[0] >> 2 & 3) if request[0] & 1 else entry.form.size
        code = write(key, int(entry.form.unpack_from(request, 4)[0])) if size == entry.form.size else WRONG_LENGTH
    elif not code:
        code = UNKNOWN_COMMAND
    return (b"\x80" if code else b"\x60") + request[1:4] + struct.pack("<I", code)


MODE: Key = (0x6060, 0)


class Pdo:
    """The present configuration of a PDO."""

    def __init__(
        self, values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], number: int, transmit: bool
    ) -> None:
        """Reads the configuration of PDO `number`, counted from 0, from the objects."""
        base, maps = (0x1800, 0x1A00) if transmit else (0x1400, 0x1600)
        identity = values[base + number, 1]
        self.identity = identity & 0x7FF  # id of its frames
        self.kind = values[base + number, 2]  # its transmission type
        self.synchronous = self.kind <= LAST_SYNCHRONOUS  # whether it waits for SYNC
        mapped = [values[maps + number, sub] for sub in range(1, values[maps + number, 0] + 1)]
        self.keys: list[Key] = [(entry >> 16, entry >> 8 & 0xFF) for entry in mapped]  # mapped objects in order
        code = "<" + "".join(entries[key].form.format[1:] for key in self.keys)
        form = struct.Struct(code)
        self.size = form.size  # bytes of the frame
        self.pack = form.pack  # values -> bytes of the frame
        self.unpack = form.unpack_from  # bytes of the frame, or more -> values
        self.valid = not identity & INVALID and bool(self.keys)  # whether it is on
        # objects -> the values that a transmit PDO carries
        self.collect = _collector(self.keys)
        # whether it carries anything but position and velocity
        self.more = any(key not in ((0x6064, 0), (0x606C, 0)) for key in self.keys)
        self.counter = 0
        self.pending: bytes | None = None


def _collector(keys: Sequence[Key]) -> Callable[[Mapping[Key, int]], Sequence[int]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda values: [values[key] for key in keys]


def unfit(values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], key: Key, value: int) -> int:
    """Abort code of a write of this value to the configuration of a PDO; 0 if it is allowed."""
    index, sub = key
    on = not values[index & ~0x200, 1] & INVALID
    if not index & 0x200:
        other_id = (value ^ values[key]) & 0x1FFF_FFFF
        return OUT_OF_RANGE if sub == 1 and on and other_id and not value & INVALID else 0
    if on:
        return UNSUPPORTED
    if sub:
        return UNSUPPORTED if values[index, 0] else _unmappable(entries, index, value)
    mapped = [values[index, place] for place in range(1, value + 1)]
    if any(_unmappable(entries, index, each) for each in mapped):
        return NOT_MAPPABLE
    return PDO_TOO_LONG if sum(each & 0xFF for each in mapped) > 64 else 0


def _unmappable(entries: Mapping[Key, ObjectEntry], index: int, mapped: int) -> int:
    if not mapped:
        return 0
    receive = index < 0x1A00
    entry = entries.get((mapped >> 16, mapped >> 8 & 0xFF))
    if entry is None:
        return NO_OBJECT
    fits = entry.mappable and entry.form.size * 8 == mapped & 0xFF and not (receive and entry.access != "rw")
    return 0 if fits else NOT_MAPPABLE
