"""Tasks that a run missed, by being infeasible and violated over most of it; and rows too sparse for a summary.

Design: a row of the run counts if its status says that the task is infeasible and the violation is beyond the settling
band. Saturation has a status of its own and does not count. Shares are of time: rows need not be equidistant.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from servoctl.run_folder.metrics import rms, time_where
from servoctl.run_folder.trajectory import SETTLING_BAND, Trajectory
from servoctl.types import Array, Status

MOST = 0.5  # a task is missed if it was missed for more than this share of the time

OUT_OF_REACH = (Status.INFEASIBLE.code, Status.UNREACHABLE.code, Status.DAMPED.code)
"""Codes of the statuses of a command that mean that the task is infeasible even without input limits."""


def is_missed(status: ArrayLike, violations: Array, residual: ArrayLike, band: float) -> Any:
    """Whether a task is missed, row by row of a run.

    `violations`: of the required rows of the task, shape (task rows, rows), NaN where one has none. Where none has one,
    `residual` takes their place. `band`: what is below counts as met.
    """
    known = ~np.isnan(violations).all(axis=0)
    size = np.where(known, np.sqrt(np.nansum(np.square(violations), axis=0)), np.abs(residual))
    return np.isin(status, OUT_OF_REACH) & (size > band)


def missed_tasks(trajectory: Trajectory, optional_rows: Collection[str]) -> dict[str, float]:
    """Task -> share of the time in which it was missed, for the tasks that were missed over most of the run.

    Args:
        optional_rows: Names of the task rows that may be missed.
    """
    if "status" not in trajectory.columns or not len(trajectory):
        return {}
    band = trajectory.metadata.get("settling_band", SETTLING_BAND)
    missed = {}
    for task, rows in trajectory.tasks.items():
        required = [row for row in rows if row not in optional_rows]
        if not required:
            continue
        during = trajectory.during(task)
        nothing = np.full(len(trajectory), np.nan)
        violations = np.array([trajectory.columns.get(f"violation.{row}", nothing) for row in required])
        where = is_missed(trajectory["status"], violations, trajectory["residual"], band)
        share = _share(trajectory.t[during], where[during])
        if share > MOST:
            missed[task] = share
    return missed


def sentence(missed: dict[str, float]) -> str:
    """The message about missed tasks."""
    shown = ", ".join(f"{task} in {share:.0%} of the time" for task, share in missed.items())
    return f"{Status.MISSED.value}: {shown}"


def _share(t: Array, where: Array) -> float:
    """Share of the time in which a condition holds; each row is valid until the next one."""
    if len(t) < 2 or t[-1] <= t[0]:
        return float(np.mean(where)) if len(t) else 0.0
    return time_where(t, where) / float(t[-1] - t[0])


SHARE = 0.1  # [-] change of a root mean square, if every second row is left out, above which the rows are too sparse


def sparse_rows(trajectory: Trajectory, spacing: float) -> str | None:
    """The sentence that names the task or input whose numbers depend most on the spacing; None if none does.

    A run that ended early says so itself: what it did last may be as fast as it likes.
    Violations below a hundredth of `settling_band` count as none, and inputs below a millionth of the largest.

    Args:
        spacing: `run.output_step` [s].
    """
    if trajectory.metadata.get("status") != "done":
        return None
    floor = 0.01 * trajectory.metadata.get("settling_band", SETTLING_BAND)
    sizes = {f"task error of {name}": (trajectory.violation(name), floor) for name in trajectory.tasks}
    inputs = trajectory.group("u")
    least = 1e-6 * max((rms(trajectory.t, u) for u in inputs.values()), default=0.0)
    sizes |= {f"input {name}": (u, least) for name, u in inputs.items()}
    changes = {name: _change(trajectory.t, x, least) for name, (x, least) in sizes.items()}
    worst = max(changes, key=lambda name: changes[name], default="")
    if not worst or changes[worst] <= SHARE:
        return None
    return (
        f"run.output_step {spacing:g} s gives {len(trajectory.t)} rows, too few for maximum and rms: with every second "
        f"row the rms of {worst} would differ by {100 * changes[worst]:.0f} % (shorten it)"
    )


def _change(t: Array, x: Array, least: float) -> float:
    """Relative change of the root mean square of `x` if every second row is left out; 0 if it is at most `least`."""
    dense, thinned = rms(t, x), rms(t[::2], x[::2])
    return abs(thinned / dense - 1.0) if dense > max(least, 0.0) else 0.0
