"""`servoctl new`: writes a plant, a config and a test to start from."""

import keyword
import re
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from string import Template
from typing import Annotated

import typer

from servoctl.cli.console import say
from servoctl.errors import ConfigError


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the files, an identifier.")],
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Output folder; created if missing.")] = Path(),
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
        raise ConfigError(f"servoctl new: NAME: expected an identifier that begins with a letter, got {name!r}")
    class_name = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    texts = {
        folder / f"{name}.py": "plant.py.template",
        folder / f"{name}.yaml": "config.yaml.template",
        folder / f"test_{name}.py": "test.py.template",
    }
    if present := [path for path in texts if path.exists()]:
        raise ConfigError([f"{path}: exists already (choose another name or --dir)" for path in present])
    if find_spec(name) is not None:
        raise ConfigError(f"servoctl new: NAME: {name!r} would hide the installed module {name!r} (choose another)")
    from servoctl.run_folder.files import unwritable

    templates = files("servoctl.cli") / "templates"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in texts.items():
            text = Template((templates / template).read_text(encoding="utf-8"))
            path.write_text(text.substitute(name=name, class_name=class_name), encoding="utf-8")
    except OSError as error:
        for path in texts:  # none existed before; a part of them would be in the way next time
            with suppress(OSError):
                path.unlink()
        raise unwritable(Path(error.filename or folder), error) from error
    return list(texts)
