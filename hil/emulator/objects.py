"""The object dictionary of an emulated CANopen node: objects, types, and allowed values."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

U8, U16, U32, I8, I16, I32 = (struct.Struct(code) for code in ("<B", "<H", "<I", "<b", "<h", "<i"))

UNKNOWN_COMMAND, UNSUPPORTED, READ_ONLY, NO_OBJECT = 0x0504_0001, 0x0601_0000, 0x0601_0002, 0x0602_0000
NOT_MAPPABLE, PDO_TOO_LONG, WRONG_LENGTH = 0x0604_0041, 0x0604_0042, 0x0607_0010
NO_SUBINDEX, OUT_OF_RANGE = 0x0609_0011, 0x0609_0030


@dataclass(frozen=True)
class ObjectEntry:
    """One object.

    Attributes:
        form: Its type.
        value: Its value at power-on.
        access: `rw`, `ro` or `const`.
        mappable: Whether a PDO may carry it.
        low: Smallest allowed value; None: no limit.
        high: Largest allowed value; None: no limit.
    """

    form: struct.Struct
    value: int = 0
    access: str = "rw"
    mappable: bool = False
    low: int | None = None
    high: int | None = None

    def refusal(self, value: int) -> int:
        """Abort code of a write of this value; 0: none."""
        if self.access != "rw":
            return READ_ONLY
        low, high = self.low, self.high
        return OUT_OF_RANGE if (low is not None and value < low) or (high is not None and value > high) else 0


Key = tuple[int, int]
"""Index, subindex."""

INVALID = 1 << 31
"""Bit in the id of a PDO that is off."""

MAPPED = 8
"""Largest number of objects in a PDO."""


DEFAULT_MAPS = {
    0x1600: (0x6040_0010,),
    0x1601: (0x6040_0010, 0x6060_0008),
    0x1602: (0x6040_0010, 0x6071_0010),
    0x1A00: (0x6041_0010,),
}
"""Default mappings of a drive's PDOs; a receive PDO that stays on obeys every frame with its id."""


def communication_objects(node: int, maps: Mapping[int, tuple[int, ...]]) -> dict[Key, ObjectEntry]:
    """Objects 0x1000 to 0x1FFF of a node, with the predefined ids.

    Args:
        node: Node id.
        maps: Index of a PDO's mapping -> mapped objects at power-on.
    """
    entries = {
        (0x1000, 0): ObjectEntry(U32, 0x0002_0192, "const"),  # servo drive, CiA 402
        (0x1001, 0): ObjectEntry(U8, 0, "ro", True),
        (0x1003, 0): ObjectEntry(U8, 0),
        (0x1003, 1): ObjectEntry(U32, 0, "ro"),
        (0x1005, 0): ObjectEntry(U32, 0x80),
        (0x1006, 0): ObjectEntry(U32),
        (0x1007, 0): ObjectEntry(U32),
        (0x1008, 0): ObjectEntry(U32, int.from_bytes(b"EMUL", "little"), "const"),
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
                (base + number, 3): ObjectEntry(U16),
                (base + number, 5): ObjectEntry(U16),
                (mapping + number, 0): ObjectEntry(U8, len(carried), high=MAPPED),
            }
            for sub in range(1, MAPPED + 1):
                entries[mapping + number, sub] = ObjectEntry(U32, carried[sub - 1] if sub <= len(carried) else 0)
    return entries


MEASUREMENTS = {(0x6064, 0): ObjectEntry(I32, 0, "ro", True), (0x606C, 0): ObjectEntry(I32, 0, "ro", True)}
"""Objects of an encoder node."""


def drive_objects(rated_torque: int) -> dict[Key, ObjectEntry]:
    """Objects of the drive profile.

    Args:
        rated_torque: Value of 0x6076 [mN m].
    """
    return MEASUREMENTS | {
        (0x6007, 0): ObjectEntry(I16, 1, low=0, high=3),
        (0x603F, 0): ObjectEntry(U16, 0, "ro", True),
        (0x6040, 0): ObjectEntry(U16, 0, "rw", True),
        (0x6041, 0): ObjectEntry(U16, 0, "ro", True),
        (0x605A, 0): ObjectEntry(I16, 2, low=0, high=8),
        (0x605B, 0): ObjectEntry(I16, 0, low=0, high=1),
        (0x605C, 0): ObjectEntry(I16, 1, low=0, high=1),
        (0x605D, 0): ObjectEntry(I16, 1, low=1, high=4),
        (0x605E, 0): ObjectEntry(I16, 2, low=0, high=4),
        (0x6060, 0): ObjectEntry(I8, 0, "rw", True),
        (0x6061, 0): ObjectEntry(I8, 0, "ro", True),
        (0x6071, 0): ObjectEntry(I16, 0, "rw", True),
        (0x6072, 0): ObjectEntry(U16, 1000, "rw", True),
        (0x6075, 0): ObjectEntry(U32, 0, "rw"),
        (0x6076, 0): ObjectEntry(U32, rated_torque, "ro"),
        (0x6077, 0): ObjectEntry(I16, 0, "ro", True),
        (0x6080, 0): ObjectEntry(U32, 0),
        (0x6085, 0): ObjectEntry(U32, 0),
        (0x6087, 0): ObjectEntry(U32, 0),
        (0x608F, 0): ObjectEntry(U8, 2, "const"),
        (0x608F, 1): ObjectEntry(U32, 1),
        (0x608F, 2): ObjectEntry(U32, 1),
        (0x60B2, 0): ObjectEntry(I16, 0, "rw", True),
        (0x6502, 0): ObjectEntry(U32, 0x200, "ro"),
    }
