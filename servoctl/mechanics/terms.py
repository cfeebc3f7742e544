"""The fundamental equation at one state, in mass-weighted form.

With `M = L L^T`, `w = L^T q''` and passive constraints `Ahat q'' = bhat`:

    w = N L^-1 (Q + c + B u) + (Ahat L^-T)^+ bhat
    N = I - Z^T Z,   Z an orthonormal row basis of Ahat L^-T,   Phi = L^-T N L^-1

Design: the Cholesky factor, L L^T = M, replaces the M^1/2 of the papers. Only products such as `M^1/2 (A M^-1/2)^+`
occur, and these are the same for every square root of M. The same code runs on numbers and on symbols.

Source: Liu et al. 2015, (11)-(14); Udwadia, Kalaba 2001.

A singular mass matrix (massless bodies, more coordinates than masses) is replaced by its regular form:

    M + s A^T A,  Q + s A^T b  for M, Q,  s > 0

The motion is unique iff `[M; A]` has full column rank: every direction has mass or a constraint. The regular form has
the same accelerations, constraint forces and `Phi = Z (Z^T M Z)^-1 Z^T`, where Z is a basis of the kernel of A. Its
mass matrix is positive definite, so everything based on a Cholesky factor works unchanged.

Source: Udwadia, Phohomsiri 2006, for the condition. The regular form and its proof are ours: it changes nothing on the
kernel of A, and in all other directions A q'' = b alone determines the acceleration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.decomposition import Decomposition, decompose, frobenius
from servoctl.engine.linalg import cholesky, is_finite, product, solve_lower, solve_upper
from servoctl.engine.structured import is_symmetric
from servoctl.engine.symbol import where
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import InputRows, Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import UnderWay
from servoctl.types import Array, State

RANK_TOLERANCE = 1e-10  # a direction counts when its pivot exceeds this times the Frobenius norm of its matrix


def regular_form(M: Array, Q: Array, A: Array, b: Array) -> tuple[Array, Array]:
    """M + s A^T A and Q + s A^T b, on numbers or symbols; s gives both parts of M the same size, |M|_F / |A|_F^2.

    Only the rounding of the motion depends on s.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive semidefinite.
        Q: Given forces, shape (n,).
        A: Constraint matrix, shape (r, n).
        b: Constraint vector, shape (r,).
    """
    s = _norm(M) / _norm(A) ** 2
    return M + s * (A.T @ A), Q + s * (A.T @ b)


def null_direction(M: Array, A: Array) -> Array | None:
    """A unit vector d, shape (n,), without mass and without constraint: `M d = 0`, `A d = 0`; None if there is none.

    Of several, the one nearest to a coordinate axis.
    """
    split = decompose(np.concatenate([M / _norm(M), A / _norm(A)]), RANK_TOLERANCE)
    if split.rank == len(M):
        return None
    # the column of a projector with the largest diagonal entry is the projection of the nearest axis
    null = np.eye(len(M)) - split.row_projector()
    nearest = int(np.argmax(np.diag(null)))
    direction: Array = null[:, nearest] / np.sqrt(null[nearest, nearest])
    return direction


def require_unique(M: Array, A: Array, coordinates: Sequence[str]) -> None:
    """Raises PlantError unless M and A allow one motion only.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive semidefinite.
        A: Constraint matrix, shape (r, n); its rows may depend on each other.
        coordinates: Names of the coordinates, for errors.

    Raises:
        PlantError: M is not positive semidefinite, or a direction has neither mass nor constraint; names it.
    """
    least = float(np.linalg.eigvalsh(M)[0])
    if least < -RANK_TOLERANCE * _norm(M):
        raise PlantError(f"mass matrix: not positive semidefinite (smallest eigenvalue {least:.1e}; check the masses)")
    direction = null_direction(M, A)
    if direction is not None:
        terms = [f"{x:+.3g} {name}" for x, name in zip(direction, coordinates, strict=True) if abs(x) > 1e-6]
        along = " ".join(terms).removeprefix("+")
        raise PlantError(
            f"mass matrix: singular along {along}, which no constraint holds either "
            "(give it mass or a constraint, or leave out a coordinate)"
        )


def _norm(A: Array) -> Any:
    """|A|_F, or 1 for a zero matrix."""
    size = frobenius(A)
    return where(size > 0.0, size, 1.0)


@dataclass(frozen=True)
class Matrices:
    """The matrices of plant and constraints at one state, before any algebra."""

    plant: Plant  # the plant with its parameters, which are symbols while a loop is traced
    M: Array  # mass matrix, shape (n, n)
    Q: Array  # given forces, shape (n,)
    B: Array  # actuation matrix, shape (n, m)
    c: Array  # nonideal part of the passive constraint force, shape (n,)
    passive: Rows  # the plant's own constraints, `Ahat q'' = bhat`
    task: Rows  # the servo constraints, `A q'' = b`
    bounds: Rows  # the bounds, h >= 0, whose violation is h
    # whether M alone is singular, so that the motion is unique only with the passive constraints
    singular: bool = False
    # whether M is known to be symmetric at every state; if not, each evaluation compares its triangles
    symmetric: bool = False

    def without_task(self) -> "Matrices":
        """The machine alone: its poses may be any, also those at which the task's rows are not finite."""
        return replace(self, task=Rows.stack([], len(self.Q)))


