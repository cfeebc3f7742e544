"""Where a number lies in a payload: read by Python's codecs and by the tick in C, so that its place is written once."""

from collections.abc import Mapping
from functools import cache
from math import inf
from struct import Struct, pack_into, unpack_from
from typing import Literal, NamedTuple

from hil.frame import Frame


class Field(NamedTuple):
    """An integer, or a float of single precision, in a payload."""

    first: int  # its first byte; -4 to -1 are the bytes of the frame's id, the highest first
    size: int  # its bytes
    kind: str = "unsigned"  # `unsigned`, `signed` or `float`; the last two fill whole bytes
    big: bool = False  # whether its highest byte comes first
    shift: int = 0  # bits of its last byte that belong to the next number
    bits: int = 0  # its bits after the shift; 0: all

    @property
    def mask(self) -> int:
        """Its bits, after the shift."""
        return (1 << (self.bits or 8 * self.size - self.shift)) - 1

    @property
    def most(self) -> float:
        """The largest number below its end, which all larger ones look like; infinite for a float."""
        return inf if self.kind == "float" else (self.mask >> (self.kind == "signed")) - 1

    @property
    def _form(self) -> str:
        """Its code in `struct`, of a field of whole bytes."""
        letters = {"unsigned": "?BH?I", "signed": "?bh?i", "float": "????f"}[self.kind]
        return (">" if self.big else "<") + letters[self.size]

    def number(self, data: bytes) -> float:
        """The number in a payload."""
        number: float = self.read(data) if self.kind == "unsigned" else unpack_from(self._form, data, self.first)[0]
        return number

    def read(self, data: bytes) -> int:
        """Its bits in a payload, as an unsigned integer."""
        return int.from_bytes(data[self.first : self.first + self.size], self._order) >> self.shift & self.mask

    def written(self, data: bytes, bits: int) -> bytes:
        """The payload with these bits in the field; all others stay."""
        first, last = self.first, self.first + self.size
        others = int.from_bytes(data[first:last], self._order) & ~(self.mask << self.shift)
        return data[:first] + (others | (bits & self.mask) << self.shift).to_bytes(self.size, self._order) + data[last:]

    @property
    def _order(self) -> Literal["big", "little"]:
        return "big" if self.big else "little"


def packed(size: int, numbers: Mapping[Field, float]) -> bytes:
    """A payload with these numbers, each in whole bytes; the other bytes are zero."""
    data = bytearray(size)
    for field, number in numbers.items():
        pack_into(field._form, data, field.first, number)
    return bytes(data)


ID_BYTES = 4  # bytes of the id before a payload, where a field may lie too


def bytes_of(frame: Frame) -> bytes:
    return frame.id.to_bytes(ID_BYTES, "big") + frame.data


@cache
def after_id(field: Field) -> Field:
    """The field as it lies in `bytes_of` a frame."""
    return field._replace(first=field.first + ID_BYTES)


def bits_in(frame: Frame, field: Field) -> int:
    """The bits of a field in the id or in the payload of a frame, as an unsigned integer."""
    return after_id(field).read(bytes_of(frame))


_SINGLE, _WORD = Struct("<f"), Struct("<I")


def single_towards_zero(number: float) -> int:
    """The bits of the number in single precision, rounded towards zero; OverflowError if it is too large."""
    data = _SINGLE.pack(number)
    bits: int = _WORD.unpack(data)[0]
    # the number before it: one less as an integer, for both signs
    return bits - 1 if abs(_SINGLE.unpack(data)[0]) > abs(number) else bits


class LinearFields(NamedTuple):
    """Where the numbers are in the frames of a drive with linear ranges; their largest integers are the ends."""

    # in a reply
    position: Field
    velocity: Field
    torque: Field
    # in a command
    command_position: Field
    command_velocity: Field
    command_stiffness: Field
    command_damping: Field
    command_torque: Field
