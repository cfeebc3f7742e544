"""Properties of a node that a fault script depends on: protocol, kind, and its error codes."""

from collections.abc import Iterable
from typing import NamedTuple

from hil.drives.settings import DriveSettings, SensorSettings

CODES = {
    "cia402": (1, 0xFFFF),
    "odrive": (1, 0xFFFF_FFFF),
    "mit": (1, 0xFF),
    "moteus": (32, 95),
    "robstride": (1, 0x3F),
}
"""Protocol -> first and last error code that its frames can hold."""

DAMIAO_CODES = (0x2, 0xF)
"""First and last error code; 0 means disabled and 1 enabled."""


class Target(NamedTuple):
    """A node that a fault can act on.

    Attributes:
        protocol: Its protocol.
        drive: Whether it makes torque.
        status: How an MIT drive reports its status; empty for other protocols.
        fd: Whether its frames are FD frames.
    """

    protocol: str
    drive: bool = True
    status: str = ""
    fd: bool = False

    def unfit_code(self, code: int) -> str | None:
        """Why the protocol cannot report an error code as a fault; None if it can."""
        first, last = DAMIAO_CODES if self.status == "damiao" else CODES[self.protocol]
        if first <= code <= last:
            return None
        spoken = f"{self.protocol} with status {self.status}" if self.status else self.protocol
        return f"expected an error code of {spoken}, {first} to {last}, got {code}"


def targets(nodes: Iterable[SensorSettings]) -> dict[str, Target]:
    """Name of each node -> its properties for fault scripts."""
    return {
        node.name: Target(node.protocol, isinstance(node, DriveSettings), str(node.options.get("status", "")), node.fd)
        for node in nodes
    }
