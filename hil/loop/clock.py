"""What time it is in a run, and how to wait: a monotonic clock, on the wall or virtual.

Design: virtual time is a queue of events, in whole nanoseconds. Events of one instant run in the order in which they
were scheduled, so that a run is reproducible to the bit. Nothing of it reads the wall clock; code that follows one
calls `advance` with its time.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from heapq import heappop, heappush
from typing import Any

SECOND = 1_000_000_000  # nanoseconds
LONGEST = 2.0**62  # [ns]


def nanoseconds(seconds: float) -> int:
    """A time [s], rounded to whole nanoseconds; one that C cannot hold is its longest, 146 years."""
    return round(min(seconds * SECOND, LONGEST))


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


Action = Callable[[], object]

Event = list[Any]  # moment [ns], order, action; the action is None once the event is cancelled


class World:
    """A queue of events."""

    def __init__(self) -> None:
        self.now = 0  # [ns] time since the start, for emulated drives since power-on
        self._queue: list[Event] = []
        self._count = 0

    def at(self, moment: int, action: Action) -> Event:
        """Schedules an action [ns]; one for the past runs at the present instant."""
        count = self._count = self._count + 1
        now = self.now
        event = [moment if moment > now else now, count, action]
        heappush(self._queue, event)
        return event

    def after(self, delay: int, action: Action) -> Event:
        """Schedules an action `delay` [ns] from now."""
        return self.at(self.now + delay, action)

    def advance(self, until: int, inbox: Sized = ()) -> bool:
        """Runs the events that are due; returns whether something is in the inbox.

        Args:
            until: Time of the last event to run [ns], and the time afterwards unless the inbox filled up before.
            inbox: Stops time at the moment at which something is in it.
        """
        queue = self._queue
        while not inbox:
            if not queue or queue[0][0] > until:
                if until > self.now:
                    self.now = until
                return False
            moment, _, action = heappop(queue)
            if action is not None:
                self.now = moment
                action()
        return True

    @property
    def next_event(self) -> int | None:
        """When the next event is due [ns]; None where there is none."""
        while self._queue and self._queue[0][2] is None:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None


def cancel(event: Event | None) -> None:
    """Removes an event's action; does nothing to None or to an event that has run."""
    if event is not None:
        event[2] = None


class VirtualClock(Clock):
    """The clock of a world: time moves only while the caller sleeps, so a simulated run is as fast as it computes."""

    def __init__(self, world: World | None = None) -> None:
        """Starts at the world's time; without a world at 0, and nothing happens."""
        self._world = World() if world is None else world

    def now(self) -> int:
        return self._world.now

    def sleep_until(self, moment: int) -> None:
        self._world.advance(moment)
