"""Where a number lies in a payload: read by Python's codecs and by the tick in C, so that its place is written once."""

from itertools import pairwise
from struct import Struct
from typing import NamedTuple


class Field(NamedTuple):
    """An integer, or a float of single precision, in a payload.

    Attributes:
        first: Its first byte.
        size: Its bytes.
        kind: `unsigned`, `signed` or `float`.
        big: Whether its highest byte comes first.
        shift: Bits of its last byte that belong to the next number.
        bits: Its bits after the shift; 0: all.
    """

    first: int
    size: int
    kind: str = "unsigned"
    big: bool = False
    shift: int = 0
    bits: int = 0

    @property
    def code(self) -> str:
        """Its letter in a format of `struct`, for whole bytes."""
        letter = {1: "B", 2: "H", 4: "I"}[self.size]
        return {"unsigned": letter, "signed": letter.lower(), "float": "f"}[self.kind]


def layout(*fields: Field) -> Struct:
    """The fields of a payload, in little-endian order, without gaps."""
    assert all(before.first + before.size == after.first for before, after in pairwise(fields))
    return Struct("<" + "".join(field.code for field in fields))
