"""The path of the task by geometry alone, without a simulation: does it lead out of a bound, or too fast for one?

At each of some times the pose nearest to the last one that satisfies task and passive rows is found; if it is outside a
bound, a pose that satisfies the bound as well. Where there is none, task and bound exclude each other at that time. The
same is asked of bounds on velocities, with the velocities at which the machine follows its path.

Design: poses are those near the path from the start; another branch of the machine is not looked at. Reactions have no
path of their own and are left out.

What the task leaves free stays near the start, and moves with the least speeds; a run may move it otherwise. A task of
speeds leads the machine from pose to pose. The least
joint speeds that the rates of the required tasks and the loops need are compared with the limits.

The rate p of a bound gives up a path that stays inside unless, along the task,

    h'' >= least(h, h', p)  with h, h' and h'' of its path        (see `laws.barrier`)

Only bounds whose h the task and the loops determine are looked at for this. Any other may be kept by what is free.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.start import required_rows
from servoctl.errors import Finding, ServoctlError
from servoctl.laws import barrier
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.initial import nearest, pose_inside
from servoctl.mechanics.spatial.plant import Robot
from servoctl.reference.curve import too_fast
from servoctl.types import Array, State

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

LOST = 1e-3  # [units of the row] a larger violation means that the machine cannot follow from there on
ITERATIONS = 3  # of the speeds at the end of a step


def task_states(run: Run, count: int) -> Iterator[State]:
    """States on the required tasks and the loops at equally spaced times after the start, up to where they are lost."""
    state = run.start
    for t in np.linspace(run.start.t, run.start.t + run.settings.duration, count + 1)[1:]:
        following = task_state(run, state, float(t))
        if following is None:
            return
        state = following
        yield state


def task_state(run: Run, near: State, t: float) -> State | None:
    """The state at another time that is nearest to a state and on the required tasks and the loops; None: not found.

    Rows of speeds move the machine to it with the least speeds, by the trapezoidal rule.
    """
    required = required_rows(run.system.model.plain, run.system.law)
    state = _on_task(run, required, t, near.q)
    if all(row.kind == "holonomic" for row in required):
        return state
    for _ in range(ITERATIONS):
        if state is not None:
            state = _on_task(run, required, t, near.q + (t - near.t) * (near.v + state.v) / 2.0)
    return state


def _on_task(run: Run, required: list[Row], t: float, q: Array) -> State | None:
    """The state nearest to a pose at rest."""
    model = run.system.model.plain
    try:
        state, left = nearest(model, State(t, q, np.zeros(model.n)), among=required)
    except ServoctlError:
        return None
    rows = [row for row in (*model.passive_rows, *required) if row.has_violation]
    counted = [x for row, x in zip(left.rows, left.violation, strict=True) if row in rows]
    return state if np.abs(counted).max(initial=0.0) < LOST else None


SPEED_SAMPLES = 60  # number of times at which the speeds are computed


def speed_warnings(run: Run) -> list[Finding]:
    """Warnings about joints that the references move faster than their limits; empty without robot or references."""
    model = run.system.model.plain
    used = {name for constraint in model.task.values() for name in constraint.signals}
    if not isinstance(model.plant, Robot) or not used:
        return []
    limits = {joint.name: joint.velocity for joint in model.plant.tree.joints if joint.velocity is not None}
    guided = {signal.column: signal for name, signal in run.signals.items() if name in used and signal.column in limits}
    findings = [Finding("", sentence) for sentence in too_fast(guided, limits)]
    needed = _needed(run, list(limits))
    for name, (speed, t) in needed.items():
        if name not in guided and speed > limits[name]:
            moves = f"moves {name} at {speed:.4g} at t = {t:.4g} s or faster, its speed limit is {limits[name]:.4g}"
            findings.append(Finding("task", f"{moves} (slow the reference down)"))
    return findings


def _needed(run: Run, joints: list[str]) -> dict[str, tuple[float, float]]:
    """Joint -> its largest least speed along the required tasks, and when; up to where the robot cannot follow."""
    index = [list(run.system.model.plant.coordinates).index(name) for name in joints]
    found = dict.fromkeys(joints, (0.0, run.start.t))
    for state in task_states(run, SPEED_SAMPLES):
        for name, i in zip(joints, index, strict=True):
            speed = abs(float(state.v[i]))
            if speed > found[name][0]:
                found[name] = speed, state.t
    return found


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


def exclusions(run: Run) -> dict[str, Exclusion]:
    """Bound -> when the task excludes it; without bounds that it does not."""
    bounds, model = run.system.acting.bounds, run.system.model
    if bounds is None or not model.bound_rows:
        return {}  # no bound is on the motion: a bound on a reaction has no path of its own
    rows: dict[str, list[int]] = {}
    speeds: dict[str, list[int]] = {}
    for i, (bound, row) in enumerate(zip(bounds.rows, model.bound_rows, strict=True)):
        (rows if row.degree == 2 else speeds).setdefault(bound.name, []).append(i)
    among = [row for row in required_rows(model, run.system.law) if row.kind == "holonomic"]
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
    from scipy.linalg import null_space  # SciPy takes a fifth of the time to start a command
    from scipy.optimize import linprog

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


def hurries(run: Run) -> dict[str, Hurry]:
    """Bound -> how its rate gives up a path that stays inside; without bounds whose rate lets the path."""
    bounds, model = run.system.acting.bounds, run.system.model
    if bounds is None or not model.task_rows:
        return {}
    rows = [i for i, row in enumerate(bounds.rows) if row.kind == "barrier"]
    states = list(task_states(run, RATE_TIMES)) if rows else []
    if len(states) < RATE_TIMES:
        return {}
    from scipy.interpolate import CubicSpline

    t = np.array([state.t for state in states])
    h = np.array([model.rows_of_bounds(state).violation for state in states])
    found: dict[str, Hurry] = {}
    for i in rows:
        if not np.isfinite(h[:, i]).all() or h[:, i].min() < 0.0 or not _determined(run, states[:: RATE_TIMES // 8], i):
            continue
        path, row, period = CubicSpline(t, h[:, i]), bounds.rows[i], bounds.timing.period
        late = _late(path, t, row.rate, period)
        if late.any():
            hurry = Hurry(float(t[late][0]), float(row.rate), _enough(path, t, row.rate, period))
            found.setdefault(row.name, hurry)
    return found


def _late(path: "CubicSpline", t: Array, p: float, period: float | None) -> Array:
    """Where the path does not keep the condition of a rate, shape (times,)."""
    second = path(t, 2)
    slack = 1e-3 * np.abs(second).max(initial=0.0) + 1e-9  # of the spline
    return np.asarray(second < barrier.barrier(path(t), path(t, 1), p, period) - slack)


def _enough(path: "CubicSpline", t: Array, p: float, period: float | None) -> float | None:
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
