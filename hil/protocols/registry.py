"""All protocols by name, servoctl's own and those of installed packages; the nodes that a config asks for.

Design: a package brings a protocol by an entry point of the group `servoctl.drives`, whose name is the word of
`protocol` in a config and whose value is the place of a `Protocol`. Nothing of a package is imported until a config
names its protocol. A name that two packages bring is refused: which one drives a motor must never depend on the order
of their installation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from math import floor, log10
from typing import NamedTuple, TypeVar, cast

from hil.drives.base import Drive, Node
from hil.drives.options import in_sentences, read_options
from hil.drives.settings import RUNAWAY, DriveSettings, SensorSettings
from hil.emulator.node import EmulatedNode
from hil.protocols.protocol import Protocol, imported
from servoctl.config.document import Problem
from servoctl.errors import ConfigError, remedy

S = TypeVar("S", bound=SensorSettings)

GROUP = "servoctl.drives"  # group of the entry points that bring protocols
OWN = "servoctl"  # origin of the protocols in `BUILT_IN`


def _own(module: str, driver: str, twin: str, sensor: bool = False) -> Protocol:
    """One of servoctl's own protocols, from the names of its module, of its drivers and of its emulation."""
    drivers, emulation = f"hil.drives.{module}", f"hil.emulator.{module}"
    encoders = (f"{drivers}:{driver}Encoder", f"{emulation}:{twin}Encoder") if sensor else ()
    return Protocol(f"{drivers}:{driver}Drive", f"{emulation}:{twin}", *encoders)


BUILT_IN = {  # word of `protocol` in a config -> its classes
    "cia402": _own("cia402", "Cia402", "CiA402", sensor=True),
    "mit": _own("mit", "Mit", "Mit"),
    "moteus": _own("moteus", "Moteus", "Moteus"),
    "odrive": _own("odrive", "Odrive", "ODrive", sensor=True),
    "robstride": _own("robstride", "Robstride", "RobStride"),
}


class ProtocolEntry(NamedTuple):
    """A protocol that a config can name."""

    name: str
    origins: tuple[str, ...]  # the packages that bring it, with their versions; a usable protocol has one
    place: str = ""  # place of its `Protocol` as `module:name`; empty for servoctl's own

    def load(self) -> Protocol:
        """The protocol; ConfigError if several packages bring it, it cannot be imported, or it is no `Protocol`."""
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
    """All protocols by name; nothing is imported. `entries.cache_clear()` where packages were installed meanwhile."""
    found = {name: ProtocolEntry(name, (OWN,)) for name in BUILT_IN}
    for point in entry_points(group=GROUP):
        before = found.get(point.name)
        origins = (*(before.origins if before else ()), _origin(point))
        found[point.name] = ProtocolEntry(point.name, tuple(dict.fromkeys(origins)), point.value)
    return dict(sorted(found.items()))


def _origin(point: EntryPoint) -> str:
    return "a package without a name" if point.dist is None else f"{point.dist.name} {point.dist.version}"


@cache
def protocol(name: str) -> Protocol:
    """A protocol by name; ConfigError if no package brings it, or the one that does is broken."""
    known = entries()
    if name not in known:
        raise ConfigError(f"no protocol {name!r} ({remedy(name, known)})")
    return known[name].load()


def node_class(settings: SensorSettings) -> type[Node]:
    """The driver class for the settings; ConfigError if there is none for such a node, or its package is broken."""
    try:
        found = protocol(settings.protocol)
        kind = found.drive_class() if isinstance(settings, DriveSettings) else found.sensor_class()
    except ConfigError as error:
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), str(error))])) from error
    if kind is None:
        capable = ", ".join(word for word, each in BUILT_IN.items() if each.sensor)
        what = f"{settings.protocol} has no encoder nodes: it measures only in reply to commands (use: {capable})"
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), what)]))
    return kind


