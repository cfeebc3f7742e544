"""What time it is in a run, and how to wait: a monotonic clock, on the wall or virtual; timers of emulated nodes.

Design: virtual time is a queue of events, in whole nanoseconds. Events of one instant run in the order in which they
were scheduled, so that a run is reproducible to the bit. Nothing of it reads the wall clock; code that follows one
calls `advance` with its time.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from heapq import heappop, heappush
from typing import Any, cast

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


Action = Callable[[], None]

Event = list[Any]  # moment [ns], order, action; the action is None once the event is cancelled


class World:
    """A queue of events."""

    def __init__(self) -> None:
        self.now = 0  # [ns] time since the start, for emulated drives since power-on
        self._queue: list[Event] = []
        self._count = 0
        self._until, self._inbox = 0, cast(Sized, ())

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
        self._until, self._inbox = until, inbox
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

    def skip_to(self, moment: int) -> bool:
        """Moves time forward to a moment [ns] if nothing is due until then; returns whether it did.

        An action that only waits for this moment may go on at once, without an event of its own.
        """
        queue = self._queue
        if moment > self._until or self._inbox or (queue and queue[0][0] <= moment):
            return False
        self.now = moment
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


class Watchdog:
    """Acts when it is not fed for its timeout."""

    def __init__(self, world: World, expired: Callable[[], None]) -> None:
        self._world, self._expired = world, expired
        self.timeout = 0  # its timeout [ns]; 0: off
        self._fed = 0
        self._event: Event | None = None

    def start(self, timeout: int) -> None:
        """Starts with a timeout [ns]; 0 stops it."""
        self.timeout = timeout
        self.feed()

    def feed(self) -> None:
        """Restarts the timeout."""
        self._fed = self._world.now
        if self.timeout and self._event is None:
            self._event = self._world.after(self.timeout, self._look)

    def stop(self) -> None:
        """Switches it off, its timeout included."""
        self.timeout = 0
        cancel(self._event)
        self._event = None

    def _look(self) -> None:
        self._event = None
        if not self.timeout:
            return
        due = self._fed + self.timeout
        if due > self._world.now:
            self._event = self._world.at(due, self._look)
        else:
            self._expired()


class Timer:
    """Acts at a period of the node's own clock, which may drift."""

    def __init__(self, world: World, action: Callable[[], None]) -> None:
        self._world, self._action = world, action
        self._origin = self._count = self._period = 0
        self.drift = 0.0  # drift of that clock [ppm]; positive: it is slow
        self._event: Event | None = None

    def start(self, period: int, phase: int = 0) -> None:
        """Acts `phase` [ns] from now, then once per period [ns]; a period of 0 stops it."""
        self.stop()
        self._period, self._count, self._origin = period, 0, self._world.now + phase
        if period:
            self._event = self._world.at(self._origin, self._run)

    def stop(self) -> None:
        """Stops acting."""
        cancel(self._event)
        self._event = None

    def drift_by(self, ppm: float) -> None:
        """Changes the drift [ppm] from the next period on."""
        self._origin, self._count = self._moment(self._count), 0
        self.drift = ppm

    def _moment(self, count: int) -> int:
        elapsed = count * self._period
        return self._origin + elapsed + (round(elapsed * self.drift * 1e-6) if self.drift else 0)

    def _run(self) -> None:
        self._count += 1
        self._event = self._world.at(self._moment(self._count), self._run)
        self._action()
