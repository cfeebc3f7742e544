"""Where a number lies in a payload: read by Python's codecs and by the tick in C, so that its place is written once."""

from collections.abc import Callable
from itertools import pairwise
from struct import Struct
from typing import Literal, NamedTuple


class Field(NamedTuple):
    """An integer, or a float of single precision, in a payload."""

    first: int  # its first byte; -4 to -1 are the bytes of the frame's id, the highest first
    size: int  # its bytes
    kind: str = "unsigned"  # `unsigned`, `signed` or `float`
    big: bool = False  # whether its highest byte comes first
    shift: int = 0  # bits of its last byte that belong to the next number
    bits: int = 0  # its bits after the shift; 0: all

    @property
    def code(self) -> str:
        """Its letter in a format of `struct`, for whole bytes."""
        letter = {1: "B", 2: "H", 4: "I"}[self.size]
        return {"unsigned": letter, "signed": letter.lower(), "float": "f"}[self.kind]

    @property
    def mask(self) -> int:
        """Its bits, after the shift."""
        return (1 << (self.bits or 8 * self.size - self.shift)) - 1

    def reader(self) -> Callable[[bytes], int]:
        """A function that reads its bits in a payload."""
        first, last, order, shift, mask = self.first, self.first + self.size, self._order, self.shift, self.mask
        return lambda data: int.from_bytes(data[first:last], order) >> shift & mask

    @property
    def _order(self) -> Literal["big", "little"]:
        return "big" if self.big else "little"


def layout(*fields: Field) -> Struct:
    """The fields of a payload, without gaps, all in the byte order of the first."""
    assert all(
        before.first + before.size == after.first and before.big == after.big for before, after in pairwise(fields)
    )
    return Struct((">" if fields[0].big else "<") + "".join(field.code for field in fields))


_SINGLE, _WORD = Struct("<f"), Struct("<I")


def single_towards_zero(number: float) -> bytes:
    """The number in single precision, little endian, rounded towards zero.

    Raises:
        OverflowError: It is too large.
    """
    data = _SINGLE.pack(number)
    if abs(_SINGLE.unpack(data)[0]) > abs(number):  # the number before it: one less as an integer, for both signs
        return _WORD.pack(_WORD.unpack(data)[0] - 1)
    return data
