"""The fundamental equation at one state, in mass-weighted form.

With `M = L L^T`, `w = L^T q''` and passive constraints `Ahat q'' = bhat`:

    w = N L^-1 (Q + c + B u) + (Ahat L^-T)^+ bhat
    N = I - Z^T Z,   Z an orthonormal row basis of Ahat L^-T,   Phi = L^-T N L^-1

Design: L L^T = M serves where the papers write M^1/2, because only `M^1/2 (A M^-1/2)^+` and like products occur and
these agree for every square root of M. The same code runs on numbers and on symbols.

Source: Liu et al. 2015, (11)-(14); Udwadia, Kalaba 2001.
"""

from dataclasses import dataclass
from typing import Any

from servoctl.engine.linalg import Decomposition, cholesky, decompose, frobenius, is_finite, solve_lower, solve_upper
from servoctl.engine.symbol import is_symbolic, where
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.singular_mass import regular_form
from servoctl.mechanics.symmetry import is_symmetric
from servoctl.types import Array, State


@dataclass(frozen=True)
class Matrices:
    """What plant and constraints say at one state, before any algebra.

    Attributes:
        plant: The plant, with the parameters that hold here (symbols while a loop is traced).
        M: Mass matrix, shape (n, n).
        Q: Given forces, shape (n,).
        B: Actuation matrix, shape (n, m).
        c: Nonideal part of the passive constraint force, shape (n,).
        passive: The plant's own constraints, `Ahat q'' = bhat`.
        task: The servo constraints, `A q'' = b`.
        singular: Whether M alone is singular, so that the passive constraints must complete it.
        symmetric: Whether M is known to be symmetric at every state; else each evaluation compares its triangles.
    """

    plant: Plant
    M: Array
    Q: Array
    B: Array
    c: Array
    passive: Rows
    task: Rows
    singular: bool = False
    symmetric: bool = False


@dataclass(frozen=True)
class Terms:
    """The equations of motion at one state, ready for a law.

    Attributes:
        state: The state.
        matrices: What they were made of.
        L: Cholesky factor of M, or of its regular form, lower triangular, shape (n, n).
        positive: Whether M is symmetric and positive definite.
        finite: Whether every term is a finite number.
        passive: Decomposition of `Ahat L^-T`.
        free_acceleration: `N L^-1 (Q + c) + (Ahat L^-T)^+ bhat`, shape (n,): the mass-weighted acceleration at u = 0.
        inputs: `L^-1 B`, shape (n, m): the mass-weighted inputs before the passive constraints react.
        rows: `A L^-T`, shape (r, n): the mass-weighted task rows.
    """

    state: State
    matrices: Matrices
    L: Array
    positive: Any
    finite: Any
    passive: Decomposition
    free_acceleration: Array
    inputs: Array
    rows: Array

    def project(self, w: Array) -> Array:
        """N w: what of w the passive constraints let through; shape (n,) or (n, columns)."""
        Z = self.passive.row_basis
        return w - Z.T @ (Z @ w) if len(Z) else w

    @property
    def task_map(self) -> Array:
        """T = A Phi B, shape (r, m): task accelerations per unit of input, the passive reaction included."""
        return self.rows @ self.project(self.inputs)

    @property
    def scale(self) -> Any:
        """|A L^-T|_F |L^-1 B|_F, against which the rank of `task_map` is decided."""
        return frobenius(self.rows) * frobenius(self.inputs)

    @property
    def rhs(self) -> Array:
        """b - A a_c, shape (r,): the task acceleration that is missing at u = 0."""
        missing: Array = self.matrices.task.b - self.rows @ self.free_acceleration
        return missing

    def acceleration(self, u: Array, passive_correction: Array | None = None) -> Array:
        """q'' under the input u, shape (n,), the passive constraints holding.

        Args:
            u: Inputs, shape (m,).
            passive_correction: Stabilising terms added to bhat, shape of bhat; None: none.
        """
        w = self.free_acceleration + self.project(self.inputs @ u)
        if passive_correction is not None and len(passive_correction):
            w = w + self.passive.solve(passive_correction)
        return solve_upper(self.L, w)

    def passive_force(self, acceleration: Array, u: Array) -> Array:
        """Qc = M q'' - Q - B u, shape (n,): what the passive constraints, ideal and nonideal, add."""
        m = self.matrices
        force: Array = m.M @ acceleration - m.Q - m.B @ u
        return force

    @property
    def consistency(self) -> Array:
        """(I - Ahat Ahat^+) bhat in mass-weighted form, per passive row: zero where the rows do not contradict."""
        return self.passive.residual(self.matrices.passive.b)


def assemble(state: State, matrices: Matrices, rank_tolerance: Any) -> Terms:
    """Does the algebra that every law and every simulation shares.

    Args:
        state: The state.
        matrices: Plant and constraints there.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.
    """
    M, Q, B, c, passive, task = matrices.M, matrices.Q, matrices.B, matrices.c, matrices.passive, matrices.task
    finite = is_finite(state.t, state.q, state.v, M, Q, B, c, passive.A, passive.b, task.A, task.b)
    symmetric = True if matrices.symmetric or finite is False else is_symmetric(M)
    if matrices.singular and finite is not False:
        M, Q = regular_form(M, Q, passive.A, passive.b)
    L, positive = cholesky(M) if finite is not False else (M * 0.0, False)
    if finite is False:
        nothing = decompose(passive.A[:0], rank_tolerance)
        return Terms(state, matrices, L, False, False, nothing, Q, B, task.A)
    if is_symbolic(symmetric):
        positive = where(symmetric, positive, 0.0)
    elif not symmetric:
        positive = False
    split = decompose(solve_lower(L, passive.A.T).T, rank_tolerance)
    free = solve_lower(L, Q + c)
    free_acceleration = free - split.row_basis.T @ (split.row_basis @ free) + split.solve(passive.b)
    return Terms(
        state, matrices, L, positive, finite, split, free_acceleration, solve_lower(L, B), solve_lower(L, task.A.T).T
    )
