"""`servoctl list`: lists the plants, laws, drive protocols and configs that a user can name."""

from importlib import import_module
from inspect import getdoc, isabstract
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson


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
    from hil.drives.protocols import PROTOCOLS
    from servoctl import laws
    from servoctl.config import first_line, shipped_configs
    from servoctl.laws.law import Law
    from servoctl.mechanics.plant import Plant

    return {
        "plants": _described(plants, Plant),
        "laws": {_kind(path): sentence for path, sentence in _described(laws, Law).items()},
        "drives": {name: _sentence(protocol.drive) for name, protocol in PROTOCOLS.items()},
        "configs": {name: first_line(path) for name, path in sorted(shipped_configs().items())},
    }


def _sentence(path: str) -> str:
    """The first line of the docstring of the module in `module:Class`."""
    return (getdoc(import_module(path.partition(":")[0])) or "").partition("\n")[0]


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
