"""Does the rate of a bound give up a path that stays inside? Its approach by geometry alone, without a simulation.

    h'' >= least(h, h', p)  along the task, with h, h' and h'' of its path        (see `laws.barrier`)

Design: only bounds whose h the task and the loops determine are looked at. Any other may be kept by what is free.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from servoctl.assembly import Run
from servoctl.check.task_path import task_states
from servoctl.laws import barrier
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.types import Array, State

RATE_TIMES = 240  # number of times along the run
DETERMINED = 1e-6  # the task determines h if what is left of its gradient is less than this share of it
FASTEST = 1e4  # [1/s] largest rate that is suggested for a law without a period


@dataclass(frozen=True)
class Hurry:
    """A path that stays inside a bound and comes towards it faster than its rate allows."""

    first: float  # [s] when it does for the first time
    rate: float  # [1/s] rate of the bound
    enough: float | None  # a rate that lets it [1/s]; None: no stable rate does

    @property
    def text(self) -> str:
        """One sentence, with its remedy."""
        remedy = "lead the task away from it" if self.enough is None else f"rate: {self.enough:.3g} lets it"
        return (
            f"the task's path stays inside, but comes near faster than the rate of {self.rate:.3g} 1/s allows from "
            f"t = {self.first:.3g} s: the law gives up the task there ({remedy})"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def hurries(run: Run) -> dict[str, Hurry]:
    """Bound -> how its rate gives up a path that stays inside; without bounds whose rate lets the path."""
    law, model = run.system.law, run.system.model
    if not isinstance(law, BoundConstraintFollowing) or law.bounds is None or not model.task_rows:
        return {}
    rows = [i for i, row in enumerate(law.bounds.rows) if row.kind == "barrier"]
    states = list(task_states(run, RATE_TIMES)) if rows else []
    if len(states) < RATE_TIMES:
        return {}
    t = np.array([state.t for state in states])
    h = np.array([model.rows_of_bounds(state).violation for state in states])
    found: dict[str, Hurry] = {}
    for i in rows:
        if not np.isfinite(h[:, i]).all() or h[:, i].min() < 0.0 or not _determined(run, states[:: RATE_TIMES // 8], i):
            continue
        path, period = CubicSpline(t, h[:, i]), law.bounds.period
        late = _late(path, t, law.bound_rates[i], period)
        if late.any():
            hurry = Hurry(float(t[late][0]), float(law.bound_rates[i]), _enough(path, t, law.bound_rates[i], period))
            found.setdefault(law.bounds.rows[i].name, hurry)
    return found


def _late(path: CubicSpline, t: Array, p: float, period: float | None) -> Array:
    """Where the path does not keep the condition of a rate, shape (times,)."""
    second = path(t, 2)
    slack = 1e-3 * np.abs(second).max(initial=0.0) + 1e-9  # of the spline
    return np.asarray(second < barrier.barrier(path(t), path(t, 1), p, period) - slack)


def _enough(path: CubicSpline, t: Array, p: float, period: float | None) -> float | None:
    """The smallest of some larger rates that lets the path; None if none does."""
    last = FASTEST if period is None else 0.95 * barrier.LARGEST / period
    return next((float(r) for r in np.geomspace(p, max(p, last), 60) if not _late(path, t, r, period).any()), None)


def _determined(run: Run, states: list[State], i: int) -> bool:
    """Whether the loops and the task alone move h."""
    model = run.system.model
    for state in states:
        matrices = model.plain.matrices(state)
        rows, gradient = np.vstack([matrices.passive.A, matrices.task.A]), model.rows_of_bounds(state).A[i]
        rest = gradient - rows.T @ np.linalg.lstsq(rows.T, gradient, rcond=None)[0]
        if np.linalg.norm(rest) > DETERMINED * np.linalg.norm(gradient):
            return False
    return True
