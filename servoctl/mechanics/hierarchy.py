"""Constraint levels, enforced one after another; no level is solved twice.

In mass-weighted form, `M = L L^T`, `w = L^T q''`, `H = A L^-T`, the recursion starts at `w = L^-1 Q`, `P = I`. Each
level `A q'' = b` updates both:

    K  = P H^T (H P H^T + R)^+
    w <- w + K (b - H w)
    P <- (I - K H) P (I - K H)^T + K R K^T

This is the Kalman filter of a static process. Its covariance P is the projector onto the space that exact levels leave
free. A clearance R > 0 is the noise of a constraint that is not exact. Every square root of M gives the same q''.

Design: the recursion carries S with `P = S S^T`, so P stays positive semidefinite under rounding. The exact rows of a
level enter together, `K = S (H S)^+` by the rank-revealing decomposition. Rows with a clearance follow one by one in
Potter's form of the same update. No Gram matrix is formed, because it squares the condition number. A step acts only
through S, so it cannot disturb earlier levels. The code runs on numbers and on symbols; names of rows need numbers.

Source: Orsino 2017, (4.14)-(4.18). The inverse printed in (4.16) exists only if the rows of H P are independent; here
K is `(H P)^+ = P H^T (H P H^T)^+`. The algorithm also needs the b of each level. Potter's form: Bierman 1977.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.linalg import cholesky, decompose, frobenius, is_finite, solve_lower, solve_upper
from servoctl.engine.structured import Sparse
from servoctl.engine.symbol import is_symbolic, where
from servoctl.errors import PlantError
from servoctl.mechanics.projection import RANK_TOLERANCE, realise, realise_with_clearance
from servoctl.types import Array


@dataclass(frozen=True)
class Level:
    """The constraints `A q'' = b` of one level."""

    name: str  # name of the level in results and errors
    # shape (r, n), or (n,) for one row. Rows may depend on each other and on rows of other levels
    A: Array
    b: Array  # shape (r,)
    # R >= 0, for all rows or shape (r,) [acceleration of the row / its multiplier]: row i yields by `b_i - A_i q'' =
    # R_i lambda_i`, where `A^T lambda` is the level's constraint force; 0: exact
    clearance: Any = 0.0
    rows: tuple[str, ...] | None = None  # names of the rows in messages; None: `row 0`, `row 1`, ...


@dataclass(frozen=True)
class Contradiction:
    """Rows of a level that cannot be met."""

    level: str
    rows: tuple[int, ...]  # their indices in the level
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
    free: Array  # `L^-1 Q`, shape (n,): w before any level
    w: Array  # `L^T q''`, shape (n,)
    factor: Array  # S of `P = S S^T`, shape (n, n); equal to P if no level has a clearance
    rank: Any  # number of directions that exact rows have taken
    # which rows of the last level act, shape (r,). Earlier levels leave no room for the others; their gain is 0
    counted: Array
    levels: tuple[Level, ...] = ()  # the levels, in order

    @property
    def acceleration(self) -> Array:
        """q'', shape (n,)."""
        return solve_upper(self.L, self.w)

    @property
    def constraint_force(self) -> Array:
        """M q'' - Q, shape (n,): the force of all levels together."""
        force: Array = self.L @ (self.w - self.free)
        return force

    @property
    def P(self) -> Array:
        """P, shape (n, n), in mass-weighted form."""
        return self.factor @ self.factor.T

    @property
    def trace(self) -> Any:
        """Trace of P: the remaining degrees of freedom; a fraction if there are clearances."""
        return np.sum(self.factor * self.factor)

    @property
    def residuals(self) -> dict[str, Array]:
        """Level -> `b - A q''` per row, at the current acceleration."""
        a = self.acceleration
        return {level.name: level.b - level.A @ a for level in self.levels}

    @property
    def residual(self) -> Array:
        """`b - A q''` per row of the last level."""
        return self.residuals[self.levels[-1].name] if self.levels else np.zeros(0)

    @property
    def skipped(self) -> tuple[int, ...]:
        """Rows of the last level with gain 0."""
        return tuple(int(i) for i in np.flatnonzero(~self.counted))

    def contradiction(self, tolerance: float = 1e-8) -> Contradiction | None:
        """The exact rows of the last level that the earlier levels prevent; None if all are met.

        Args:
            tolerance: A row counts as missed beyond this times (1 + max(|b|_inf, |A q''|_inf)).
        """
        if not self.levels:
            return None
        *earlier, last = self.levels
        left = np.where(_exact(last), self.residual, 0.0)
        size = 1.0 + max(np.abs(x).max(initial=0.0) for x in (last.b, last.A @ self.acceleration))
        missed = np.flatnonzero(np.abs(left) > tolerance * size)
        if not len(missed):
            return None
        # The residual of least squares satisfies S^T H^T left = 0, so H^T left lies in the span of earlier exact rows:
        # it is zero if the level contradicts itself, and its components name the earlier levels if not.
        H = _weighted(self.L, last.A)
        parts = [_weighted(self.L, level.A[_exact(level)]) for level in earlier]
        level_of_row = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        known = np.concatenate([H[:0], *parts])
        mix = decompose(known.T, RANK_TOLERANCE).solve(H.T @ left)
        floor = tolerance * frobenius(H) * frobenius(left)
        shares = [np.linalg.norm(mix[level_of_row == k] @ known[level_of_row == k]) for k in range(len(parts))]
        against = [level.name for level, share in zip(earlier, shares, strict=True) if share > floor]
        rows, residual = tuple(map(int, missed)), tuple(map(float, left[missed]))
        names = tuple(f"row {i}" if last.rows is None else last.rows[i] for i in rows)
        return Contradiction(last.name, rows, residual, tuple(against), names)


def free_motion(M: Array | Sparse, Q: Array) -> Enforced:
    """The motion before any level.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive definite.
        Q: Given forces, shape (n,), including the part of the constraint forces that does work.

    Raises:
        PlantError: M is not positive definite, or a number is not finite. On symbols w is NaN instead.
    """
    M = np.asarray(M)
    if is_finite(M, Q) is False:
        raise PlantError("mass matrix or force: not finite (check the plant at this state)")
    L, positive = cholesky(M)
    if positive is False:
        least = f"smallest eigenvalue {np.linalg.eigvalsh(M)[0]:.1e}"
        raise PlantError(
            f"mass matrix: not positive definite ({least}; if it is singular, see mechanics.singular_mass)"
        )
    w: Array = where(positive, solve_lower(L, Q), np.nan)
    return Enforced(L, w, w, np.eye(len(M)), 0, np.zeros(0, dtype=bool))


def enforce(
    motion: Enforced,
    A: Array,
    b: Array,
    clearance: Any = 0.0,
    name: str | None = None,
    rank_tolerance: Any = RANK_TOLERANCE,
    rows: tuple[str, ...] | None = None,
) -> Enforced:
    """Enforces one more level in the space that the earlier levels leave free.

    Rows that contradict exact earlier rows give way. Rows of one level that contradict each other are met in the sense
    of least squares.

    Args:
        motion: The motion under the earlier levels.
        A: See `Level`.
        b: See `Level`.
        clearance: See `Level`.
        name: The level's name; None: `level 1`, `level 2`, ...
        rank_tolerance: A direction counts when its pivot exceeds this times |A L^-T|_F of its level.
        rows: See `Level`.

    Raises:
        PlantError: A shape is wrong, a number is not finite, a clearance is negative, or the name is taken.
    """
    level = _checked(Level(name or f"level {len(motion.levels) + 1}", A, b, clearance, rows), motion)
    H, exact = _weighted(motion.L, level.A), _exact(level)
    scale = frobenius(H)
    step = realise(motion.w, motion.factor, H[exact], level.b[exact], rank_tolerance, scale)
    rank, counted = motion.rank + step.split.rank, np.zeros(len(H), dtype=object)
    counted[exact] = step.counted
    for i in np.flatnonzero(~exact):
        step = realise_with_clearance(step, H[i], level.b[i], level.clearance[i], rank_tolerance * scale)
        counted[i] = step.counted
    counted = counted if is_symbolic(counted) else counted.astype(bool)
    return Enforced(motion.L, motion.free, step.x, step.S, rank, counted, (*motion.levels, level))


def solve_levels(
    M: Array | Sparse, Q: Array, levels: Iterable[Level], rank_tolerance: Any = RANK_TOLERANCE
) -> list[Enforced]:
    """The motion after each level; arguments and errors are those of `free_motion` and `enforce`."""
    motion, motions = free_motion(M, Q), []
    for level in levels:
        motion = enforce(motion, level.A, level.b, level.clearance, level.name, rank_tolerance, level.rows)
        motions.append(motion)
    return motions


def _weighted(L: Array, A: Array) -> Array:
    """A L^-T, shape (r, n)."""
    rows: Array = solve_lower(L, A.T).T
    return rows


def _exact(level: Level) -> Array:
    """Which rows have no clearance, shape (r,); a symbol counts as a clearance, whatever its value."""
    return np.array([not is_symbolic(R) and R == 0.0 for R in level.clearance], dtype=bool)


def _checked(level: Level, motion: Enforced) -> Level:
    """The level with arrays of the right dimensions; raises PlantError if that is impossible."""
    n, where_from = len(motion.L), f"level '{level.name}'"
    A, b, R = np.atleast_2d(level.A), np.atleast_1d(level.b), np.asarray(level.clearance)
    if level.name in [other.name for other in motion.levels]:
        raise PlantError(f"{where_from}: there is a level of this name (rename one of them)")
    if A.shape[1:] != (n,) or b.shape != A.shape[:1] or R.shape not in ((), b.shape):
        shapes = f"A {A.shape}, b {b.shape}, clearance {R.shape}"
        raise PlantError(f"{where_from}: expected A (r, {n}), b (r,) and clearance () or (r,), got {shapes}")
    if level.rows is not None and len(level.rows) != len(b):
        raise PlantError(f"{where_from}: rows: expected {len(b)} names, got {len(level.rows)}")
    if is_finite(A, b) is False:
        raise PlantError(f"{where_from}: A or b is not finite (check the constraints at this state)")
    R = np.broadcast_to(R, b.shape)
    if not is_symbolic(R) and not (R >= 0.0).all():
        raise PlantError(f"{where_from}: clearance: expected at least 0, got {R[~(R >= 0.0)][0]:g}")
    return replace(level, A=A, b=b, clearance=R)
