"""The shipped configs, and the file of a config's name on the command line."""

import os
from importlib import resources
from pathlib import Path

from servoctl.errors import ConfigError
from servoctl.expression.suggest import remedy, suggestion

SUFFIXES = (".yaml", ".yml")


def shipped_configs() -> dict[str, Path]:
    """Name -> file of every shipped config, in alphabetical order.

    In an installation they are inside the package, in a checkout next to it.
    """
    package = Path(str(resources.files("servoctl.config"))).parent
    for folder in (package / "configs", package.parent / "configs"):
        if folder.is_dir():
            return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    return {}


def first_line(path: Path) -> str:
    """Description of a config: the comment in its first line, without the name of the file.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline().strip()
    if not line.startswith("#"):
        return ""
    before, colon, after = line.lstrip("# ").partition(":")
    return after.strip() if colon and before.endswith(path.name) else line.lstrip("# ")


def find_config(source: str | Path) -> Path:
    """The file of a path, or of the bare name of a shipped config.

    Raises:
        ConfigError: There is no such file and no such shipped config.
    """
    text, shipped = str(source), shipped_configs()
    path = Path(source)
    if isinstance(source, str) and source in shipped:
        return shipped[source]
    if os.path.lexists(path):
        return path
    bare = isinstance(source, str) and path.name == source and path.suffix not in SUFFIXES
    if bare:
        raise ConfigError(f"{text!r}: no config has this name ({remedy(text, shipped)}; or give a path)")
    siblings = [file.name for file in path.parent.glob("*.y*ml")] if os.path.isdir(path.parent) else []
    hint = suggestion(path.name, siblings) or suggestion(path.stem, shipped) or "check the path"
    raise ConfigError(f"{text}: no such file ({hint})")
