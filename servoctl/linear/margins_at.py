"""Margins of a run's loop as it acts: at once, held, late, or on drives."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.linear.convert import linear_at
from servoctl.linear.jacobians import Linear
from servoctl.linear.margins import Margin, margin, stable
from servoctl.runs import Run
from servoctl.runs.gains import drives_spacing, task_spacing
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


def timings(run: Run) -> list[tuple[str, float | None, int]]:
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


def margins_at(
    run: Run, state: State, memory: Array, timing: str, period: float | None, delay: int, real: Array | None = None
) -> Margins:
    """The margins at a state and a timing; `real`: parameters of the plant, where the law does not know them."""
    linear = linear_at(run, state, memory, "continuous" if period is None else "discrete", period, delay, real=real)
    actuators = list(run.system.model.plant.actuators)
    found = [margin(linear, i, name) for i, name in enumerate(actuators)] if stable(linear) else []
    return Margins(timing, period, delay, _growth(linear), tuple(found))


def _growth(linear: Linear) -> float:
    poles = np.linalg.eigvals(linear.A)
    return float(poles.real.max() if linear.period is None else np.abs(poles).max())
