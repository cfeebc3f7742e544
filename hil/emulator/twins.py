"""The emulation of a protocol: its nodes, its reader of commands, and what a fault script must know of it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.commands import CommandReader
from hil.emulator.node import EmulatedDrive, EmulatedNode


class Twin(NamedTuple):
    """The emulation of a protocol."""

    drive: type[EmulatedDrive]  # class of an emulated drive
    reader: type[CommandReader]  # class that reads the loop's commands to a drive; it shares no code with `drive`
    sensor: type[EmulatedNode] | None = None  # class of an emulated encoder node; None if the protocol has none


ANY_CODE = (0, 0xFFFF_FFFF)  # first and last error code where the protocol is not known


class Target(NamedTuple):
    """A node that a fault can act on."""

    protocol: str
    drive: bool  # whether it makes torque
    fd: bool  # whether its frames are FD frames
    # kinds of fault that it can have, apart from those that every node can have; None: all
    special_faults: frozenset[str] | None
    codes: tuple[int, int]  # first and last error code that its frames can hold
    status: str  # how it reports its status, if the protocol has several ways; empty otherwise

    def has(self, kind: str) -> bool:
        """Whether it can have a kind of fault that not every node can have."""
        return self.special_faults is None or kind in self.special_faults

    def unfit_code(self, code: int) -> str | None:
        """Why the protocol cannot report an error code as a fault; None if it can."""
        first, last = self.codes
        if first <= code <= last:
            return None
        spoken = f"{self.protocol} with status {self.status}" if self.status else self.protocol
        return f"expected an error code of {spoken}, {first} to {last}, got {code}"


def targets(nodes: Iterable[SensorSettings], twins: Mapping[str, Twin]) -> dict[str, Target]:
    """Name of each node -> its properties for fault scripts.

    Args:
        nodes: Settings of drives and encoder nodes.
        twins: Protocol -> its emulation; a node of another protocol counts as one that can have every fault.
    """
    return {node.name: _target(node, twins.get(node.protocol)) for node in nodes}


def _target(node: SensorSettings, twin: Twin | None) -> Target:
    drive, status = isinstance(node, DriveSettings), str(node.options.get("status", ""))
    if twin is None:
        return Target(node.protocol, drive, node.fd, None, ANY_CODE, status)
    kind = twin.drive if drive else twin.sensor
    special = frozenset() if kind is None else kind.special_faults
    return Target(node.protocol, drive, node.fd, special, twin.drive.error_codes(node), status)
