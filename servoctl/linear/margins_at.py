"""Margins of a run's loop with its timing: continuous, held, delayed, lagging, or on drives.

The linearised loop also says whether it is stable at its period. Design: gains of rows are compared with the period in
`assembly.gains`, at every state; only the linearised loop, frozen at the start, knows gains that are a class or a
function of the user's, estimators, and motions that the task leaves free, in which late forces of the law act. What
grows in continuous time too is not judged: the period is not its fault.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.gains import has_unknown_gains
from servoctl.laws.hold import stable_range
from servoctl.linear.convert import state_at
from servoctl.linear.jacobians import Local, local
from servoctl.linear.margins import Margin, at_once_delay, margins
from servoctl.linear.sampled import LocalLoop, least_stable, timings
from servoctl.mechanics.timing import Timing
from servoctl.types import Array, State

HALVINGS = 20  # of the interval that contains a limit: to 1e-6 of it

LONGEST = 20
"""A delay of more periods is taken from the frequency response, which is exact for whole periods; a search would need
the eigenvalues of a matrix with a state for each actuator and period."""


SEARCHED = 1e9
"""Largest number of actuators times states^3 for which exact delays are searched: the eigenvalues of 200 states and 50
actuators take 20 s, those of 500 states and 100 actuators 6 minutes."""


@dataclass(frozen=True)
class Margins:
    """Margins of the loop with a timing."""

    timing: Timing  # period, delay and lag
    growth: float  # largest real part of a pole [1/s]; of a sampled loop the largest |z|
    actuators: tuple[Margin, ...]  # margins at each actuator; empty if the closed loop is unstable at this state
    # additional delay at all actuators together at which the loop becomes unstable [s]; infinite if there is none; None
    # if the loop is unstable, or delays are phase / crossover
    delay_margin: float | None = None

    @property
    def period(self) -> float | None:
        """Period [s]; None if the law acts continuously."""
        return self.timing.period

    @property
    def delay(self) -> float:
        """Longest delay of an actuator [cycles]; 0 without a period."""
        return self.timing.at(1.0).longest_delay

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        timing = self.timing
        return {
            "timing": str(timing), "period": timing.period, "delay": self.delay, "drives": timing.on_drives,
            "delay_time": timing.longest_delay, "lag": list(timing.lag),
            "velocity_filter": timing.velocity_filter, "growth": self.growth,
            "delay_margin": self.delay_margin,
            "actuators": {one.actuator: one for one in self.actuators},
        }  # fmt: skip

    @property
    def worst(self) -> dict[str, float]:
        """The smallest gain, phase [deg] and delay [s] and the largest gain_down over the actuators.

        Those of an unstable loop are 1, 0, 0 and 1.
        """
        if not self.actuators:
            return {"gain": 1.0, "gain_down": 1.0, "phase": 0.0, "delay": 0.0}
        return {
            "gain": min(one.gain for one in self.actuators), "gain_down": max(one.gain_down for one in self.actuators),
            "phase": min(one.phase for one in self.actuators), "delay": min(one.delay for one in self.actuators),
        }  # fmt: skip


def margins_at(
    run: Run, state: State, memory: Array, timing: Timing, real: Array | None = None, exact: bool = True
) -> Margins:
    """The margins at a state with a timing.

    Args:
        timing: Period, delay and lag.
        real: Parameters of the plant if they differ from those of the run.
        exact: Whether to search for the exact delay margins of a sampled loop, unless it is large. Else each delay is
            phase / crossover.
    """
    loop = LocalLoop(local(run, state, memory, real=real), timing)
    if not loop.stable:
        return Margins(timing, loop.growth, ())
    linear = loop.linear
    found = margins(linear, list(run.system.model.plant.actuators))
    if not exact or (linear.period is not None and len(found) * len(linear.A) ** 3 > SEARCHED):
        return Margins(timing, loop.growth, tuple(found))
    sharp = tuple(replace(one, delay=_delay(loop, one.delay, i)) for i, one in enumerate(found))
    together = _delay(loop, at_once_delay(linear), None)
    return Margins(timing, loop.growth, sharp, together)


def _delay(loop: LocalLoop, estimate: float, actuator: int | None) -> float:
    """Smallest additional delay at which a loop is unstable [s], near an estimate.

    With more delay a sampled loop has another response, so its exact delay is searched for.
    """
    if loop.timing.period is None or not 0.0 < estimate < LONGEST * loop.timing.period:
        return estimate

    def stable(time: float) -> bool:
        later = time if actuator is None else time * np.eye(loop.at.m)[actuator]
        return LocalLoop(loop.at, loop.timing, later).stable

    low, high = stable_range(stable, [k * estimate / 4.0 for k in range(18)], HALVINGS)
    return estimate if high == math.inf else (low + high) / 2.0


class HeldLoop(NamedTuple):
    """A loop with its timing, as far as the timing decides whether it is stable."""

    timing: Timing
    growth: float  # largest factor by which a motion grows from sample to sample; below 1 all decay
    stable: bool

    @property
    def rate(self) -> float:
        """The largest growth [1/s]."""
        return math.log(self.growth) / (self.timing.period or 1.0)

    def __str__(self) -> str:
        if self.stable:
            return f"stable at the start ({self.timing})"
        return (
            f"unstable at the start ({self.timing}): a motion grows by e every {1.0 / self.rate:.3g} s, and in "
            "continuous time slowly or not at all (shorten period, delay and lag, or lower the gains)"
        )


SLOW = 0.1  # growth within the run; a motion that grows less, and that no gain acts on, counts as stable
FASTER = 2.0  # a sampled loop that grows faster than this times its growth in continuous time does so by its period


def _growth_at_once(run: Run, at: Local) -> float:
    """How fast the loop grows in continuous time [1/s]; an estimator, which has a period, knows the state."""
    if run.system.estimator is None:
        loop = LocalLoop(at, Timing(None))
        return 0.0 if loop.stable else loop.growth
    internal = run.internal
    if internal is None:
        return math.inf
    return internal.modes[0].real if internal.stable is False else 0.0


def held_loops(run: Run) -> list[HeldLoop]:
    """The sampled loops at the start, without those that grow about as fast in continuous time.

    Raises:
        TaskError: The plant or the law cannot be differentiated.
    """
    held = [timing for timing in timings(run) if timing.period is not None]
    if not held:
        return []
    at = local(run, *state_at(run))
    at_once = _growth_at_once(run, at)
    loops = [least_stable(at, timing) for timing in held]
    judged = [HeldLoop(loop.timing, loop.growth, loop.stable) for loop in loops]
    judged = [loop for loop in judged if loop.stable or loop.rate > FASTER * at_once]
    if has_unknown_gains(run.system):
        return judged
    return [loop._replace(stable=loop.stable or loop.rate * run.settings.duration < SLOW) for loop in judged]
