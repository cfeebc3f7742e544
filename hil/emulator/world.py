"""Virtual time: events in order, and a clock that advances them.

Design: time is whole nanoseconds. Events of one instant run in the order in which they were scheduled, so that a run
is reproducible to the bit. Nothing here knows the wall clock: whoever follows one calls `advance` with its time.
"""

from collections.abc import Callable, Sized
from heapq import heappop, heappush
from typing import Any

from hil.loop.clock import Clock

Action = Callable[[], None]

Event = list[Any]
"""Moment [ns], order, action; None instead of the action once it is cancelled."""


class World:
    """A queue of events.

    Attributes:
        now: Time since the drives were powered on [ns].
    """

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[Event] = []
        self._count = 0

    def at(self, moment: int, action: Action) -> Event:
        """Schedules an action; one for the past runs at the present instant."""
        self._count += 1
        event = [moment if moment > self.now else self.now, self._count, action]
        heappush(self._queue, event)
        return event

    def after(self, delay: int, action: Action) -> Event:
        """Schedules an action `delay` [ns] from now."""
        return self.at(self.now + delay, action)

    def advance(self, until: int, inbox: Sized = ()) -> None:
        """Runs events.

        Args:
            until: Of the last ones to run [ns]; the time afterwards, unless something came in.
            inbox: Stops the world as soon as something is in it, at the time at which that came.
        """
        queue = self._queue
        while not inbox:
            if not queue or queue[0][0] > until:
                self.now = max(self.now, until)
                return
            moment, _, action = heappop(queue)
            if action is not None:
                self.now = moment
                action()

    @property
    def next_event(self) -> int | None:
        """When the next event is due [ns]; None where there is none."""
        while self._queue and self._queue[0][2] is None:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None


def cancel(event: Event | None) -> None:
    """Takes an event's action away; None and one that has run do nothing."""
    if event is not None:
        event[2] = None


class WorldClock(Clock):
    """The clock of a world: sleeping is what makes time pass."""

    def __init__(self, world: World) -> None:
        """Starts where the world is."""
        self._world = world

    def now(self) -> int:
        return self._world.now

    def sleep_until(self, moment: int) -> None:
        self._world.advance(moment)
