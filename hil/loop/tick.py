"""When a tick runs, and what it does.

Design: deadlines are absolute. A late tick runs late, once. Periods that passed without a tick are skipped and counted,
and never caught up: a burst of commands is worse than a gap.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from hil.loop.clock import Clock
from servoctl.types import Array


class FindingKind(NamedTuple):
    """What a finding of sensing says, and what it means for the drive."""

    sentence: str  # with the numbers of the verdict, their unit and the cause
    motion: bool = False  # whether the machine does not move as its model predicts; if not, a sample is wrong
    by_model: bool = False  # whether only the model contradicts it
    torqueless: bool = False  # whether none of the drive's torque arrives, so its own control cannot stop it either
    reversed: bool = False  # whether the drive's torque acts the wrong way, so it gets none any more
    remedy: str = ""  # what to check where it stops the machine


class Implausibility(NamedTuple):
    """A measurement or a motion that is not plausible."""

    channel: str  # name of the drive or encoder
    reason: str  # explanation for the operator, with numbers
    stops: bool  # true: the machine must stop. False: the sample was rejected once
    kind: FindingKind


class Reading(NamedTuple):
    """State of the machine at one tick."""

    q: Array  # coordinates, shape (n,)
    v: Array  # velocities, shape (n,)
    ages: Array  # age of each node's last accepted sample, shape (nodes,) [s]; infinite before the first
    valid: bool = True  # whether q and v may be used
    residual: float = 0.0  # [joint unit] largest disagreement of redundant measurements
    # displacement of each drive's joint, in the order of the actuators [joint unit]; NaN: not known
    positions: Sequence[float] = ()
    speeds: Sequence[float] = ()  # speed of each drive's joint [joint unit/s]; NaN: not known
    findings: Sequence[Implausibility] = ()  # implausible samples and motions at this tick
    # what rules judge (`hil.safety.rules`) -> its number for each node; NaN: not known
    measured: Mapping[str, Sequence[float]] = MappingProxyType({})


class Rig(Protocol):
    """A machine, simulated or real."""

    def read(self, due: int) -> None:
        """Measures the state of the machine, in a tick that was due at this time [ns]."""

    def write(self, command: Array) -> None:
        """Sends inputs to the actuators, shape (m,) [actuator units]; they are held until the next ones."""


LONGEST_ELAPSED = 3  # [periods] longest elapsed time that a law is told, however long the gap


class Tick(NamedTuple):
    """Times of a tick, on the run's clock."""

    number: int  # its number, from 0
    deadline: int  # [ns] when it was due
    began: int  # [ns] when it began
    elapsed: int  # time since the last tick as the law is told [ns]: whole periods, 3 at most
    skipped: int  # number of periods without a tick before this one


class TickTimes(NamedTuple):
    """Times at the end of a tick's parts, on the run's clock [ns]."""

    read: int
    decided: int
    written: int


Decide = Callable[[Tick], Array | None]
"""Chooses the inputs of the actuators at a tick, from what the rig has measured, or None to end the loop."""

Log = Callable[[Tick, TickTimes], None]  # records a tick; must not wait


class Ahead(NamedTuple):
    """Ticks that were done ahead of the loop."""

    ticks: int = 0  # number of them
    began: int | None = None  # when the next tick began, whose rest is left to the loop [ns]; None: it has not begun


def run_ticks(
    rig: Rig,
    clock: Clock,
    period: int,
    decide: Decide,
    log: Log,
    ahead: Callable[[int, int], Ahead] = lambda number, deadline: Ahead(),
) -> None:
    """Runs a rig that was started at a fixed period, the first tick now, until `decide` ends it.

    Args:
        period: Period of the ticks [ns].
        decide: Chooses the inputs.
        log: Records a tick.
        ahead: Does ticks by itself where it can, from the one with this number and deadline [ns] on, at their
            deadlines; a period that it skips, it leaves to the loop. It is not called after a gap.
    """
    deadline, number, skipped = clock.now(), 0, 0
    while True:
        begun: int | None = None
        if not skipped:
            done, begun = ahead(number, deadline)
            number, deadline = number + done, deadline + done * period
            if done and begun is None:
                skipped = max(0, (clock.now() - deadline) // period)
                deadline += skipped * period
                if not skipped:
                    continue
        if begun is None:
            clock.sleep_until(deadline)
        began = clock.now() if begun is None else begun
        tick = Tick(number, deadline, began, period * min(1 + skipped, LONGEST_ELAPSED), skipped)
        rig.read(deadline)
        read = clock.now()
        command = decide(tick)
        if command is None:
            return
        decided = clock.now()
        rig.write(command)
        written = clock.now()
        log(tick, TickTimes(read, decided, written))
        number += 1
        deadline += period
        skipped = max(0, (clock.now() - deadline) // period)
        deadline += skipped * period
