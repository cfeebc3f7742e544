"""Where text goes: results on stdout, everything about them on stderr."""

import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from servoctl.cli.interrupt import heed

if TYPE_CHECKING:
    from rich.progress import Progress


def say(text: str = "") -> None:
    """Prints a line of the result on stdout."""
    typer.echo(text)


def note(text: str) -> None:
    """Prints a line about the result on stderr."""
    typer.echo(text, err=True)


def say_json(value: Any) -> None:
    """Prints a value as JSON on stdout."""
    say(json.dumps(value, indent=2))


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> None:
    """Prints a table on stdout, unless it has no rows.

    Args:
        header: One title per column.
        rows: One text per column.
        numbers: How many of the last columns hold numbers; those stand to the right.
    """
    if not rows:
        return
    columns = []
    for index, column in enumerate(zip(header, *rows, strict=True)):
        width = max(map(len, column))
        align = str.rjust if index >= len(header) - numbers else str.ljust
        columns.append([align(cell, width) for cell in column])
    for line in zip(*columns, strict=True):
        say("  ".join(line).rstrip())


class ProgressBar:
    """A bar on stderr for what lasts longer than a second, where a person looks at it; every call heeds Ctrl-C."""

    patience = 1.0  # [s] before the bar shows
    spacing = 0.1  # [s] between two updates

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown_until = time.monotonic() + self.patience - self.spacing
        self._bar: Progress | None = None

    def __call__(self, fraction: float, said: str = "") -> None:
        """Shows how much is done, from 0 to 1, and a few words behind the title."""
        heed()
        now = time.monotonic()
        if now < self._shown_until + self.spacing or not sys.stderr.isatty():
            return
        self._shown_until = now
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.add_task(self._title, total=1.0)
            self._bar.start()
        title = f"{self._title}: {said}" if said else self._title
        self._bar.update(self._bar.task_ids[0], completed=fraction, description=title)

    def __enter__(self) -> "ProgressBar":
        heed()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
