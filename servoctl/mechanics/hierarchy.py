"""Levels of a plant's own constraints, enforced one after another; no level is solved twice.

In mass-weighted form, `M = L L^T`, `w = L^T q''`, `H = A L^-T`, the recursion starts at `w = L^-1 Q`, `P = I`. Each
level `A q'' = b` updates both:

    K  = P H^T (H P H^T + R)^+
    w <- w + K (b - H w)
    P <- (I - K H) P (I - K H)^T + K R K^T

This is the Kalman filter of a static process. Its covariance P is the projector onto the space that exact levels leave
free. A clearance R > 0 is the noise of a constraint that is not exact. Every square root of M gives the same q''.

Design: the recursion carries S with `P = S S^T`, so P stays positive semidefinite under rounding. The exact rows of a
level enter together, `K = S (H S)^+` by the rank-revealing decomposition. A row with a clearance is an exact row with
one more coordinate, `[H S, R^1/2]`, as in `mechanics.terms`. No Gram matrix is formed, because it squares the condition
number. A step acts only through S, so it cannot disturb earlier levels. The motion does not depend on the order,
because the recursion ends at the motion under all constraints. A run therefore takes only the clearances of levels; the
levels show what each group of constraints adds and how much a clearance yields.

Source: Orsino 2017, (4.14)-(4.18), figure 4. The inverse printed in (4.16) exists only if the rows of H P are
independent; here K is `(H P)^+ = P H^T (H P H^T)^+`. The algorithm also needs the b of each level.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.decomposition import decompose, frobenius, longer_rows
from servoctl.engine.linalg import cholesky, project, solve_lower, solve_upper
from servoctl.engine.structured import Diagonal
from servoctl.errors import PlantError, counted, listed
from servoctl.mechanics.model import Model
from servoctl.mechanics.planar import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-10
"""A direction counts when its pivot exceeds this times the Frobenius norm of its rows, before any projection."""


SHOWN = 8  # number of skipped rows that a message lists


@dataclass(frozen=True)
class PassiveLevel:
    """Groups of passive constraints that are enforced together."""

    name: str  # name of the level
    groups: tuple[str, ...]  # names of the groups; the rows of the level are in this order
    clearance: float | tuple[float, ...] = 0.0  # the clearance of `Level`, for all rows or one per row


@dataclass(frozen=True)
class Level:
    """The constraints `A q'' = b` of one level."""

    name: str  # name of the level in results and errors
    A: Array  # shape (r, n). Rows may depend on each other and on rows of other levels
    b: Array  # shape (r,)
    # R >= 0, shape (r,) [acceleration of the row / its multiplier]: row i yields by `b_i - A_i q'' = R_i lambda_i`,
    # where `A^T lambda` is the level's constraint force; 0: exact
    clearance: Array
    rows: tuple[str, ...]  # names of the rows

    @property
    def exact(self) -> Array:
        """Which rows have no clearance, shape (r,)."""
        found: Array = self.clearance == 0.0
        return found


@dataclass(frozen=True)
class Contradiction:
    """Rows of a level that cannot be met."""

    level: str
    residual: tuple[float, ...]  # `b - A q''` of these rows, by least squares
    against: tuple[str, ...]  # earlier levels that they contradict; empty: rows of the level contradict each other
    names: tuple[str, ...]  # names of these rows

    def __str__(self) -> str:
        missed = ", ".join(f"{name} by {x:.3g}" for name, x in zip(self.names, self.residual, strict=True))
        other = " and ".join(f"'{name}'" for name in self.against) or "each other"
        return f"level '{self.level}': {missed}: cannot be met (at odds with {other}: correct b, or give a clearance)"


@dataclass(frozen=True)
class Enforced:
    """The motion under the levels enforced so far."""

    L: Array  # Cholesky factor of M, lower triangular, shape (n, n)
    w: Array  # `L^T q''`, shape (n,)
    factor: Array  # S of `P = S S^T`, n rows, and a column more for each row with a clearance
    rank: int  # number of directions that exact rows have taken
    skipped: tuple[str, ...] = ()  # rows of the last level for which earlier levels leave no room
    levels: tuple[Level, ...] = ()  # the levels, in order

    @property
    def acceleration(self) -> Array:
        """q'', shape (n,)."""
        return solve_upper(self.L, self.w)

    @property
    def trace(self) -> float:
        """Trace of P: the remaining degrees of freedom; a fraction if there are clearances."""
        return float(np.sum(self.factor * self.factor))

    def residual(self, level: Level) -> Array:
        """`b - A q''` of each row of a level, at the current acceleration."""
        left: Array = level.b - level.A @ self.acceleration
        return left

    def contradiction(self, tolerance: float = 1e-8) -> Contradiction | None:
        """The exact rows of the last level that the earlier levels prevent; None if all are met.

        Args:
            tolerance: A row counts as missed beyond this times (1 + max(|b|_inf, |A q''|_inf)).
        """
        if not self.levels:
            return None
        *earlier, last = self.levels
        left = np.where(last.exact, self.residual(last), 0.0)
        size = 1.0 + max(np.abs(x).max(initial=0.0) for x in (last.b, last.A @ self.acceleration))
        missed = np.flatnonzero(np.abs(left) > tolerance * size)
        if not len(missed):
            return None
        # The residual of least squares satisfies S^T H^T left = 0, so H^T left lies in the span of earlier exact rows:
        # it is zero if the level contradicts itself, and its components name the earlier levels if not.
        H = _weighted(self.L, last.A)
        parts = [_weighted(self.L, level.A[level.exact]) for level in earlier]
        level_of_row = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        known = np.concatenate([H[:0], *parts])
        mix = decompose(known.T, RANK_TOLERANCE).solve(H.T @ left)
        floor = tolerance * frobenius(H) * frobenius(left)
        shares = [np.linalg.norm(mix[level_of_row == k] @ known[level_of_row == k]) for k in range(len(parts))]
        against = [level.name for level, share in zip(earlier, shares, strict=True) if share > floor]
        names = tuple(last.rows[i] for i in missed)
        return Contradiction(last.name, tuple(left[missed].tolist()), tuple(against), names)


def solve_levels(
    M: Array | Diagonal, Q: Array, levels: Iterable[Level], rank_tolerance: float = RANK_TOLERANCE
) -> list[Enforced]:
    """The motion before any level, then after each level, in the space that the earlier levels leave free.

    Rows that contradict exact earlier rows give way. Rows of one level that contradict each other are met in the sense
    of least squares.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive definite.
        Q: Given forces, shape (n,), including the part of the constraint forces that does work.
        rank_tolerance: A direction counts when its pivot exceeds this times |A L^-T|_F of its level.

    Raises:
        PlantError: M is not positive definite, or a number is not finite.
    """
    M = np.asarray(M)
    if not (np.isfinite(M).all() and np.isfinite(Q).all()):
        raise PlantError("mass matrix or force: not finite (check the plant at this state)")
    L, positive = cholesky(M)
    if not positive:
        least = f"smallest eigenvalue {np.linalg.eigvalsh(M)[0]:.1e}"
        raise PlantError(f"mass matrix: not positive definite ({least}; if it is singular, see mechanics.terms)")
    motions = [Enforced(L, solve_lower(L, Q), np.eye(len(M)), 0)]
    for level in levels:
        motions.append(_enforced(motions[-1], level, rank_tolerance))
    return motions


def _enforced(motion: Enforced, level: Level, rank_tolerance: float) -> Enforced:
    if not (np.isfinite(level.A).all() and np.isfinite(level.b).all()):
        raise PlantError(f"level '{level.name}': A or b is not finite (check the constraints at this state)")
    H, w, S, rank = _weighted(motion.L, level.A), motion.w, motion.factor, motion.rank
    # pivots count relative to the size of H: that of H S may be round-off alone
    scale, acts = frobenius(H), np.zeros(len(H))
    for rows in filter(np.any, (level.exact, ~level.exact)):
        # rows of round-off are set to zero, so that their gain is exactly 0 and they count as skipped
        acts[rows], HS = longer_rows(H[rows] @ S, rank_tolerance * scale)
        yields = np.diag(np.sqrt(level.clearance[rows]))[:, level.clearance[rows] > 0.0]
        split = decompose(np.hstack([HS, yields]), rank_tolerance, scale)
        S = np.hstack([S, np.zeros((len(S), yields.shape[1]))])
        w = w + S @ split.solve(level.b[rows] - H[rows] @ w)
        S = project(split.row_basis, S.T).T
        rank += 0 if yields.size else split.rank
    skipped = tuple(row for row, counted in zip(level.rows, acts, strict=True) if not counted)
    return Enforced(motion.L, w, S, rank, skipped, (*motion.levels, level))


def _weighted(L: Array, A: Array) -> Array:
    """A L^-T, shape (r, n)."""
    rows: Array = solve_lower(L, A.T).T
    return rows


def level_report(
    before: Enforced, motion: Enforced, last: Enforced, coordinates: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """The effect of a level on the motion: one line, and values for JSON.

    Args:
        before: The motion without the level.
        motion: The motion with it.
        last: The motion under all levels.
        coordinates: Name -> unit, in order.
    """
    level, a = motion.levels[-1], motion.acceleration
    rank, change, left = motion.rank - before.rank, a - before.acceleration, last.residual(level)
    yields = {level.rows[i]: float(left[i]) for i in np.flatnonzero(~level.exact)}
    rows, loose = len(level.rows), len(yields)
    kind = f" of rank {rank}"
    if loose:
        kind = ", all with clearance" if loose == rows else f", {loose} with clearance, the others{kind}"
    line = f"{level.name}: {counted(rows, 'row')}{kind}"
    if motion.skipped:
        line += f"; skipped, since they depend on earlier levels: {listed(motion.skipped, SHOWN)}"
    line += f"; trace of P {motion.trace:.7g}; accelerations change by up to {largest(change, coordinates)}"
    if loose:
        row, most = max(yields.items(), key=lambda item: abs(item[1]))
        line += f"; under all levels {row} yields most, by {most:.3g}"
    return line, {
        "rows": level.rows, "rank": rank, "skipped": motion.skipped, "trace": motion.trace,
        "change": np.abs(change).max(), "yields": yields, "acceleration": dict(zip(coordinates, a, strict=True)),
    }  # fmt: skip


def largest(change: Array, coordinates: Mapping[str, str]) -> str:
    """The largest component of an acceleration, with its unit and coordinate."""
    i = int(np.argmax(np.abs(change)))
    name, unit = list(coordinates.items())[i]
    return f"{abs(change[i]):.3g} {unit}/s^2 ({name})"


def declared_levels(plant: Plant) -> tuple[PassiveLevel, ...]:
    """The levels that a `PlanarLinkage` declares, if there are several; else none."""
    level_of = plant.levels if isinstance(plant, PlanarLinkage) else {}
    numbers = sorted(set(level_of.values()))
    if len(numbers) < 2:
        return ()
    return tuple(
        PassiveLevel(f"level {number}", tuple(name for name, level in level_of.items() if level == number))
        for number in numbers
    )


def levels_at(model: Model, state: State, levels: Sequence[PassiveLevel]) -> list[Level]:
    """The constraints of each level at a state, for `solve_levels`."""
    passive, rows = model.matrices(state).passive, model.passive_rows
    result = []
    for level in levels:
        index = [i for group in level.groups for i, row in enumerate(rows) if row.group == group]
        clearance = np.broadcast_to(np.array(level.clearance, dtype=float), len(index))
        names = tuple(rows[i].name for i in index)
        result.append(Level(level.name, passive.A[index], passive.b[index], clearance, names))
    return result


def motions(
    model: Model,
    state: State,
    levels: Sequence[PassiveLevel],
    u: Array | None = None,
    rank_tolerance: float = RANK_TOLERANCE,
) -> list[Enforced]:
    """The motion before any level, then after each level.

    Args:
        levels: In the order in which they are enforced.
        u: Inputs, shape (m,); None: no input acts.

    Raises:
        PlantError: A number is not finite, or the mass matrix is singular without the constraints.
    """
    m = model.matrices(state)
    if m.singular:
        raise PlantError(
            "mass matrix: singular without the mechanism constraints, so only all levels together have one motion "
            "(give every body mass and inertia to see level by level)"
        )
    Q = m.Q + m.c if u is None else m.Q + m.c + m.B @ u
    return solve_levels(m.M, Q, levels_at(model, state, levels), rank_tolerance)


def contradictions(
    model: Model, state: State, levels: Sequence[PassiveLevel], rank_tolerance: float, tolerance: float
) -> list[Contradiction]:
    """Levels with rows that no acceleration can meet together with the earlier levels.

    This does not depend on masses and forces, so it is computed with the unit mass matrix and no force.

    Args:
        levels: In the order in which they are enforced.
        tolerance: The tolerance of `Enforced.contradiction`.

    Raises:
        PlantError: A number is not finite.
    """
    enforced = solve_levels(np.eye(model.n), np.zeros(model.n), levels_at(model, state, levels), rank_tolerance)
    return [found for motion in enforced if (found := motion.contradiction(tolerance)) is not None]
