"""The fundamental equation of constrained motion, on numbers.

    M q'' = Q + Qc,   Qc = M^1/2 Bhat^+ (b - A M^-1 Q) + M^1/2 (I - Bhat^+ Bhat) M^-1/2 c,   Bhat = A M^-1/2

Source: Udwadia, Kalaba 1992, 2001; Liu et al. 2015, (11)-(14); Xu, Liu 2017, (8) with the factor M^+1/2, (10).
"""

from dataclasses import dataclass

import numpy as np

from servoctl.engine.linalg import cholesky, decompose, solve_lower, solve_upper
from servoctl.engine.structured import Sparse
from servoctl.errors import PlantError
from servoctl.types import Array


@dataclass(frozen=True)
class ConstrainedMotion:
    """An acceleration, with rank and residual.

    Attributes:
        acceleration: q'', shape (n,).
        constraint_force: Qc, shape (n,).
        rank: Rank of A.
        inconsistency: (I - A A^+) b in the mass-weighted norm, shape (r,): zero if the rows can all hold.
    """

    acceleration: Array
    constraint_force: Array
    rank: int
    inconsistency: Array


def fundamental_equation(
    M: Array | Sparse, Q: Array, A: Array, b: Array, c: Array | None = None, rank_tolerance: float = 1e-10
) -> ConstrainedMotion:
    """Acceleration and constraint force by the fundamental equation.

    Rows that contradict each other are met in the sense of least squares.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive definite; `Diagonal` too.
        Q: Given forces, shape (n,).
        A: Constraint matrix, shape (r, n); its rows may depend on each other.
        b: Constraint vector, shape (r,).
        c: Part of the constraint force that does work, shape (n,); None: the constraints are ideal.
        rank_tolerance: A direction counts when its pivot exceeds this times |A L^-T|_F.

    Raises:
        PlantError: M is not positive definite.
    """
    M, A = np.asarray(M, dtype=float), np.asarray(A, dtype=float)
    L, positive = cholesky(M)
    if not positive:
        raise PlantError(f"mass matrix: not positive definite (smallest eigenvalue {np.linalg.eigvalsh(M)[0]:.1e})")
    split = decompose(solve_lower(L, A.T).T, rank_tolerance)
    # push = L^-1 Qc; any square root of M gives the same motion, and the Cholesky factor is the cheapest
    free = solve_lower(L, Q)
    push = split.solve(b - A @ solve_upper(L, free))
    if c is not None:
        work = solve_lower(L, c)
        push = push + work - split.row_basis.T @ (split.row_basis @ work)
    return ConstrainedMotion(solve_upper(L, free + push), L @ push, split.rank, split.residual(b))
