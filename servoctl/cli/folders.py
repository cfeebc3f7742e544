"""Chooses the folder that a command writes, if `--out` does not name one."""

from datetime import datetime
from itertools import count
from pathlib import Path

from servoctl.errors import ConfigError


def fresh_folder(name: str) -> Path:
    """A folder below `runs` that does not exist yet: `<name>-<date>-<time>`."""
    stem = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    return next(path for path in names if not path.exists())


def study_folder(name: str, out: Path | None, resume: bool, file: str) -> Path:
    """The folder of a sweep or a search.

    Args:
        name: Beginning of the folder's name.
        out: The argument of `--out`.
        resume: Whether the folder must exist.
        file: Name of the file that an interrupted study leaves.

    Raises:
        ConfigError: `resume` without `--out`; the message names the newest folder.
    """
    if out is not None or not resume:
        return out or fresh_folder(name)
    folders = sorted(Path("runs").glob(f"{name}-*/{file}"), key=lambda path: path.stat().st_mtime)
    hint = f"the newest: --out {folders[-1].parent}" if folders else f"no folder matches runs/{name}-*"
    raise ConfigError(f"--resume: needs --out ({hint})")
