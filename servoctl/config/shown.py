"""Paths in messages."""

from pathlib import Path


def shown(path: Path) -> str:
    """A path relative to the current folder, if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
