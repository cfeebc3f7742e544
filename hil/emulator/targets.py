"""What a scripted fault needs to know of the node that it concerns, and the error codes that fit there."""

from collections.abc import Iterable
from typing import NamedTuple

from hil.drives.settings import DriveSettings, SensorSettings

LARGEST_CODE = {"cia402": 0xFFFF, "odrive": 0xFFFF_FFFF, "mit": 0xFF}
"""Protocol -> largest error code that its frames can hold."""

DAMIAO_CODES = (0x2, 0xF)
"""First and last: 0 and 1 say disabled and enabled."""


class Target(NamedTuple):
    """A node that a fault may concern.

    Attributes:
        protocol: What it speaks.
        drive: Whether it makes torque.
        status: How it says its status, where its protocol leaves that open (MIT); empty elsewhere.
    """

    protocol: str
    drive: bool = True
    status: str = ""

    def unfit_code(self, code: int) -> str | None:
        """What is wrong with an error code, which must fit into the frame that says it and mean a fault there."""
        first, last = DAMIAO_CODES if self.status == "damiao" else (1, LARGEST_CODE[self.protocol])
        if first <= code <= last:
            return None
        spoken = f"{self.protocol} with status {self.status}" if self.status else self.protocol
        return f"expected an error code of {spoken}, {first} to {last}, got {code}"


def targets(nodes: Iterable[SensorSettings]) -> dict[str, Target]:
    """Name -> what a fault needs to know of a node."""
    return {
        node.name: Target(node.protocol, isinstance(node, DriveSettings), str(node.options.get("status", "")))
        for node in nodes
    }
