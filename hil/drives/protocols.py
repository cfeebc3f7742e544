"""The protocols there are: name -> what builds a drive or an encoder node that speaks it."""

from importlib import import_module
from typing import Any, NamedTuple

from hil.drives.base import Node
from hil.drives.options import in_sentences, read_options
from hil.drives.settings import DriveSettings, SensorSettings
from servoctl.config.document import Problem
from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy


class Protocol(NamedTuple):
    """A protocol; its classes are imported only once a config names it.

    Attributes:
        drive: Module and class of a drive.
        sensor: Module and class of an encoder node; empty where the protocol offers none.
    """

    drive: str
    sensor: str


PROTOCOLS = {
    "cia402": Protocol("hil.drives.cia402:Cia402Drive", "hil.drives.cia402_encoder:Cia402Encoder"),
    "mit": Protocol("hil.drives.mit:MitDrive", ""),
    "odrive": Protocol("hil.drives.odrive:OdriveDrive", "hil.drives.odrive_encoder:OdriveEncoder"),
}


def node_class(settings: SensorSettings) -> Any:
    """The class of a drive, or of an encoder node, of the protocol in the settings.

    Raises:
        ConfigError: There is no such protocol, or it has no encoder nodes.
    """
    protocol = PROTOCOLS.get(settings.protocol)
    if protocol is None:
        what = f"no protocol {settings.protocol!r} ({remedy(settings.protocol, PROTOCOLS)})"
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), what)]))
    path = protocol.drive if isinstance(settings, DriveSettings) else protocol.sensor
    if not path:
        able = ", ".join(word for word, each in PROTOCOLS.items() if each.sensor)
        what = f"{settings.protocol} has no encoder nodes: it measures only in reply to commands (use: {able})"
        raise ConfigError(in_sentences(settings, [Problem(("protocol",), what)]))
    module, name = path.split(":")
    return getattr(import_module(module), name)


def problems(settings: SensorSettings, period: float) -> list[Problem]:
    """Everything that is wrong with what a config says of a node, by field; empty where it can be built.

    Args:
        settings: Of the node; its protocol is one of `PROTOCOLS`.
        period: Of the loop [s].
    """
    kind = node_class(settings)
    options, found = read_options(kind.Options, settings.options)
    return found if options is None else kind.problems(settings, options, period)


def options_problems(settings: SensorSettings) -> list[Problem]:
    """What of that its options alone show, whatever the period."""
    return read_options(node_class(settings).Options, settings.options)[1]


def build(settings: SensorSettings, period: float) -> Node:
    """The driver of a node: a `Drive` where the settings are a drive's.

    Args:
        settings: Of the node.
        period: Of the loop [s].

    Raises:
        ConfigError: The settings do not fit the protocol; carries every problem.
    """
    found = problems(settings, period)
    if found:
        raise ConfigError(in_sentences(settings, found))
    node: Node = node_class(settings)(settings, period)
    return node