def on_emulated_bus(settings: S) -> S:
    """The settings of a node on an emulated bus, with the options that only a real node must state."""
    try:
        options = node_class(settings).on_emulated_bus
    except ConfigError:  # there is no such node, which is named elsewhere
        return settings
    return replace(settings, options={**options, **settings.options})


def classic_problem(settings: SensorSettings) -> str:
    """Why a node cannot be on its FD bus; empty if it can, if the bus is classic, or if its protocol is wrong."""
    if not settings.fd:
        return ""
    try:
        kind = node_class(settings)
    except ConfigError:
        return ""
    if kind.speaks_fd(settings):
        return ""
    what = f"{settings.name} speaks classic CAN, and bus '{settings.bus}' carries FD frames, which it would destroy"
    remedies = [*filter(None, [kind.fd_remedy]), "give it a bus without fd"]
    return f"{what} ({'; or '.join(remedies)})"


def problems(settings: SensorSettings, period: float | None) -> list[Problem]:
    """All problems of a node's settings, by field; empty if its driver can be built. Raises as `node_class`.

    Without a period those of its options alone, which do not depend on it.
    """
    kind = node_class(settings)
    options, wrong = read_options(kind.Options, settings.options)
    if period is None:
        return wrong
    wrong = wrong if options is None else kind.problems(settings, options, period)
    if wrong or not isinstance(settings, DriveSettings):
        return wrong
    return list(_beyond_frames(cast(Drive, kind(settings, period))))


def _beyond_frames(drive: Drive) -> Iterator[Problem]:
    """Limits that the frames of a drive cannot say: whatever is beyond them would look like the end of the range."""
    settings, ends = drive.settings, drive.ends
    gear, limit = settings.gear, settings.speed_limit
    position = max(abs(settings.motor(each)) for each in settings.position_limits)
    if position > ends.position:
        what = f"{settings.position_limits} at the joint is up to {position:.4g} rad at the motor"
        yield Problem(
            ("position_limits",), f"{what}, its range ends at {ends.position:.4g} rad (check gear and offset)"
        )
    if (torque := settings.motor_limit) > ends.torque:
        what = f"{settings.torque_limit} at the joint is {torque:.4g} N m at the motor"
        yield Problem(("torque_limit",), f"{what}, its range ends at {ends.torque:.6g} N m (lower it)")
    if (speed := RUNAWAY * limit * gear) > ends.speed:
        what = f"{RUNAWAY:g} times {limit:g}, from where on the drives go off, is {speed:.4g} rad/s at the motor"
        most = _rounded_down(ends.speed / gear / RUNAWAY)
        remedy = f"lower it to at most {most:g}, or take a motor or gear for more"
        yield Problem(
            ("speed_limit",),
            f"{what}, its range ends at {ends.speed:.4g} rad/s, and all that is faster looks like that ({remedy})",
        )


def _rounded_down(value: float) -> float:
    """A limit in three digits, not above the value."""
    step = 10.0 ** (floor(log10(value)) - 2)
    return floor(value / step) * step


def build(settings: SensorSettings, period: float) -> Node:
    """The driver of a node, a `Drive` for the settings of a drive; ConfigError with all problems."""
    wrong = problems(settings, period)
    if wrong:
        raise ConfigError(in_sentences(settings, wrong))
    return node_class(settings)(settings, period)


def emulations(nodes: Iterable[SensorSettings], lenient: bool = False) -> dict[str, type[EmulatedNode]]:
    """Name of each node -> the class that emulates it.

    ConfigError for the first that cannot be loaded, or does not exist; `lenient`: such nodes are left out.
    """
    classes = {}
    for node in nodes:
        try:
            found = protocol(node.protocol)
            drive = isinstance(node, DriveSettings)
            kind = found.emulated_drive_class() if drive else found.emulated_sensor_class()
            if kind is None:
                raise ConfigError(f"it emulates no encoder nodes, such as {node.name}")
            classes[node.name] = kind
        except ConfigError as error:
            if not lenient:
                raise ConfigError(f"emulation of protocol {node.protocol!r}: {error}") from error
    return classes
