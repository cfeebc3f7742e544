"""All protocols by name: the table of servoctl's own, and the entry points of installed packages.

Design: a package brings a protocol by an entry point of the group `servoctl.drives`, whose name is the word of
`protocol` in a config and whose value is the place of a `Protocol`. Nothing of a package is imported until a config
names its protocol. A name that two packages bring is refused: which one drives a motor must never depend on the order
of their installation.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from hil.protocols.protocol import Protocol, imported
from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy

GROUP = "servoctl.drives"  # group of the entry points that bring protocols
OWN = "servoctl"  # origin of the protocols in `BUILT_IN`

BUILT_IN = {
    "cia402": Protocol(
        drive="hil.drives.cia402:Cia402Drive",
        sensor="hil.drives.cia402_encoder:Cia402Encoder",
        emulated_drive="hil.emulator.cia402:CiA402",
        emulated_sensor="hil.emulator.cia402:CiA402Encoder",
        reader="hil.emulator.readers:CiA402Reader",
    ),
    "mit": Protocol(
        drive="hil.drives.mit:MitDrive",
        emulated_drive="hil.emulator.mit:Mit",
        reader="hil.emulator.readers:MitReader",
    ),
    "moteus": Protocol(
        drive="hil.drives.moteus:MoteusDrive",
        emulated_drive="hil.emulator.moteus:Moteus",
        reader="hil.emulator.readers:MoteusReader",
    ),
    "odrive": Protocol(
        drive="hil.drives.odrive:OdriveDrive",
        sensor="hil.drives.odrive_encoder:OdriveEncoder",
        emulated_drive="hil.emulator.odrive:ODrive",
        emulated_sensor="hil.emulator.odrive:ODriveEncoder",
        reader="hil.emulator.readers:ODriveReader",
    ),
    "robstride": Protocol(
        drive="hil.drives.robstride:RobstrideDrive",
        emulated_drive="hil.emulator.robstride:RobStride",
        reader="hil.emulator.readers:RobStrideReader",
    ),
}
"""Word of `protocol` in a config -> its classes."""


class ProtocolEntry(NamedTuple):
    """A protocol that a config can name."""

    name: str
    origins: tuple[str, ...]  # the packages that bring it, with their versions; a usable protocol has one
    place: str = ""  # place of its `Protocol` as `module:name`; empty for servoctl's own

    def load(self) -> Protocol:
        """The protocol.

        Raises:
            ConfigError: Several packages bring it, it cannot be imported, or it is no `Protocol`.
        """
        if len(self.origins) > 1:
            raise ConfigError(f"{' and '.join(self.origins)} both bring protocol {self.name!r} (uninstall one)")
        if not self.place:
            return BUILT_IN[self.name]
        try:
            found = imported(self.place)
        except ConfigError as error:
            raise ConfigError(f"{self.origins[0]}: {error} (repair the package, or uninstall it)") from error
        if not isinstance(found, Protocol):
            what = f"{self.place} is {found!r}, not a hil.protocols.protocol.Protocol"
            raise ConfigError(f"{self.origins[0]}: {what} (repair the package, or uninstall it)")
        return found


@cache
def entries() -> dict[str, ProtocolEntry]:
    """All protocols by name; nothing is imported.

    Call `entries.cache_clear()` after packages were installed while the program runs.
    """
    found = {name: ProtocolEntry(name, (OWN,)) for name in BUILT_IN}
    for point in entry_points(group=GROUP):
        before = found.get(point.name)
        origins = (*(before.origins if before else ()), _origin(point))
        found[point.name] = ProtocolEntry(point.name, tuple(dict.fromkeys(origins)), point.value)
    return dict(sorted(found.items()))


def _origin(point: EntryPoint) -> str:
    """Name and version of the package that has an entry point."""
    return "a package without a name" if point.dist is None else f"{point.dist.name} {point.dist.version}"


@cache
def protocol(name: str) -> Protocol:
    """A protocol by name.

    Raises:
        ConfigError: No package brings it, or the one that does is broken.
    """
    known = entries()
    if name not in known:
        raise ConfigError(f"no protocol {name!r} ({remedy(name, known)})")
    return known[name].load()
