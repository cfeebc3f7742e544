"""Paths as messages show them."""

from pathlib import Path


def shown(path: Path) -> str:
    """A path as short as a person in this folder would write it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
