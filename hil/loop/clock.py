"""What time it is in a run, and how to wait: a monotonic clock, on the wall or virtual."""

import time
from abc import ABC, abstractmethod

SECOND = 1_000_000_000  # nanoseconds


def nanoseconds(seconds: float) -> int:
    """A time [s], rounded to whole nanoseconds."""
    return round(seconds * SECOND)


class Clock(ABC):
    """Monotonic time since the start of a run [ns], in whole numbers."""

    @abstractmethod
    def now(self) -> int:
        """Time since the start of the run [ns]."""

    @abstractmethod
    def sleep_until(self, moment: int) -> None:
        """Returns at `moment` [ns], or at once if it is past."""


class WallClock(Clock):
    """The machine's monotonic clock, 0 when it is made."""

    def __init__(self) -> None:
        self.origin = time.monotonic_ns()  # [ns] time of the machine's clock at 0

    def now(self) -> int:
        return time.monotonic_ns() - self.origin

    def sleep_until(self, moment: int) -> None:
        left = moment - self.now()
        if left > 0:
            time.sleep(left / SECOND)
