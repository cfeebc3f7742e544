"""Margins of a run's loop as it acts: at once, held, late, lagging, or on drives."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.gains import drives_spacing, gain_share, task_gains, task_spacing
from servoctl.errors import TaskError
from servoctl.laws.constraint_following import BoundConstraintFollowing
from servoctl.linear.convert import state_at
from servoctl.linear.jacobians import compiled, local
from servoctl.linear.margins import Margin, at_once_delay, margins
from servoctl.linear.sampled import LocalLoop, Timing, timings
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array, State

LARGEST_FACTOR = 100.0
"""A factor on the gains that is larger counts as none."""

SCAN = 1.25
"""Factors on the gains are tried in this ratio until the loop grows."""

ACCURATE = 1e-4
"""Relative width of the interval in which a limit is known to lie."""


@dataclass(frozen=True)
class Margins:
    """Margins of the loop as it acts at some timing.

    Attributes:
        timing: How it acts.
        growth: Largest real part of a pole [1/s], or size of one from period to period.
        actuators: One for each; empty where the closed loop is unstable at this state, so that there is none.
        delay_margin: Time that may be lost on top at all actuators together [s]; infinite where any may; None where the
            loop is unstable.
        gain_factor: Factor on the gains, that is on the rates of decay that they stand for (alpha and beta), at which
            the loop becomes unstable; infinite where there is none; None where it is unstable, or the law has no gains.
    """

    timing: Timing
    growth: float
    actuators: tuple[Margin, ...]
    delay_margin: float | None = None
    gain_factor: float | None = None

    @property
    def period(self) -> float | None:
        """[s]; None: the law acts at once."""
        return self.timing.period

    @property
    def delay(self) -> float:
        """The longest delay of an actuator, in cycles; 0 without a period."""
        return max(self.timing.delay, default=0.0) / self.period if self.period else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        timing = self.timing
        return {
            "timing": str(timing), "period": timing.period, "delay": self.delay, "drives": timing.drives,
            "delay_time": max(timing.delay, default=0.0), "lag": list(timing.lag),
            "velocity_filter": timing.velocity_filter, "growth": self.growth,
            "delay_margin": self.delay_margin, "gain_factor": self.gain_factor,
            "actuators": {one.actuator: one.to_dict() for one in self.actuators},
        }  # fmt: skip


@dataclass(frozen=True)
class LoopMargins:
    """The least margins of a loop over its actuators.

    Attributes:
        timing: How it acts, in words.
        stable: Whether it is stable; the margins of a loop that is not are 1 and 0.
        gain: Least factor on one actuator's torque at which it becomes unstable; infinite where there is none.
        gain_down: Largest factor below 1 at which it does; 0 where there is none.
        phase: Least phase margin [deg]; infinite where there is none.
        delay: Time that may be lost on top at all actuators together [s]; infinite likewise.
        gain_factor: Factor on all gains of the law at which it becomes unstable, as `Margins.gain_factor`.
        share: Share of the gains that the period or step bears, row by row: 1 / the least `margin` of `check`.
    """

    timing: str
    stable: bool
    gain: float
    gain_down: float
    phase: float
    delay: float
    gain_factor: float | None
    share: float


def loop_margins(run: Run, at: State | float | None = None, drives: bool = False) -> LoopMargins:
    """The least margins of a run's loop, as it acts in simulation or on drives.

    Args:
        run: A run with a law; its plant must be one that can be compiled.
        at: As of `linearize`.
        drives: Whether on drives, which the config must have.

    Raises:
        TaskError: The plant cannot be differentiated, the run has no law or no drives, or does not get that far.
    """
    wanted = [timing for timing in timings(run) if timing.drives == drives]
    if not wanted:
        raise TaskError(f"loop_margins: the run has no {'drives' if drives else 'law'} (nothing has margins)")
    state, memory = state_at(run, at)
    found = margins_at(run, state, memory, wanted[0])
    share = _share(run, drives)
    if not found.actuators:
        return LoopMargins(str(found.timing), False, 1.0, 1.0, 0.0, 0.0, None, share)
    return LoopMargins(
        str(found.timing),
        True,
        min(one.gain for one in found.actuators),
        max(one.gain_down for one in found.actuators),
        min(one.phase for one in found.actuators),
        found.delay_margin if found.delay_margin is not None else 0.0,
        found.gain_factor,
        share,
    )


def _share(run: Run, drives: bool) -> float:
    if not drives:
        return gain_share(task_gains(run.system, task_spacing(run.system, run.settings)))
    spacing = None if run.loaded is None else drives_spacing(run.loaded)
    return 0.0 if spacing is None else gain_share(task_gains(run.system, spacing))


def margins_at(
    run: Run, state: State, memory: Array, timing: Timing, real: Array | None = None, exact: bool = True
) -> Margins:
    """The margins at a state and a timing.

    Args:
        run: The run.
        state: Where.
        memory: Of the law.
        timing: How the loop acts.
        real: Parameters of the plant, where they are not those of the run.
        exact: Whether the delays that a sampled loop bears are looked for, and the factor on the gains; else each
            delay is phase / crossover, and there is no factor.
    """
    loop = LocalLoop(local(run, state, memory, real=real), timing)
    if not loop.stable:
        return Margins(timing, _growth(loop), ())
    found = margins(loop.linear, list(run.system.model.plant.actuators))
    if not exact:
        return Margins(timing, _growth(loop), tuple(found))
    sharp = tuple(_with_exact_delay(loop, i, one) for i, one in enumerate(found))
    least = min((one.delay for one in sharp), default=math.inf)
    together = at_once_delay(loop.at)
    if timing.period is not None:
        together = _delay(loop, min(least, together), None)
    return Margins(timing, _growth(loop), sharp, together, _gain_factor(run, state, memory, loop, real))


def _growth(loop: LocalLoop) -> float:
    poles = np.linalg.eigvals(loop.matrix)
    return float(poles.real.max() if loop.timing.period is None else np.abs(poles).max())


def _with_exact_delay(loop: LocalLoop, actuator: int, found: Margin) -> Margin:
    """A sampled loop with more delay has another response, so the delay that it bears is looked for."""
    if loop.timing.period is None or not math.isfinite(found.delay):
        return found
    return replace(found, delay=_delay(loop, found.delay, actuator))


def _delay(loop: LocalLoop, estimate: float, actuator: int | None) -> float:
    """The least delay on top at which a loop grows [s]; `estimate`: about where."""
    if loop.timing.period is None or not math.isfinite(estimate):
        return estimate

    def unstable(time: float) -> bool:
        return not LocalLoop(loop.at, loop.timing.later(time, actuator)).stable

    low, high = 0.0, estimate / 4.0
    while not unstable(high):
        if high > 4.0 * estimate:
            return estimate
        low, high = high, high + estimate / 4.0
    while high - low > ACCURATE * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if unstable(middle) else (middle, high)
    return (low + high) / 2.0


def _gain_factor(run: Run, state: State, memory: Array, loop: LocalLoop, real: Array | None) -> float | None:
    """The factor on the gains at which the loop grows."""
    base = compiled(run)
    if scaled_gains(base, 1.0) is None:
        return None

    def unstable(factor: float) -> bool:
        at = local(run, state, memory, real=real, law=scaled_gains(base, factor))
        return not LocalLoop(at, loop.timing).stable

    low, high = 1.0, SCAN
    while not unstable(high):
        if high > LARGEST_FACTOR:
            return math.inf
        low, high = high, high * SCAN
    while high - low > ACCURATE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if unstable(middle) else (middle, high)
    return math.sqrt(low * high)


def scaled_gains(loop: CompiledLoop, factor: float) -> Array | None:
    """Parameters of the loop with every pole of the violations so many times as fast; None without gains."""
    law = loop.system.law
    if not isinstance(law, BoundConstraintFollowing) or not any((*law.damping, *law.stiffness, *law.higher)):
        return None
    width = len(law.higher) // len(law.rows)
    damping, stiffness, higher = list(law.damping), list(law.stiffness), list(law.higher)
    for i, row in enumerate(law.rows):
        degree = row.degree if row.has_rate else 1
        stiffness[i] *= factor**degree
        damping[i] *= factor ** (degree - 1)
        for k in range(width):
            higher[i * width + k] *= factor ** max(degree - 2 - k, 0)
    faster = replace(law, damping=tuple(damping), stiffness=tuple(stiffness), higher=tuple(higher))
    found = loop.retuned(replace(loop.system, law=faster))
    return None if found is None else found.parameters
