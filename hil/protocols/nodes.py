"""The nodes that a config asks for: their drivers, their problems and their emulation."""

from collections.abc import Iterable, Iterator
from math import floor, log10
from typing import cast

from hil.drives.base import Drive, FrameEnds, Node
from hil.drives.options import in_sentences, read_options
from hil.drives.settings import RUNAWAY, DriveSettings, SensorSettings
from hil.emulator.twins import Twin
from hil.protocols.registry import BUILT_IN, protocol
from servoctl.config.document import Problem
from servoctl.errors import ConfigError


def node_class(settings: SensorSettings) -> type[Node]:
    """The driver class for the settings, of a drive or of an encoder node.

    Raises:
        ConfigError: The protocol does not exist, has no encoder nodes, or its package is broken.
    """
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


def problems(settings: SensorSettings, period: float) -> list[Problem]:
    """All problems of a node's settings, by field; empty if its driver can be built.

    Args:
        settings: Settings of the node.
        period: Period of the loop [s].

    Raises:
        ConfigError: As `node_class`.
    """
    kind = node_class(settings)
    options, wrong = read_options(kind.Options, settings.options)
    wrong = wrong if options is None else kind.problems(settings, options, period)
    if wrong or not isinstance(settings, DriveSettings):
        return wrong
    return list(_beyond_frames(settings, cast(type[Drive], kind).ends(settings)))


def _beyond_frames(settings: DriveSettings, ends: FrameEnds) -> Iterator[Problem]:
    """Limits that the frames of a drive cannot say: whatever is beyond them would look like the end of the range."""
    gear, limit = settings.gear, settings.speed_limit
    position = max(abs(settings.motor(each)) for each in settings.position_limits)
    if position > ends.position:
        what = f"{settings.position_limits} at the joint is up to {position:.4g} rad at the motor"
        yield Problem(
            ("position_limits",), f"{what}, its range ends at {ends.position:.4g} rad (check gear and offset)"
        )
    if (torque := settings.torque_limit / gear) > ends.torque:
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


def options_problems(settings: SensorSettings) -> list[Problem]:
    """The problems of a node's options alone, which do not depend on the period."""
    return read_options(node_class(settings).Options, settings.options)[1]


def build(settings: SensorSettings, period: float) -> Node:
    """The driver of a node: a `Drive` for the settings of a drive.

    Args:
        settings: Settings of the node.
        period: Period of the loop [s].

    Raises:
        ConfigError: The settings do not fit the protocol; the error has all problems.
    """
    wrong = problems(settings, period)
    if wrong:
        raise ConfigError(in_sentences(settings, wrong))
    return node_class(settings)(settings, period)


def twins(nodes: Iterable[SensorSettings], lenient: bool = False) -> dict[str, Twin]:
    """Protocol -> its emulation, for the protocols of these nodes.

    Args:
        nodes: Settings of drives and encoder nodes.
        lenient: Whether protocols that cannot be loaded are left out.

    Raises:
        ConfigError: A protocol cannot be loaded.
    """
    found = {}
    for name in dict.fromkeys(node.protocol for node in nodes):
        try:
            found[name] = protocol(name).twin()
        except ConfigError as error:
            if not lenient:
                raise ConfigError(f"emulation of protocol {name!r}: {error}") from error
    return found
