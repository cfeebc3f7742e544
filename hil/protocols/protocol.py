"""What a protocol consists of: the classes that drive its nodes, and those that emulate them."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hil.drives.base import Drive, Node
from hil.emulator.node import EmulatedDrive, EmulatedNode
from servoctl.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """The classes of a protocol, each as `module:Class`; a class is imported when it is needed."""

    drive: str  # driver of a drive, a `hil.drives.base.Drive`
    emulated_drive: str  # emulated drive, a `hil.emulator.node.EmulatedDrive`
    sensor: str = ""  # driver of an encoder node, a `hil.drives.base.Node`; empty if the protocol has none
    emulated_sensor: str = ""  # emulated encoder node, a `hil.emulator.node.EmulatedNode`; empty if it has none

    def drive_class(self) -> type[Drive]:
        """The driver of a drive; ConfigError if it cannot be imported, or is no driver of a drive."""
        return _loaded(self.drive, Drive)

    def sensor_class(self) -> type[Node] | None:
        """The driver of an encoder node, None if there is none; the errors are those of `drive_class`."""
        return _loaded(self.sensor, Node) if self.sensor else None

    def emulated_drive_class(self) -> type[EmulatedDrive]:
        """The emulated drive; the errors are those of `drive_class`."""
        return _loaded(self.emulated_drive, EmulatedDrive)

    def emulated_sensor_class(self) -> type[EmulatedNode] | None:
        """The emulated encoder node, None if there is none; the errors are those of `drive_class`."""
        return _loaded(self.emulated_sensor, EmulatedNode) if self.emulated_sensor else None


def _loaded(path: str, base: type[Any]) -> type[Any]:
    """The class at `module:Class`, which has all methods of the base class."""
    found = imported(path)
    wanted = f"expected a class derived from {base.__module__}.{base.__name__}"
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{path} is {found!r} ({wanted})")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{path} does not define {', '.join(missing)} ({wanted})")
    return found


def imported(path: str) -> Any:
    """What `module:name` names; ConfigError if the module cannot be imported, or has no such name."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # of a package that servoctl does not know: its import may fail in any way
        raise ConfigError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
