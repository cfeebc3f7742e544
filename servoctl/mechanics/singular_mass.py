"""Motion under constraints with a singular mass matrix: massless bodies, more coordinates than masses.

    M + s A^T A,  Q + s A^T b  for M, Q,  s > 0

The motion is unique iff `[M; A]` has full column rank: every direction has mass or a constraint. The regular form has
the same accelerations, constraint forces and `Phi = Z (Z^T M Z)^-1 Z^T`, where Z is a basis of the kernel of A. Its
mass matrix is positive definite, so everything based on a Cholesky factor works unchanged.

Source: Udwadia, Phohomsiri 2006, for the condition. The regular form and its proof are ours: it changes nothing on the
kernel of A, and in all other directions A q'' = b alone determines the acceleration.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.engine.linalg import decompose, frobenius
from servoctl.engine.symbol import where
from servoctl.errors import PlantError
from servoctl.types import Array

RANK_TOLERANCE = 1e-10  # a direction counts when its pivot exceeds this times the Frobenius norm of its matrix


def regular_form(M: Array, Q: Array, A: Array, b: Array, s: Any = None) -> tuple[Array, Array]:
    """M + s A^T A and Q + s A^T b, on numbers or symbols.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive semidefinite.
        Q: Given forces, shape (n,).
        A: Constraint matrix, shape (r, n).
        b: Constraint vector, shape (r,).
        s: Positive; only the rounding of the motion depends on it. None: |M|_F / |A|_F^2, which gives both parts the
            same size.
    """
    s = _norm(M) / _norm(A) ** 2 if s is None else s
    return M + s * (A.T @ A), Q + s * (A.T @ b)


def null_direction(M: Array, A: Array, rank_tolerance: float = RANK_TOLERANCE) -> Array | None:
    """A unit vector d, shape (n,), without mass and without constraint: `M d = 0`, `A d = 0`; None if there is none.

    Of several, the one nearest to a coordinate axis.
    """
    split = decompose(np.concatenate([M / _norm(M), A / _norm(A)]), rank_tolerance)
    if split.rank == len(M):
        return None
    # the column of a projector with the largest diagonal entry is the projection of the nearest axis
    null = np.eye(len(M)) - split.row_projector()
    nearest = int(np.argmax(np.diag(null)))
    direction: Array = null[:, nearest] / np.sqrt(null[nearest, nearest])
    return direction


def require_unique(
    M: Array, A: Array, rank_tolerance: float = RANK_TOLERANCE, coordinates: Sequence[str] | None = None
) -> None:
    """Raises PlantError unless M and A allow one motion only.

    Args:
        M: Mass matrix, shape (n, n), symmetric positive semidefinite.
        A: Constraint matrix, shape (r, n); its rows may depend on each other.
        rank_tolerance: See `RANK_TOLERANCE`.
        coordinates: Names of the coordinates in errors; None: `q[0]`, `q[1]`, ...

    Raises:
        PlantError: M is not positive semidefinite, or a direction has neither mass nor constraint; names it.
    """
    least = float(np.linalg.eigvalsh(M)[0])
    if least < -rank_tolerance * _norm(M):
        raise PlantError(f"mass matrix: not positive semidefinite (smallest eigenvalue {least:.1e}; check the masses)")
    direction = null_direction(M, A, rank_tolerance)
    if direction is not None:
        names = coordinates or [f"q[{i}]" for i in range(len(M))]
        terms = [f"{x:+.3g} {name}" for x, name in zip(direction, names, strict=True) if abs(x) > 1e-6]
        along = " ".join(terms).removeprefix("+")
        raise PlantError(
            f"mass matrix: singular along {along}, which no constraint holds either "
            "(give it mass or a constraint, or leave out a coordinate)"
        )


def _norm(A: Array) -> Any:
    """|A|_F, or 1 for a zero matrix."""
    size = frobenius(A)
    return where(size > 0.0, size, 1.0)
