"""What the linearised closed loop says of a run: modes, margins, and what grows."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.errors import TaskError
from servoctl.linear.convert import linear_at, state_at
from servoctl.linear.jacobians import Linear
from servoctl.linear.margins import Margin, margin, stable
from servoctl.linear.modes import Mode, modes
from servoctl.linear.robustness import CHANGE, Shifted, robustness
from servoctl.runs import Run
from servoctl.runs.gains import drives_spacing, task_spacing
from servoctl.trajectory import plain
from servoctl.types import Array, State


@dataclass(frozen=True)
class Margins:
    """Margins of the loop as it acts at some timing.

    Attributes:
        timing: In words.
        period: [s]; None: the law acts at once.
        delay: Cycles.
        growth: Largest real part of a pole [1/s], or size of one from period to period.
        actuators: One for each; empty where the closed loop is unstable at this state, so that there is none.
    """

    timing: str
    period: float | None
    delay: int
    growth: float
    actuators: tuple[Margin, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "actuators": {one.actuator: one.to_dict() for one in self.actuators}}


@dataclass(frozen=True)
class Analysis:
    """The closed loop at a state.

    Attributes:
        state: Where.
        modes: Of the constraints' errors and of the internal dynamics.
        margins: As the run acts, and as on drives where the config has some.
        moving: Whether the state is not at rest, so that the margins, and the internal modes, are those of a frozen
            instant.
        warnings: What a person should know.
        robustness: The poles as they are, then with each parameter of the plant off.
    """

    state: State
    modes: tuple[Mode, ...]
    margins: tuple[Margins, ...]
    moving: bool
    warnings: tuple[str, ...]
    robustness: tuple[Shifted, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(
            plain(
                {
                    "t": self.state.t, "q": self.state.q, "v": self.state.v, "moving": self.moving,
                    "modes": [mode.to_dict() for mode in self.modes],
                    "margins": [one.to_dict() for one in self.margins], "warnings": list(self.warnings),
                    "robustness": [one.to_dict() for one in self.robustness],
                }
            )
        )  # fmt: skip


def analyse(run: Run, at: State | float | None = None, change: float = CHANGE) -> Analysis:
    """Linearises the closed loop at a state.

    Args:
        run: A run; its plant must be one that can be compiled.
        at: As of `linearize`.
        change: By how much each parameter of the plant is off for `robustness`, relative to its value; 0: none is.

    Raises:
        TaskError: The plant cannot be differentiated, or the run does not get that far.
    """
    state, memory = state_at(run, at)
    found = modes(run, state, memory)
    x = np.concatenate([state.q, state.v, memory])
    rates = run.loop.rates(state.t, x)[0]
    if not np.isfinite(rates).all():
        raise TaskError(f"analyse: the motion is not finite at t = {state.t:g} s (choose another state)")
    margins = [_margins(run, state, memory, *timing) for timing in _timings(run)]
    said = [_grows(mode) for mode in found if mode.stable is False]
    said += [f"{one.timing}: the closed loop is unstable at this state, so it has no margins" for one in margins
             if not one.actuators]  # fmt: skip
    shifted = robustness(run, state, memory, change) if change else []
    said += [_loses(one) for one in shifted[1:] if shifted[0].stable and not one.stable]
    moving = bool(np.abs(rates).max(initial=0.0) > 1e-9)
    return Analysis(state, tuple(found), tuple(margins), moving, tuple(said), tuple(shifted))


def _grows(mode: Mode) -> str:
    """An unstable mode in words."""
    assert mode.decay is not None
    what = "internal dynamics" if mode.group == "internal" else f"error of {mode.of}"
    swings = f", swinging at {abs(mode.pole.imag):.3g} rad/s" if mode.pole.imag else ""
    where = f" (mostly {mode.mostly})" if mode.mostly else ""
    return f"{what}: unstable: grows by e every {-mode.decay:.3g} s{swings}{where}"


def _loses(one: Shifted) -> str:
    """What makes the closed loop unstable, in words."""
    slowest = one.slowest
    assert slowest is not None and slowest.decay is not None
    off = f"{abs(100 * one.change):.3g} % {'larger' if one.change > 0.0 else 'smaller'}"
    grows = f"grows by e every {-slowest.decay:.3g} s"
    return f"{one.parameter}: unstable where it is {off} than the law takes it for: {grows}"


def _timings(run: Run) -> list[tuple[str, float | None, int]]:
    """(in words, period, delay) of the loops to look at; none without a law."""
    if run.system.law is None or not run.system.model.m:
        return []
    period = run.settings.period
    found: list[tuple[str, float | None, int]] = []
    delay = math.ceil(task_spacing(run.system, run.settings).delay - 1e-9)
    late = f", {delay} cycle{'s' * (delay > 1)} late" if delay else ""
    found.append(("the law acts at once" if period is None else f"held for {period:g} s{late}", period, delay))
    drives = None if run.loaded is None else drives_spacing(run.loaded)
    if drives is not None and drives.h is not None:
        found.append((f"on drives: held for {drives.h:g} s, {drives.delay:g} cycle late", drives.h, int(drives.delay)))
    return found


def _margins(run: Run, state: State, memory: Array, timing: str, period: float | None, delay: int) -> Margins:
    linear = linear_at(run, state, memory, "continuous" if period is None else "discrete", period, delay)
    actuators = list(run.system.model.plant.actuators)
    found = [margin(linear, i, name) for i, name in enumerate(actuators)] if stable(linear) else []
    return Margins(timing, period, delay, _growth(linear), tuple(found))


def _growth(linear: Linear) -> float:
    poles = np.linalg.eigvals(linear.A)
    return float(poles.real.max() if linear.period is None else np.abs(poles).max())
