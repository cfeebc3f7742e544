"""The clock of a run: injected, monotonic, absolute deadlines."""

import time
from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

SECOND = 1_000_000_000
"""Nanoseconds."""


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * SECOND)


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock(ABC):
    """Monotonic time since the start of a run, in whole nanoseconds."""

    @abstractmethod
    def now(self) -> int:
        """Time since the start of the run [ns]."""

    @abstractmethod
    def sleep_until(self, moment: int) -> None:
        """Returns at `moment` [ns] or, where it has passed, at once."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WallClock(Clock):
    """The machine's monotonic clock."""

    def __init__(self) -> None:
        """Starts at 0 now."""
        self._origin = time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() - self._origin

    def sleep_until(self, moment: int) -> None:
        left = moment - self.now()
        if left > 0:
            time.sleep(left / SECOND)
