"""Measures the phases of a command, from the start of its process, and announces a phase that takes long."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servoctl.cli.console import announce

_began = time.monotonic()


def begin(process: bool) -> None:
    """Starts the clock of a command.

    Args:
        process: Whether the process runs this command alone, so that the start of the interpreter counts too.
    """
    global _began
    _began = time.monotonic() - (_age() if process else 0.0)


def elapsed() -> float:
    """Time since the command began [s]."""
    return time.monotonic() - _began


def _age() -> float:
    """Age of this process [s], to 10 ms; 0 if the system does not tell."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


@contextmanager
def announced(title: str, activity: str, always: bool = False) -> Iterator[None]:
    """Announces the activity of the block if it takes longer than a second; arguments as for `announce`."""
    timer = announce(title, activity, always)
    try:
        yield
    finally:
        timer.cancel()


class Phases:
    """How long each phase of a command took; the first phase begins with the command.

    Attributes:
        seconds: Phase -> time [s], in order.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def end(self, *names: str, share: float = 0.0) -> None:
        """Ends a phase, which began when the previous one ended.

        Args:
            names: Name of the phase; or two names, of which the second took `share` of the time.
            share: Time of the second [s].
        """
        passed = elapsed() - self.total
        parts = [passed] if len(names) == 1 else [max(0.0, passed - share), min(share, passed)]
        for name, part in zip(names, parts, strict=True):
            self.seconds[name] = self.seconds.get(name, 0.0) + part

    @property
    def total(self) -> float:
        """Time of all phases that have ended [s]."""
        return sum(self.seconds.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.seconds.items())
        return f"{self.total:.3g} s in total: {parts}"
