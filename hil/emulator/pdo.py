"""Process data objects (PDOs) of an emulated CANopen node: their mapping, and which mappings are allowed."""

import struct
from collections.abc import Mapping

from hil.emulator import objects
from hil.emulator.objects import INVALID, Key, ObjectEntry

MODE: Key = (0x6060, 0)

_DUMMY_BITS = {0x0002: 8, 0x0003: 16, 0x0004: 32, 0x0005: 8, 0x0006: 16, 0x0007: 32}
_DUMMY_FORMS = {8: "b", 16: "h", 32: "i"}


class Pdo:
    """The present configuration of a PDO.

    Attributes:
        identity: Id of its frames.
        valid: Whether it is on.
        kind: Its transmission type.
        keys: Mapped objects in order; None for a dummy entry.
        carried: The same without dummy entries.
        form: Their layout in the frame.
        more: Whether it carries anything but position and velocity.
        guarded: Whether it has a dummy entry, or an object whose values are checked.
    """

    def __init__(
        self, values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], number: int, transmit: bool
    ) -> None:
        """Reads the configuration of PDO `number`, counted from 0, from the objects."""
        base, maps = (0x1800, 0x1A00) if transmit else (0x1400, 0x1600)
        identity = values[base + number, 1]
        self.identity, self.kind = identity & 0x7FF, values[base + number, 2]
        self.keys: list[Key | None] = []
        code = "<"
        for sub in range(1, values[maps + number, 0] + 1):
            mapped = values[maps + number, sub]
            key = mapped >> 16, mapped >> 8 & 0xFF
            dummy = key[0] in _DUMMY_BITS
            self.keys.append(None if dummy else key)
            code += _DUMMY_FORMS[mapped & 0xFF] if dummy else entries[key].form.format[1:]
        self.form = struct.Struct(code)
        self.carried = [key for key in self.keys if key is not None]
        self.valid = not identity & INVALID and bool(self.keys)
        self.guarded = None in self.keys or MODE in self.keys
        self.more = any(key not in ((0x6064, 0), (0x606C, 0)) for key in self.keys)
        self.counter = 0
        self.pending: bytes | None = None


def unfit(values: Mapping[Key, int], entries: Mapping[Key, ObjectEntry], key: Key, value: int) -> int:
    """Abort code of a write to the configuration of a PDO; 0 if it is allowed.

    Args:
        values: Key -> value of all objects.
        entries: Key -> entry of all objects.
        key: Object to write.
        value: Value to write.
    """
    index, sub = key
    on = not values[index & ~0x200, 1] & INVALID
    if not index & 0x200:
        other_id = (value ^ values[key]) & 0x1FFF_FFFF
        return objects.OUT_OF_RANGE if sub == 1 and on and other_id and not value & INVALID else 0
    if on:
        return objects.UNSUPPORTED
    if sub:
        return objects.UNSUPPORTED if values[index, 0] else _unmappable(entries, index, value)
    mapped = [values[index, place] for place in range(1, value + 1)]
    if any(_unmappable(entries, index, each) for each in mapped):
        return objects.NOT_MAPPABLE
    return objects.PDO_TOO_LONG if sum(each & 0xFF for each in mapped) > 64 else 0


def _unmappable(entries: Mapping[Key, ObjectEntry], index: int, mapped: int) -> int:
    if not mapped:
        return 0
    receive = index < 0x1A00
    if receive and _DUMMY_BITS.get(mapped >> 16) == mapped & 0xFF:
        return 0
    entry = entries.get((mapped >> 16, mapped >> 8 & 0xFF))
    if entry is None:
        return objects.NO_OBJECT
    fits = entry.mappable and entry.form.size * 8 == mapped & 0xFF and not (receive and entry.access != "rw")
    return 0 if fits else objects.NOT_MAPPABLE
