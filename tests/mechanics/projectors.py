"""Three formulas for the projector onto what rows A leave free, on numbers; all give the same orthogonal projector.

Source: Orsino 2017, proposition 3.1.
"""

import numpy as np
from scipy.linalg import qr

from servoctl.engine.decomposition import decompose, frobenius
from servoctl.mechanics.hierarchy import RANK_TOLERANCE
from servoctl.types import Array


def projector_by_complement(A: Array) -> Array:
    """Z Z^+, shape (n, n); the columns of Z are any basis of the kernel of A. Proposition 3.1 (i).

    Pivoted QR splits the coordinates into dependent and free ones: `A = Q [R1 R2]`, `Z = [-R1^-1 R2; I]`.
    """
    n = A.shape[1]
    if not len(A):
        return np.eye(n)
    R, order = qr(A, mode="r", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > RANK_TOLERANCE * frobenius(A)))
    Z = np.zeros((n, n - rank))
    Z[order[:rank]] = -np.linalg.solve(R[:rank, :rank], R[:rank, rank:])
    Z[order[rank:]] = np.eye(n - rank)
    projector: Array = Z @ decompose(Z, RANK_TOLERANCE).pseudoinverse()
    return projector


def projector_by_inverse(A: Array) -> Array:
    """I - A^+ A, shape (n, n). Proposition 3.1 (iii), where any A^g with A A^g A = A and A^g A symmetric serves."""
    projector: Array = np.eye(A.shape[1]) - decompose(A, RANK_TOLERANCE).pseudoinverse() @ A
    return projector


def projector_by_orthonormalization(A: Array) -> Array:
    """I - Z^T Z, shape (n, n); the rows of Z are those of A made orthonormal. Proposition 3.1 (iv)."""
    return np.eye(A.shape[1]) - decompose(A, RANK_TOLERANCE).row_projector()
