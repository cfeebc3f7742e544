"""What a command's time is made of, counted from the start of its process; a phase that lasts says what it is."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from servoctl.cli.console import note

PATIENCE = 1.0
"""A phase that lasts longer is announced [s]."""

_began = time.monotonic()


def begin(process: bool) -> None:
    """A command begins.

    Args:
        process: Whether it is the only one of its process, so that the start of the interpreter counts.
    """
    global _began
    _began = time.monotonic() - (_age() if process else 0.0)


def elapsed() -> float:
    """Time since the command began [s]."""
    return time.monotonic() - _began


def _age() -> float:
    """How long this process has been there [s], to 10 ms; 0 where the system does not say."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


@contextmanager
def announced(title: str, what: str, always: bool = False) -> Iterator[None]:
    """Says on stderr what is going on where the block lasts longer than `PATIENCE`.

    Args:
        title: Name of the run.
        what: In a word or two, as `compiling`.
        always: Whether it is said to a file or a pipe as well; else only where a person looks at it.
    """
    if not (always or sys.stderr.isatty()):
        yield
        return
    timer = Timer(PATIENCE, lambda: note(f"{title}: {what} ..."))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Phases:
    """How long each phase of a command took.

    Attributes:
        seconds: Phase -> time [s], in order.
    """

    def __init__(self) -> None:
        """Begins the first phase where the command began."""
        self.seconds: dict[str, float] = {}

    def end(self, *names: str, share: float = 0.0) -> None:
        """Ends a phase, which began where the one before ended.

        Args:
            names: Its name; or two, of which the second took `share` of it.
            share: Time of the second [s].
        """
        passed = elapsed() - self.total
        parts = [passed] if len(names) == 1 else [max(0.0, passed - share), min(share, passed)]
        for name, part in zip(names, parts, strict=True):
            self.seconds[name] = self.seconds.get(name, 0.0) + part

    @property
    def total(self) -> float:
        """Of the phases that have ended [s]."""
        return sum(self.seconds.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3g}" for name, seconds in self.seconds.items())
        return f"{self.total:.3g} s in all: {parts}"
