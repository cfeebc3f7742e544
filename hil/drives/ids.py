"""Which CAN ids nodes use."""

from typing import NamedTuple


class IdFamily(NamedTuple):
    """Ids of 29 bits that hold data: all that agree in some bits."""

    mask: int  # those bits
    value: int

    def __contains__(self, identity: object) -> bool:
        return isinstance(identity, int) and identity & self.mask == self.value


class Ids(NamedTuple):
    """Ids of one node; those above 0x7FF have 29 bits."""

    exclusive: frozenset[int]  # ids that no other node may use
    shared: frozenset[int] = frozenset()  # ids that nodes of the same protocol may share