@dataclass(frozen=True)
class Terms:
    """The equations of motion at one state, ready for a law."""

    state: State
    matrices: Matrices  # the matrices from which the terms were computed
    L: Array  # Cholesky factor of M, or of its regular form, lower triangular, shape (n, n)
    positive: Any  # whether M is symmetric and positive definite
    finite: Any  # whether every term is a finite number
    # decomposition of `Ahat L^-T`, which gives Z and the pseudoinverse; with clearances R, that of `[Ahat L^-T,
    # R^1/2]`, whose first n columns are meant below
    passive: Decomposition
    # `N L^-1 (Q + c) + (Ahat L^-T)^+ bhat`, shape (n,): the mass-weighted acceleration at u = 0
    free_acceleration: Array
    inputs: Array  # `L^-1 B`, shape (n, m): the mass-weighted inputs before the passive constraints react
    rows: Array  # `A L^-T`, shape (r, n): the mass-weighted task rows
    bounds: Array  # the same of the bounds, shape (k, n)
    # `G u >= g` of bounds whose rows are means over a period; None: those of this state
    mean_bounds: InputRows | None = None
    projected_rows: Array | None = None  # N (A L^-T)^T, shape (n, r); None: not known
    under_way: UnderWay | None = None  # earlier commands and lagging torques, for terms that read them

    @property
    def sound(self) -> Any:
        """Whether the terms mean anything: every number is finite, and M is positive definite."""
        return where(self.finite, self.positive, 0.0)

    @property
    def task(self) -> Rows:
        """The task rows."""
        return self.matrices.task

    def project(self, w: Array) -> Array:
        """N w: the part of w that the passive constraints allow, shape (n,) or (n, columns)."""
        return self.passive.project(w)

    @property
    def task_map(self) -> Array:
        """T = A Phi B, shape (r, m): task accelerations per unit of input, with the reaction of passive constraints."""
        if self.projected_rows is not None:
            return product(self.projected_rows.T, self.inputs)
        return self._map(self.rows)

    def _map(self, rows: Array) -> Array:
        """Accelerations of mass-weighted rows per unit of input, shape (rows, m)."""
        if len(rows) < self.inputs.shape[1]:  # N is symmetric, so it may act on either factor
            return product(self.project(rows.T).T, self.inputs)
        return product(rows, self.project(self.inputs))

    @property
    def scale(self) -> Any:
        """|A L^-T|_F |L^-1 B|_F: the rank of `task_map` counts pivots relative to this.

        It is the size before projection. Where the passive constraints block every input, T is round-off alone, which
        relative to itself would have full rank.
        """
        return frobenius(self.rows) * frobenius(self.inputs)

    @property
    def rhs(self) -> Array:
        """b - A a_c, shape (r,): the task acceleration that is missing at u = 0, the right-hand side of `T u = rhs`."""
        missing: Array = self.matrices.task.b - product(self.rows, self.free_acceleration)
        return missing

    @property
    def bound_map(self) -> Array:
        """A Phi B of the bounds, shape (k, m)."""
        return self._map(self.bounds)

    @property
    def bound_free(self) -> Array:
        """A a_c - b of the bounds, shape (k,): h'', or h' of a bound on velocities, at u = 0."""
        free: Array = product(self.bounds, self.free_acceleration) - self.matrices.bounds.b
        return free

    def acceleration(self, u: Array, passive_correction: Array | None = None) -> Array:
        """q'' under the input u with the passive constraints enforced, shape (n,).

        Args:
            u: Inputs, shape (m,).
            passive_correction: Stabilising terms added to bhat, shape of bhat; None: none.
        """
        w = self.free_acceleration + self.project(product(self.inputs, u))
        if passive_correction is not None and len(passive_correction):
            w = w + self.passive.solve(passive_correction)[: len(w)]
        return solve_upper(self.L, w)

    def passive_force(self, acceleration: Array, u: Array) -> Array:
        """Qc = M q'' - Q - B u, shape (n,): the force of the passive constraints, its nonideal part included."""
        m = self.matrices
        force: Array = product(m.M, acceleration) - m.Q - m.B @ u
        return force

    @property
    def consistency(self) -> Array:
        """(I - Ahat Ahat^+) bhat in mass-weighted form, per passive row: zero if no rows contradict each other."""
        return self.passive.residual(self.matrices.passive.b)


