"""`servoctl list`: the plants, laws, drive protocols and configs that a user can name. `servoctl schema`, `new`."""

import keyword
import re
from contextlib import suppress
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from inspect import getdoc, isabstract
from pathlib import Path
from pkgutil import walk_packages
from shlex import quote
from string import Template
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servoctl.cli.console import say, say_json, say_table
from servoctl.cli.options import AsJson
from servoctl.errors import ConfigError, WriteError

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
    """The word of `law.kind` for a law: the name of its class, in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", path.rpartition(":")[2]).lower()


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


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the files, an identifier.")],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", file_okay=False, help="Output folder; created if missing.")
    ] = Path(),
) -> None:
    """Write a plant, a config and a test to start from."""
    written = write_starter(name, folder)
    for path in written:
        say(str(path))
    config, test = (quote(str(path)) for path in written[1:])
    say(f"next: servoctl run {config}; pytest {test}")


def write_starter(name: str, folder: Path) -> list[Path]:
    """Writes a plant, a config and a test.

    Args:
        name: Stem of the file names, an identifier.
        folder: Output folder; created if it is missing.

    Returns:
        The files, in the order plant, config, test.

    Raises:
        ConfigError: The name is no identifier or hides an installed module, or a file exists already.
        RunFolderError: A file cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or keyword.iskeyword(name):
        raise ConfigError(
            f"servoctl new: NAME: expected an identifier that begins with a letter, got {name!r}"
            f"{' (a word of Python itself)' if keyword.iskeyword(name) else ''}"
        )
    class_name = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    templates = {f"{name}.py": "plant.py", f"{name}.yaml": "config.yaml", f"test_{name}.py": "test.py"}
    paths = [folder / file for file in templates]
    if present := [path for path in paths if path.exists()]:
        raise ConfigError([f"{path}: exists already (choose another name or --dir)" for path in present])
    if find_spec(name) is not None:
        raise ConfigError(f"servoctl new: NAME: {name!r} would hide the installed module {name!r} (choose another)")
    from servoctl.run_folder.files import write_files

    def text(template: str) -> bytes:
        file = files("servoctl.cli") / "templates" / f"{template}.template"
        return Template(file.read_text(encoding="utf-8")).substitute(name=name, class_name=class_name).encode()

    try:
        write_files(folder, [(file, text(template)) for file, template in templates.items()])
    except WriteError:
        for path in paths:  # none existed before; a part of them would be in the way next time
            with suppress(OSError):
                path.unlink()
        raise
    return paths
