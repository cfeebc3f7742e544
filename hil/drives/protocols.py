"""Which protocols exist, and the driver that a config's settings ask for."""

from importlib import import_module
from typing import Any, NamedTuple

from hil.drives.base import Node
from hil.drives.options import in_sentences, read_options
from hil.drives.settings import DriveSettings, SensorSettings
from servoctl.config.document import Problem
from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy


class Protocol(NamedTuple):
    """The driver classes of a protocol; they are imported when a config names it.

    Attributes:
        drive: Module and class of a drive.
        sensor: Module and class of an encoder node; empty if the protocol has none.
    """

    drive: str
    sensor: str


PROTOCOLS = {
    "cia402": Protocol("hil.drives.cia402:Cia402Drive", "hil.drives.cia402_encoder:Cia402Encoder"),
    "mit": Protocol("hil.drives.mit:MitDrive", ""),
    "moteus": Protocol("hil.drives.moteus:MoteusDrive", ""),
    "odrive": Protocol("hil.drives.odrive:OdriveDrive", "hil.drives.odrive_encoder:OdriveEncoder"),
    "robstride": Protocol("hil.drives.robstride:RobstrideDrive", ""),
}


def node_class(settings: SensorSettings) -> Any:
    """The driver class for the settings, of a drive or of an encoder node.

    Raises:
        ConfigError: The protocol does not exist, or has no encoder nodes.
    """
    protocol = PROTOCOLS.get(settings.protocol)
    if protocol is None:
        what = f"no protocol {settings.protocol!r} ({remedy(settings.protocol, PROTOCOLS)})"
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), what)]))
    path = protocol.drive if isinstance(settings, DriveSettings) else protocol.sensor
    if not path:
        capable = ", ".join(word for word, each in PROTOCOLS.items() if each.sensor)
        what = f"{settings.protocol} has no encoder nodes: it measures only in reply to commands (use: {capable})"
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), what)]))
    module, name = path.split(":")
    return getattr(import_module(module), name)


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
        settings: Settings of the node; the protocol is one of `PROTOCOLS`.
        period: Period of the loop [s].
    """
    kind = node_class(settings)
    options, wrong = read_options(kind.Options, settings.options)
    return wrong if options is None else kind.problems(settings, options, period)


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
    node: Node = node_class(settings)(settings, period)
    return node
