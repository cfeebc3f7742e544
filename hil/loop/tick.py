"""The loop itself.

Design: deadlines are absolute. A tick that comes late is run late, once; periods that have gone by altogether are
skipped and counted, never caught up, for a burst of commands is worse than a gap.
"""

from collections.abc import Callable
from typing import NamedTuple

from hil.loop.clock import Clock
from hil.loop.rig import Reading, Rig
from servoctl.types import Array

LONGEST_ELAPSED = 3
"""Periods: the time that a law is told has gone by at most, however long the gap."""


class Tick(NamedTuple):
    """When a tick ran.

    Attributes:
        number: From 0.
        deadline: When it was due [ns].
        began: When it began [ns].
        elapsed: Time since the last tick as the law is told [ns]: whole periods, 3 at most.
        skipped: Periods that have gone by without a tick before this one.
    """

    number: int
    deadline: int
    began: int
    elapsed: int
    skipped: int

    @property
    def lateness(self) -> int:
        """How late it began [ns]."""
        return self.began - self.deadline


class TickTimes(NamedTuple):
    """Moments at the end of a tick's parts [ns]."""

    read: int
    decided: int
    written: int


Decide = Callable[[Tick, Reading], Array | None]
"""What to do at a tick: inputs for the actuators, or None to end the loop."""

Log = Callable[[Tick, Reading, Array, TickTimes], None]
"""Takes a tick's numbers; must not wait."""


class TickLoop:
    """Runs a rig at a fixed period until `decide` ends it."""

    def __init__(self, rig: Rig, clock: Clock, period: int, wait: int = 0) -> None:
        """Takes a rig.

        Args:
            rig: Started.
            clock: The run's.
            period: [ns].
            wait: How long after a tick's beginning samples are waited for [ns].
        """
        self._rig, self._clock, self._period, self._wait = rig, clock, period, wait

    def run(self, decide: Decide, log: Log) -> None:
        """Ticks; the first is due now."""
        rig, clock, period, wait = self._rig, self._clock, self._period, self._wait
        deadline, number, skipped = clock.now(), 0, 0
        while True:
            clock.sleep_until(deadline)
            began = clock.now()
            tick = Tick(number, deadline, began, period * min(1 + skipped, LONGEST_ELAPSED), skipped)
            reading = rig.read(began + wait)
            read = clock.now()
            command = decide(tick, reading)
            if command is None:
                return
            decided = clock.now()
            rig.write(command)
            written = clock.now()
            log(tick, reading, command, TickTimes(read, decided, written))
            number += 1
            deadline += period
            skipped = max(0, (clock.now() - deadline) // period)
            deadline += skipped * period
