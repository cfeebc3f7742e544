"""Has a run diverged, although all its numbers are finite? One judgement for single runs, sweeps, searches and batches.

Design: two scales. A state above `RUNAWAY` can be right (a long fall, a fast rotor), so it counts only together with a
known cause. A violation above `RUNAWAY`, or a state above `BEYOND`, counts alone: a task that is off by a million times
its unit is not followed, and at 1e12 the rounding of a double exceeds a ten-thousandth of the unit.
"""

from collections.abc import Collection

import numpy as np

from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State

RUNAWAY = 1e6
"""A state, or the violation of a required task, above this times 1 + its size at the start may have run away."""

BEYOND = 1e12  # a state above this times 1 + its size at the start has run away, whatever the plant


def size(*values: Array) -> float:
    """The largest magnitude in some arrays; infinite if one is NaN."""
    return float(np.nan_to_num(np.abs(np.concatenate(values)), nan=np.inf).max(initial=0.0))


def growth(start: State, trajectory: Trajectory) -> float:
    """Size of the last state of a run relative to 1 + that of its start; 0 without rows."""
    return size(trajectory.q[-1], trajectory.v[-1]) / (1.0 + size(start.q, start.v)) if len(trajectory) else 0.0


def divergence(start: State, trajectory: Trajectory, optional_rows: Collection[str]) -> str | None:
    """What has diverged beyond doubt by the end of a run, in words; None if nothing has.

    Args:
        start: Initial state.
        trajectory: The run.
        optional_rows: Names of task rows that may be missed.
    """
    if not len(trajectory):
        return None
    for task, rows in trajectory.tasks.items():
        names = [f"violation.{row}" for row in rows if row not in optional_rows]
        known = [np.nan_to_num(trajectory[name][[0, -1]]) for name in names if name in trajectory.columns]
        first, last = np.abs([np.zeros(2), *known]).max(axis=0)
        if last > RUNAWAY * (1.0 + first):
            return f"the error of {task} grew from {first:.3g} to {last:.3g}"
    if growth(start, trajectory) > BEYOND:
        return f"the state grew to {size(trajectory.q[-1], trajectory.v[-1]):.3g}"
    return None


def suspicious(end: Array, violations: Array) -> bool:
    """Whether a run may have diverged: never False where `divergence`, or `growth` above `RUNAWAY`, says that it has.

    Args:
        end: q and v at the end.
        violations: Size of the violation of each task at the end; NaN where a task has none.
    """
    return size(end) > RUNAWAY or bool(np.any(np.abs(violations) > RUNAWAY))
