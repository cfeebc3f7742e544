"""How far are a run's gains from instability? Share of the longest stable period, overshoot, gain margin, whole loop.

    gain_share    h / h_max of a row's correction; h_max: longest period or step at which its violation decays
    overshoot     -min y(t) / y(0) of a row's violation y after a step
    gain_margin   smallest k > 1 at which the sampled loop with u_i -> u_i + (k - 1) du_i is unstable, over actuators i

Design: the first two follow from the corrections and the timing alone (`assembly.gains`). The margin is that of the
simulated plant and of every machine of `law.uncertainty`, linearised at the start, with limits and bounds out of reach:
an input at its limit feeds nothing back, and would make any gain look safe. It is found on the poles of
A + (k - 1) B_i fed_i, because a search needs it in every trial; `linear.margins` has the frequency response. If a
config has drives, their timing counts too. The margin of a loop that is unstable already (by its gains, its internal
dynamics, or at a moving state) is 1, which no bound accepts. The choice of these figures and their default bounds are
our own.

Design: gains of rows are compared with the period in `assembly.gains`, at every state; only the linearised loop, frozen
at the start, knows gains that are a class or a function of the user's, estimators, and motions that the task leaves
free, in which late forces of the law act (`held_loops`). What grows in continuous time too is not judged: the period is
not its fault.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.gains import drives_gains, gain_share, has_unknown_gains, task_gains, task_spacing
from servoctl.config.tune import RESERVES, Tune
from servoctl.errors import TaskError
from servoctl.laws.hold import Closed, stable_range
from servoctl.linear.convert import settled, state_at
from servoctl.linear.loop import (
    Local,
    LocalLoop,
    box_machines,
    grows,
    least_stable,
    local,
    local_nearest,
    timings,
)
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

FACTORS = (1.05, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.4, 2.8, 3.4, 4.0, 5.0, 7.0, 10.0, 16.0, 30.0, 60.0, 100.0)
"""Factors on one actuator's gain at which the poles are computed; beyond the last, a margin counts as infinite."""

UNSTABLE = 1.0  # gain margin of a loop that is unstable as it is
HALVINGS = 10  # bisections of the interval between the last stable factor and the first unstable one


@dataclass(frozen=True)
class Reserve:
    """Distance of a run's gains from instability."""

    gain_share: float  # largest over the task rows, in simulation and on drives; 0 without feedback
    overshoot: float  # largest over the same rows
    # smallest over the actuators, in simulation and on drives; 1 if the loop is unstable; None if it cannot be
    # linearised
    gain_margin: float | None

    def to_dict(self) -> dict[str, float]:
        """Metric -> value, without metrics that are None."""
        values = {"gain_share": self.gain_share, "overshoot": self.overshoot, "gain_margin": self.gain_margin}
        return {name: value for name, value in values.items() if value is not None}


def bounds_of(tune: Tune | None) -> dict[str, float]:
    """Metric -> bound on the distance from instability, from a config's `tune`; None: the defaults."""
    found: dict[str, float] = {}
    for key, metric in RESERVES.items():
        bound = Tune.model_fields[key].default if tune is None else tune.constraints.get(metric, getattr(tune, key))
        found |= {} if bound == "none" else {metric: float(bound)}
    return found


def reserve(run: Run) -> Reserve:
    """The reserve of a run; without a law gain_share and overshoot are 0 and there is no margin."""
    at = task_spacing(run.system, run.settings)
    gains = [*task_gains(run.system, at), *drives_gains(run.system, run.hil)]
    share, swing = gain_share(gains), max((gain.overshoot for gain in gains), default=0.0)
    return Reserve(share, swing, gain_margin(run) if share or swing else None)


def gain_margin(run: Run) -> float | None:
    """Smallest gain margin over the actuators, timings and box of a run; infinite above the last of `FACTORS`.

    1 if a loop is unstable; None if the plant cannot be differentiated or is too large to be traced.
    """
    try:
        return min(map(_margin, _loops(run)), default=None)
    except TaskError:
        return None


def _loops(run: Run) -> Iterator[Closed]:
    """The linearised loop at the start, with each timing: of the simulated plant, and of machines of the box."""
    if run.system.law is None or not run.loop.differentiable:
        return
    x, law = settled(run.loop, run.start), _unlimited(run)
    for real in (None, *(machine for _, machine in box_machines(run))):
        at = local_nearest(run, run.start.t, x, real, law)
        yield from (LocalLoop(at, timing).closed for timing in timings(run))


def _unlimited(run: Run) -> Array | None:
    """Parameters of the law with limits and bounds out of reach; None if it has none."""
    system, law = run.system, run.system.following
    if law is None or not law.searches:
        return None
    return run.loop.of(replace(system, law=law.unlimited)).parameters


def _margin(closed: Closed) -> float:
    """Smallest gain margin over the actuators of a loop; 1 if the loop is unstable."""
    if _grows(closed, closed.A[None])[0]:
        return UNSTABLE
    columns = range(closed.B.shape[1])
    opened = np.stack([np.outer(closed.B[:, i], closed.fed[i]) for i in columns])
    low = 1.0
    for high in FACTORS:
        unstable = _grows(closed, closed.A + (high - 1.0) * opened)
        if unstable.any():
            break
        low = high
    else:
        return math.inf
    opened = opened[unstable]
    return stable_range(lambda k: not _grows(closed, closed.A + (k - 1.0) * opened).any(), (low, high), HALVINGS)[1]


def _grows(closed: Closed, A: Array) -> Array:
    """Whether each matrix has an unstable pole; A has shape (count, states, states)."""
    return np.array([grows(poles, closed.period) for poles in np.linalg.eigvals(A)])


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