def assemble(state: State, matrices: Matrices, rank_tolerance: Any, clearance: Sequence[Any] = ()) -> Terms:
    """The terms at a state: the algebra that all laws and simulations share.

    If a number is not finite or M is not positive definite, the flags `finite` and `positive` report it and the other
    fields mean nothing.

    A row with a clearance R > 0 yields by `bhat - Ahat q'' = R lambda`. It is an exact row of a system with one more
    coordinate per row, `[Ahat L^-T, R^1/2] [w; s] = bhat`, whose least change of (w, s) is the motion; no Gram matrix
    `Ahat M^-1 Ahat^T + R` is formed.

    Args:
        matrices: Plant and constraints there.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
        clearance: R of each passive row [acceleration of the row / its multiplier], 0: exact; empty: all are exact.

    Source: Orsino 2017, (4.17), (4.18), for the clearance; the system with more coordinates is ours.
    """
    M, Q, B, c, passive, task = matrices.M, matrices.Q, matrices.B, matrices.c, matrices.passive, matrices.task
    of_rows = [part for rows in (passive, task, matrices.bounds) for part in (rows.A, rows.b)]
    finite = is_finite(state.t, state.q, state.v, M, Q, B, c, *of_rows)
    symmetric = 1.0 if matrices.symmetric else is_symmetric(M)
    if matrices.singular:  # a positive definite matrix with the same motion, so that Cholesky still works
        M, Q = regular_form(M, Q, passive.A, passive.b)
    L, positive = cholesky(M)
    positive = where(symmetric, positive, 0.0)
    rows = solve_lower(L, passive.A.T).T
    scale = frobenius(rows)
    if len(clearance):
        rows = np.hstack([rows, np.diag(np.sqrt(np.asarray(clearance)))])
    split = decompose(rows, rank_tolerance, scale)
    # w = N L^-1 (Q + c) + (Ahat L^-T)^+ bhat: c enters projected, since its normal part is absorbed by the constraints
    r, together = len(task.A), 0 < len(task.A) < B.shape[1]
    if together:  # loops solve for and project one more column in the same time
        columns = solve_lower(L, np.column_stack([task.A.T, Q + c]))
        projected = split.project(columns)
        weighted, free, projected_free = columns[:, :r].T, columns[:, r], projected[:, r]
    else:
        weighted, free = solve_lower(L, task.A.T).T, solve_lower(L, Q + c)
        projected_free = split.project(free)
    free_acceleration = projected_free + split.solve(passive.b)[: len(free)]
    held = solve_lower(L, matrices.bounds.A.T).T
    terms = Terms(state, matrices, L, positive, finite, split, free_acceleration, solve_lower(L, B), weighted, held)
    return replace(terms, projected_rows=projected[:, :r]) if together else terms
