"""Does the task itself lead out of a bound? Its path by geometry alone, without a simulation.

At each of some times the pose nearest to the last one that satisfies task and passive rows is found; if it is outside a
bound, a pose that satisfies the bound as well. Where there is none, task and bound exclude each other at that time. The
same is asked of bounds on velocities, with the velocities at which the machine follows its path.

Design: poses are those near the path from the start; another branch of the machine is not looked at. Reactions have no
path of their own and are left out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

from servoctl.assembly import Run
from servoctl.assembly.start import required_rows
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.initial import pose_inside
from servoctl.mechanics.rows import Rows
from servoctl.types import Array, State

TIMES = 60  # number of times along the run

FOLLOWED, OUTSIDE = 1e-6, 1e-6
"""A pose is on the path below this violation; h counts as outside below minus this [their units]."""


@dataclass(frozen=True)
class Exclusion:
    """Task and bound exclude each other at some times of the run."""

    first: float  # [s] the first of them
    share: float  # their share of the times at which the task has a pose
    least: float  # least h on the path
    at: float  # [s] time of the least h

    @property
    def always(self) -> bool:
        """Whether the task has no pose inside at any time."""
        return self.share >= 1.0

    @property
    def text(self) -> str:
        """What the path does."""
        least = f"h = {self.least:.4g} at {self.at:.4g} s"
        if self.always:
            return f"the task's path is outside at every time ({least})"
        return f"the task's path is outside {self.share:.0%} of the time, first at {self.first:.3g} s ({least})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"first": self.first, "share": self.share, "least": self.least, "at": self.at}


def exclusions(run: Run) -> dict[str, Exclusion]:
    """Bound -> when the task excludes it; without bounds that it does not."""
    law, model = run.system.law, run.system.model
    if not isinstance(law, BoundConstraintFollowing) or law.bounds is None or not model.bound_rows:
        return {}  # no bound is on the motion: a bound on a reaction has no path of its own
    rows: dict[str, list[int]] = {}
    speeds: dict[str, list[int]] = {}
    for i, (bound, row) in enumerate(zip(law.bounds.rows, model.bound_rows, strict=True)):
        (rows if row.degree == 2 else speeds).setdefault(bound.name, []).append(i)
    among = [row for row in required_rows(model, law) if row.kind == "holonomic"]
    if not among:
        return {}
    outside: dict[str, list[tuple[float, float]]] = {}
    q, known = run.start.q, 0
    for t in np.linspace(run.start.t, run.start.t + run.settings.duration, TIMES):
        pose, left, _ = pose_inside(model, State(float(t), q, np.zeros(model.n)), among, ())
        if not left < FOLLOWED:
            continue
        q, known = pose, known + 1
        state = State(float(t), q, np.zeros(model.n))
        h = model.rows_of_bounds(state).violation
        for name, of in rows.items():
            if h[of].min() < -OUTSIDE and _excluded(run, state, among, of):
                outside.setdefault(name, []).append((float(t), float(h[of].min())))
        for name, of in speeds.items():
            least = _fastest(run, state, among, of)
            if least < -OUTSIDE:
                outside.setdefault(name, []).append((float(t), least))
    found = {}
    for name, values in outside.items():
        at, least = min(values, key=lambda value: value[1])
        found[name] = Exclusion(values[0][0], len(values) / known, least, at)
    return found


def _excluded(run: Run, state: State, among: list[Any], of: list[int]) -> bool:
    """Whether no pose near the state satisfies both the task and the rows of a bound."""
    _, left, h = pose_inside(run.system.model, state, among, of)
    inside: Array = np.asarray(h)
    return not (left < FOLLOWED and inside.min() > -OUTSIDE)


def _fastest(run: Run, state: State, among: list[Any], of: list[int]) -> float:
    """h of bounds on velocities where the machine follows its path: the largest that its free motion leaves."""
    model, plain = run.system.model, run.system.model.plain
    matrices = plain.matrices(state)
    rows = Rows.stack([matrices.passive, matrices.task], plain.n)
    kinds = (*plain.passive_rows, *plain.task_rows)
    counted = [i for i, row in enumerate(kinds) if row in among or i < len(plain.passive_rows)]
    A = rows.A[counted]
    # at rest the rate of a holonomic row, and the violation of another, is what the motion takes back
    holonomic = np.array([row.kind == "holonomic" for row in kinds])
    at_rest: Array = np.where(holonomic, rows.violation_rate, rows.violation)[counted]
    v = np.linalg.lstsq(A, -at_rest, rcond=None)[0]
    bounds = model.rows_of_bounds(State(state.t, state.q, v))
    h = bounds.violation[of]
    if h.min() >= -OUTSIDE or not np.isfinite(h).all():
        return float(np.nan_to_num(h).min())
    free = null_space(A)
    slopes = bounds.A[of] @ free
    if not slopes.size:
        return float(h.min())
    # the largest s with h + slopes z >= s, for bounds that are linear in the velocities
    columns = np.hstack([-slopes, np.ones((len(of), 1))])
    found = linprog([*np.zeros(free.shape[1]), -1.0], columns, h, bounds=[(None, None)] * free.shape[1] + [(None, 0.0)])
    if found.status != 0 or found.x is None:
        return 0.0
    z = found.x[:-1]
    there = model.rows_of_bounds(State(state.t, state.q, v + free @ z)).violation[of]
    linear = np.allclose(there, h + slopes @ z, atol=OUTSIDE)
    return float(there.min()) if linear else 0.0
