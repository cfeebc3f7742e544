"""Initial states: their violation of the constraints, and the nearest state that satisfies them.

Design: Gauss-Newton with the rank-revealing pseudoinverse. Dependent rows therefore do no harm, and each step is the
smallest correction. First q from the holonomic rows, then v from all rates. Near a singular pose such steps are far too
long: where they give up, damped ones begin again at the start. If these reduce no violation either, the rows contradict
each other or no pose satisfies them.

The damped steps may be held inside bounds on x:

    step:  least |A d + e|^2 + damping |d|^2      subject to  lower <= x + d <= upper

This is a Levenberg-Marquardt method whose steps hold components at their bounds. The damping is proportional to |e|, so
that steps become Newton's own close to a root, and the smallest ones where A has more columns than rows. `nearest_root`
then slides along the roots towards a wanted point.

Source: the damping is that of Yamashita, Fukushima 2001.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.engine.decomposition import decompose
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

ErrorFunction = Callable[[Array], tuple[Array, Array]]
"""x -> (error, shape (r,), and its Jacobian, shape (r, n)); not finite where there is none."""

STEPS = 200  # most steps of a search; from random starts of seven-joint arms it takes 5 to 40


def bounded_root(error: ErrorFunction, x: Array, lower: Array, upper: Array, good_enough: float = 1e-12) -> Array:
    """The point at which the search ends: a root, or a point from which no step reduces |error|.

    Args:
        error: The equations.
        x: The start inside the bounds, shape (n,).
        lower: Shape (n,); may be -inf.
        upper: Shape (n,); may be inf.
        good_enough: The search ends below this largest |error|.
    """
    value, slope = error(x)
    factor = 1.0
    for _ in range(STEPS):
        size = float(np.linalg.norm(value))  # infinite too where squares overflow
        if not np.isfinite(size) or np.abs(value).max(initial=0.0) < good_enough:
            break
        damping = factor * 1e-3 * size * max(1.0, float(np.abs(slope).max(initial=0.0)))
        step, _ = _held_step(slope, -value, partial(_damped, damping), x, lower, upper)
        trial = np.clip(x + step, lower, upper)
        new_value, new_slope = error(trial)
        if np.isfinite(new_value).all() and float(np.linalg.norm(new_value)) < size:
            x, value, slope, factor = trial, new_value, new_slope, max(factor / 10.0, 1e-9)
        elif factor > 1e12:
            break
        else:
            factor *= 10.0
    return x


def nearest_root(error: ErrorFunction, x: Array, wanted: Array, lower: Array, upper: Array) -> Array:
    """A root from which no step along the roots comes nearer to a wanted point.

    Args:
        error: The equations.
        x: A root.
        wanted: Shape (n,).
        lower: See `bounded_root`.
        upper: See `bounded_root`.
    """
    distance = float(np.linalg.norm(x - wanted))
    for _ in range(STEPS):
        value, slope = error(x)
        step, free = _held_step(slope, -value, partial(_along_roots, wanted - x), x, lower, upper)
        step, fraction = np.clip(x + step, lower, upper) - x, 1.0
        while fraction > 1e-3:
            # components that reach a bound stay there while the others return to the roots
            begin, stays = x + fraction * step, ~free & (fraction == 1.0)
            trial = bounded_root(error, begin, np.where(stays, begin, lower), np.where(stays, begin, upper))
            closer = float(np.linalg.norm(trial - wanted))
            if closer < distance * (1.0 - 1e-12) and np.abs(error(trial)[0]).max(initial=0.0) < 1e-10:
                break
            fraction /= 2.0
        else:
            break
        x, gain, distance = trial, distance - closer, closer
        if gain < 1e-10 * (1.0 + distance):
            break
    return x


def _damped(damping: float, A: Array, e: Array, free: Array) -> Array:
    """d of least |A d - e|^2 + damping |d|^2."""
    gram = A @ A.T + damping * np.eye(len(e))
    step: Array = A.T @ np.linalg.lstsq(gram, e, rcond=1e-14)[0]
    return step


def _along_roots(towards: Array, A: Array, e: Array, free: Array) -> Array:
    """d of least |d - towards| with A d = e."""
    step: Array = towards[free] + np.linalg.pinv(A, rcond=1e-9) @ (e - A @ towards[free])
    return step


def _held_step(
    A: Array, e: Array, of_free: Callable[[Array, Array, Array], Array], x: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """A step towards A d = e whose components are held at the bounds that it would pass, and which are free.

    Args:
        A: Shape (r, n).
        e: Shape (r,).
        of_free: Columns of the free components, what is left of e, and which are free -> the free part of the step.
        x: Where it begins, shape (n,).
        lower: Shape (n,).
        upper: Shape (n,).
    """
    step, free = np.zeros(len(x)), np.ones(len(x), dtype=bool)
    for _ in range(len(x)):
        step[free] = of_free(A[:, free], e - A[:, ~free] @ step[~free], free)
        outside = free & ((x + step > upper) | (x + step < lower))
        if not outside.any():
            break
        step[outside] = np.clip(x + step, lower, upper)[outside] - x[outside]
        free &= ~outside
    return step, free


SOLVED = 1e-10  # [units of the row] a violation counts as zero below this


@dataclass(frozen=True)
class Consistency:
    """The violations of the constraints at a state."""

    state: State
    rows: tuple[Row, ...]  # the rows, passive ones first
    violation: Array  # per row, shape (rows,); NaN for a row without one
    violation_rate: Array  # per row, shape (rows,); NaN for a row without one

    def each(self, among: Iterable[Row] | None = None) -> list[tuple[Row, float, float]]:
        """Row, violation and rate of some rows; None: of all."""
        wanted = set(self.rows if among is None else among)
        every = zip(self.rows, self.violation.tolist(), self.violation_rate.tolist(), strict=True)
        return [each for each in every if each[0] in wanted]

    def worst(self, rows: Iterable[Row], kind: str) -> tuple[Row, float] | None:
        """The row of this kind with the largest violation, and that violation; None if there is no such row."""
        values = [(row, violation) for row, violation, _ in self.each(rows) if row.kind == kind]
        return max(values, key=lambda item: abs(item[1]), default=None)


def consistency(model: Model, state: State) -> Consistency:
    """Violations of the passive constraints and of the task at a state."""
    model = model.plain
    stacked = _stacked(model, state)
    rows = (*model.passive_rows, *model.task_rows)
    return Consistency(state, rows, stacked.violation, stacked.violation_rate)


def _stacked(model: Model, state: State) -> Rows:
    return Rows.stack(model.rows(state)[:2], model.n)


def nearest(
    model: Model, state: State, fix: Sequence[str] = (), among: Sequence[Row] | None = None
) -> tuple[State, Consistency]:
    """The state that Gauss-Newton finds, and the violations that remain there.

    Args:
        fix: Coordinates that keep their values and velocities.
        among: Task rows that count in addition to the passive ones; None: all.
    """
    model = model.plain
    free = np.array([name not in fix for name in model.plant.coordinates])
    holonomic, first_order = (_counted(model, kind, among) for kind in ("holonomic", "nonholonomic"))
    t, _, v = state
    q = _pose(model, state, free, holonomic)

    def velocity(v: Array) -> tuple[Array, Array]:
        at = _stacked(model, State(t, q, v))
        error = np.concatenate([at.violation_rate[holonomic], at.violation[first_order]])
        return error, np.concatenate([at.A[holonomic], at.A[first_order]])

    closest = State(t, q, _gauss_newton(velocity, v, free))
    return closest, consistency(model, closest)


def nearest_pose(model: Model, state: State, good_enough: float = SOLVED) -> tuple[Array, float]:
    """The pose that Gauss-Newton finds, shape (n,), and the largest holonomic violation that remains there.

    Args:
        state: The state to begin with; its time is that of the task.
        good_enough: The search ends below this violation [units of the row].
    """
    model = model.plain
    holonomic = _counted(model, "holonomic", None)
    pose = _pose(model, state, np.ones(model.n, dtype=bool), holonomic, good_enough)
    return pose, float(np.abs(holonomic_error(model, state, holonomic)(pose)[0]).max(initial=0.0))


def pose_inside(model: Model, state: State, among: Sequence[Row], bounds: Sequence[int]) -> tuple[Array, float, Array]:
    """The pose that satisfies task rows and passive rows inside some bounds, as far as Gauss-Newton finds one.

    Args:
        model: Plant, constraints and bounds.
        state: The state to begin with; its time is that of the task.
        among: Holonomic task rows that count.
        bounds: Indices of rows of the model's bounds, of degree 2.

    Returns:
        The pose, shape (n,), the largest violation of task and passive rows there, and h of the bounds.
    """
    plain, inside = model.plain, list(bounds)
    holonomic = _counted(plain, "holonomic", among)

    def error(q: Array) -> tuple[Array, Array]:
        at = State(state.t, q, state.v)
        rows = _stacked(plain, at)
        value, slope = rows.violation[holonomic], rows.A[holonomic]
        if inside:
            of = model.rows_of_bounds(at)
            h, outside = of.violation[inside], of.violation[inside] < 0.0
            value = np.concatenate([value, np.where(outside, h, 0.0)])
            slope = np.concatenate([slope, np.where(outside[:, None], of.A[inside], 0.0)])
        return value, slope

    pose = _gauss_newton(error, state.q, np.ones(plain.n, dtype=bool))
    at = State(state.t, pose, state.v)
    left = float(np.abs(_stacked(plain, at).violation[holonomic]).max(initial=0.0))
    return pose, left, model.rows_of_bounds(at).violation[inside]


def _counted(model: Model, kind: str, among: Sequence[Row] | None) -> Array:
    """Which rows are of this kind, among the passive rows and these task rows, shape (rows,)."""
    rows = (*model.passive_rows, *model.task_rows)
    counted = {*model.passive_rows, *(model.task_rows if among is None else among)}
    return np.array([row.kind == kind and row in counted for row in rows], dtype=bool)


def holonomic_error(model: Model, state: State, counted: Array | None = None) -> ErrorFunction:
    """The violation of holonomic rows as equations of q, at the time and the velocity of a state.

    Args:
        counted: Which of the passive rows and the task's rows count, shape (rows,); None: all that are holonomic.
    """
    chosen = _counted(model, "holonomic", None) if counted is None else counted

    def error(q: Array) -> tuple[Array, Array]:
        at = _stacked(model, State(state.t, q, state.v))
        return at.violation[chosen], at.A[chosen]

    return error


def _pose(model: Model, state: State, free: Array, holonomic: Array, good_enough: float = SOLVED * 1e-3) -> Array:
    error = holonomic_error(model, state, holonomic)
    pose = _gauss_newton(error, state.q, free, good_enough)
    left = float(np.linalg.norm(error(pose)[0]))
    if left < SOLVED or not np.isfinite(left):
        return pose
    room = np.where(free, np.inf, 0.0)
    damped = bounded_root(error, state.q, state.q - room, state.q + room, good_enough)
    return damped if float(np.linalg.norm(error(damped)[0])) < left else pose


def _gauss_newton(error: ErrorFunction, x: Array, free: Array, good_enough: float = SOLVED * 1e-3) -> Array:
    """Minimum-norm Newton steps towards error(x) = 0, each halved until it reduces the norm of the error."""
    value, slope = error(x)
    for _ in range(100):
        size = float(np.abs(value).max()) if len(value) else 0.0
        if size < good_enough or not np.isfinite(value).all():
            break
        step = np.zeros(len(x))
        step[free] = -decompose(slope[:, free], 1e-9).solve(value)
        fraction = 1.0
        while fraction > 1e-6:
            trial = x + fraction * step
            new_value, new_slope = error(trial)
            if np.isfinite(new_value).all() and float(np.linalg.norm(new_value)) < float(np.linalg.norm(value)):
                break
            fraction /= 2
        else:
            break
        x, value, slope = trial, new_value, new_slope
    return x
