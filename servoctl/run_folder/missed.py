"""Tasks that a run missed: a required task that was out of reach, and off, over most of it.

Design: a row counts where the status says that the task is out of reach (limits do not say so: they have a status of
their own) and the violation is beyond the settling band. Shares are of time, since rows need not be equidistant.
"""

from collections.abc import Collection

import numpy as np

from servoctl.run_folder.trajectory import SETTLING_BAND, Trajectory
from servoctl.types import Array, Status

MOST = 0.5
"""Share of a run's time from which on a task counts as missed."""

OUT_OF_REACH = (Status.INFEASIBLE, Status.UNREACHABLE, Status.DAMPED)
"""Statuses of a command that say that the task is out of reach, whatever the limits."""


def missed_tasks(trajectory: Trajectory, excused: Collection[str]) -> dict[str, float]:
    """Task -> share of the run's time in which it was missed, of those that were missed over most of it.

    Args:
        trajectory: The run.
        excused: Names of the rows that may be missed.
    """
    if "status" not in trajectory.columns or not len(trajectory):
        return {}
    band = trajectory.metadata.get("settling_band", SETTLING_BAND)
    found = {}
    for task, rows in trajectory.tasks.items():
        required = [row for row in rows if row not in excused]
        if not required:
            continue
        during = trajectory.during(task)
        out_of_reach = np.isin(trajectory["status"][during], [status.code for status in OUT_OF_REACH])
        share = _share(trajectory.t[during], out_of_reach & (_off(trajectory, required)[during] > band))
        if share > MOST:
            found[task] = share
    return found


def sentence(missed: dict[str, float]) -> str:
    """What a person reads."""
    shown = ", ".join(f"{task} in {share:.0%} of the time" for task, share in missed.items())
    return f"{Status.MISSED.value}: {shown}"


def _off(trajectory: Trajectory, rows: list[str]) -> Array:
    """How far the rows are off, shape (rows of the run,): their violation, or where none has one, the residual."""
    columns = [trajectory.columns[f"violation.{row}"] for row in rows if f"violation.{row}" in trajectory.columns]
    known = [column for column in columns if not np.isnan(column).all()]
    if not known:
        return np.abs(trajectory["residual"])
    size: Array = np.sqrt(np.nansum(np.square(np.array(known)), axis=0))
    return size


def _share(t: Array, where: Array) -> float:
    """Share of the time in which something holds, a row standing until the next."""
    if len(t) < 2 or t[-1] <= t[0]:
        return float(np.mean(where)) if len(t) else 0.0
    return float(np.sum(np.diff(t)[where[:-1]]) / (t[-1] - t[0]))
