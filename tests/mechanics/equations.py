"""The published equations of constrained motion on numbers, as oracles."""

from collections.abc import Sequence

import numpy as np

from servoctl.assembly.evaluate import ConstrainedMotion
from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.linalg import cholesky, solve_lower, solve_upper
from servoctl.engine.structured import Diagonal
from servoctl.errors import PlantError
from servoctl.mechanics.terms import RANK_TOLERANCE, require_unique
from servoctl.types import Array


def fundamental_equation(
    M: Array | Diagonal, Q: Array, A: Array, b: Array, c: Array | None = None, rank_tolerance: float = 1e-10
) -> ConstrainedMotion:
    """The fundamental equation; c is the part of the constraint force that does work.

    M q'' = Q + Qc,   Qc = M^1/2 Bhat^+ (b - A M^-1 Q) + M^1/2 (I - Bhat^+ Bhat) M^-1/2 c,   Bhat = A M^-1/2

    Source: Udwadia, Kalaba 1992, 2001; Liu et al. 2015, (11)-(14); Xu, Liu 2017, (8) with the factor M^+1/2, (10).
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


def singular_mass_equation(
    M: Array,
    Q: Array,
    A: Array,
    b: Array,
    rank_tolerance: float = RANK_TOLERANCE,
    coordinates: Sequence[str] | None = None,
) -> ConstrainedMotion:
    """q'' = [(I - A^+ A) M; A]^+ [Q; b] for a singular mass matrix.

    Source: Udwadia, Phohomsiri 2006.
    """
    require_unique(M, A, rank_tolerance, coordinates)
    rows = decompose(A, rank_tolerance)
    # Each block is divided by its norm, so that one relative rank tolerance fits both. The solution does not change,
    # since the two blocks do not compete for the same directions.
    mass, size = (frobenius(matrix) or 1.0 for matrix in (M, A))
    free = (M - rows.row_projector() @ M) / mass
    stacked = decompose(np.concatenate([free, A / size]), rank_tolerance, 1.0)
    a = stacked.solve(np.concatenate([Q / mass, b / size]))
    return ConstrainedMotion(a, M @ a - Q, rows.rank, rows.residual(b))
