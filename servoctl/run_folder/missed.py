"""Finds the tasks that a run missed: required tasks that were infeasible and violated over most of the run.

Design: a row of the run counts if its status says that the task is infeasible and the violation is beyond the settling
band. Saturation has a status of its own and does not count. Shares are of time: rows need not be equidistant.
"""

from collections.abc import Collection

import numpy as np

from servoctl.run_folder.trajectory import SETTLING_BAND, Trajectory
from servoctl.run_folder.values import time_where
from servoctl.types import Array, Status

MOST = 0.5  # a task is missed if it was missed for more than this share of the time

OUT_OF_REACH = (Status.INFEASIBLE, Status.UNREACHABLE, Status.DAMPED)
"""Statuses of a command that mean that the task is infeasible even without input limits."""


def missed_tasks(trajectory: Trajectory, excused: Collection[str]) -> dict[str, float]:
    """Task -> share of the time in which it was missed, for the tasks that were missed over most of the run.

    Args:
        trajectory: The run.
        excused: Names of the task rows that may be missed.
    """
    if "status" not in trajectory.columns or not len(trajectory):
        return {}
    band = trajectory.metadata.get("settling_band", SETTLING_BAND)
    missed = {}
    for task, rows in trajectory.tasks.items():
        required = [row for row in rows if row not in excused]
        if not required:
            continue
        during = trajectory.during(task)
        out_of_reach = np.isin(trajectory["status"][during], [status.code for status in OUT_OF_REACH])
        share = _share(trajectory.t[during], out_of_reach & (_size(trajectory, required)[during] > band))
        if share > MOST:
            missed[task] = share
    return missed


def sentence(missed: dict[str, float]) -> str:
    """The message about missed tasks."""
    shown = ", ".join(f"{task} in {share:.0%} of the time" for task, share in missed.items())
    return f"{Status.MISSED.value}: {shown}"


def _size(trajectory: Trajectory, rows: list[str]) -> Array:
    """Norm of the violation of the task rows, or of the residual if none has a violation, shape (rows of the run,)."""
    columns = [trajectory.columns[f"violation.{row}"] for row in rows if f"violation.{row}" in trajectory.columns]
    known = [column for column in columns if not np.isnan(column).all()]
    if not known:
        return np.abs(trajectory["residual"])
    size: Array = np.sqrt(np.nansum(np.square(np.array(known)), axis=0))
    return size


def _share(t: Array, where: Array) -> float:
    """Share of the time in which a condition holds; each row is valid until the next one."""
    if len(t) < 2 or t[-1] <= t[0]:
        return float(np.mean(where)) if len(t) else 0.0
    return time_where(t, where) / float(t[-1] - t[0])
