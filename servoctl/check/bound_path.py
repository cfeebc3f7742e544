"""Does the task itself lead out of a bound? Its path by geometry alone, without a simulation.

At each of some times the pose nearest to the last one that satisfies task and passive rows is found; if it is outside a
bound, a pose that satisfies the bound as well. Where there is none, task and bound exclude each other at that time.

Design: poses are those near the path from the start; another branch of the machine is not looked at. Rows of velocities
and reactions have no path of their own and are left out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.start import required_rows
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.initial import pose_inside
from servoctl.types import Array, State

TIMES = 60
"""Number of times along the run."""

FOLLOWED, OUTSIDE = 1e-6, 1e-6
"""A pose is on the path below this violation; h counts as outside below minus this [their units]."""


@dataclass(frozen=True)
class Exclusion:
    """Task and bound exclude each other at some times of the run.

    Attributes:
        first: The first of them [s].
        share: Their share of the times at which the task has a pose.
        least: Least h on the path.
        at: Time of the least h [s].
    """

    first: float
    share: float
    least: float
    at: float

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
    if not isinstance(law, BoundConstraintFollowing) or law.bounds is None:
        return {}
    rows: dict[str, list[int]] = {}
    for i, (bound, row) in enumerate(zip(law.bounds.rows, model.bound_rows, strict=True)):
        if row.degree == 2:
            rows.setdefault(bound.name, []).append(i)
    among = [row for row in required_rows(model, law) if row.kind == "holonomic"]
    if not rows or not among:
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
