"""`servoctl list`: the plants, laws, drive protocols and configs that a user can name. `servoctl schema`."""

from importlib import import_module
from inspect import getdoc, isabstract
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Any

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson
from servoctl.errors import ConfigError

if TYPE_CHECKING:
    from hil.protocols.registry import ProtocolEntry


def list_all(as_json: AsJson = False) -> None:
    """List plants, laws, drive protocols and configs."""
    listed = contents()
    if as_json:
        say_json(listed)
        return
    for number, (kind, entries) in enumerate(listed.items()):
        if number:
            say()
        say_table([kind, ""], [[name, sentence] for name, sentence in entries.items()] or [["none yet", ""]])


def contents() -> dict[str, dict[str, str]]:
    """Kind -> name as a config writes it -> a description in one line."""
    import plants
    from hil.protocols.registry import entries
    from servoctl import laws
    from servoctl.config import first_line, shipped_configs
    from servoctl.laws.law import Law
    from servoctl.mechanics.plant import Plant

    return {
        "plants": _described(plants, Plant),
        "laws": {_kind(path): sentence for path, sentence in _described(laws, Law).items()},
        "drives": {name: _described_protocol(entry) for name, entry in entries().items()},
        "configs": {name: first_line(path) for name, path in sorted(shipped_configs().items())},
    }


def _described_protocol(entry: "ProtocolEntry") -> str:
    """The first line of the docstring of the driver's module, and its origin if that is another package."""
    from hil.protocols.registry import OWN

    try:
        module = entry.load().drive_class().__module__
    except ConfigError as error:
        return f"unusable: {error}"
    sentence = (getdoc(import_module(module)) or "").partition("\n")[0]
    return sentence if entry.origins == (OWN,) else f"{sentence} [{entry.origins[0]}]"


def _kind(path: str) -> str:
    """The word of `law.kind` for a law: the name of its module."""
    return path.partition(":")[0].rpartition(".")[2]


def _described(package: ModuleType, base: type[Any]) -> dict[str, str]:
    """`module:Class` -> description, for the concrete subclasses of `base` that a package defines.

    The description comes from the module if it defines one such class, else from each class.
    """
    described = {}
    for info in walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(info.name)
        classes = [
            member
            for member in vars(module).values()
            if isinstance(member, type) and issubclass(member, base) and not isabstract(member)
            if member.__module__ == module.__name__
        ]
        for each in classes:
            sentence = getdoc(module if len(classes) == 1 else each) or ""
            described[f"{module.__name__}:{each.__name__}"] = sentence.partition("\n")[0]
    return described


def schema() -> None:
    """Print the JSON Schema of a config."""
    from servoctl.config import json_schema

    say_json(json_schema())
