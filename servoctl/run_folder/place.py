"""Where a run folder lies: it belongs to one run, which follows it when a later run at the same path moves it aside."""

import contextlib
import glob
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from servoctl.errors import WriteError
from servoctl.run_folder.files import FILES, SUMMARY

Written = TypeVar("Written")


class Place:
    """The folder of a run that goes on.

    Args:
        path: An existing folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # where it lay when it was last looked for
        self._inode = path.stat().st_ino

    def follow(self) -> Path:
        """Looks for the folder, which a later run may have moved aside.

        Raises:
            WriteError: It is neither there nor aside.
        """
        aside = self.path.parent.glob(f"{glob.escape(self.path.name)}.*")
        for path in itertools.chain([self.path], aside):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:
                    self.path = path
                    return path
        raise WriteError(f"{self.path}: the folder was moved or deleted during the run")

    def write(self, write: Callable[[Path], Written]) -> Written:
        """Writes a file into the folder, again if a later run moves the folder aside meanwhile."""
        path = self.follow()
        try:
            return write(path)
        except OSError:
            if self.follow() == path:
                raise
            return write(self.path)


def claim(path: Path) -> Path | None:
    """Makes the folder for one run alone, even if several begin at once; returns where an earlier run was moved to."""
    moved_to: Path | None = None
    while True:
        with contextlib.suppress(FileNotFoundError):  # another run has just moved it
            moved_to = _move_aside(path) or moved_to
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # another run has just begun here
            (path / SUMMARY).touch(exist_ok=False)
            return moved_to


def _move_aside(path: Path) -> Path | None:
    if not any((path / name).exists() for name in FILES):
        return None
    if Path.cwd().is_relative_to(path):
        raise WriteError(f"{path}: holds a run, and is or contains the working folder (choose another folder)")
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.{number}")
        if not os.path.lexists(aside):
            break
    return path.rename(aside)
