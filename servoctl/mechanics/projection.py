"""One step of a recursion on projectors, and three roads to the projector itself.

    x <- x + S (H S)^+ (b - H x),   S <- S (I - (H S)^+ H S),   P = S S^T

Rows `H x = b` are realised in what the rows before them leave free. `mechanics.hierarchy` takes accelerations for x,
`laws.priorities` inputs. The step runs on numbers and on symbols, the projectors on numbers.

Source: Orsino 2017, (4.14), (4.15) for the step, proposition 3.1 for the projectors.
"""

from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.linalg import Decomposition, decompose, frobenius
from servoctl.engine.symbol import where
from servoctl.types import Array

RANK_TOLERANCE = 1e-10
"""A direction counts when its pivot exceeds this times the Frobenius norm of its rows, before any projection."""


class Realised(NamedTuple):
    """What one step of the recursion gives.

    Attributes:
        x: The new estimate, shape (n,).
        S: The new factor, shape (n, n).
        counted: Which rows act, shape (r,): 1 or 0.
        split: Decomposition of `H S`.
    """

    x: Array
    S: Array
    counted: Array
    split: Decomposition


def realise(x: Array, S: Array, H: Array, b: Array, rank_tolerance: Any, scale: Any) -> Realised:
    """`x + S (H S)^+ (b - H x)` and `S (I - (H S)^+ H S)`: rows `H x = b` met in what S leaves free.

    Args:
        x: The estimate so far, shape (n,).
        S: The factor so far, shape (n, n).
        H: Shape (r, n).
        b: Shape (r,).
        rank_tolerance: Relative rank tolerance.
        scale: What pivots of `H S` are measured against; of the size of H, for that of H S may be round-off alone.
    """
    reach = H @ S
    counted = np.array([where(frobenius(row) > rank_tolerance * scale, 1.0, 0.0) for row in reach])
    split = decompose(counted.reshape(-1, 1) * reach, rank_tolerance, scale)
    Z = split.row_basis
    return Realised(x + S @ split.solve(b - H @ x), S - (S @ Z.T) @ Z, counted, split)


def realise_with_clearance(step: Realised, h: Array, b: Any, R: Any, limit: Any) -> Realised:
    """The same for one row with a clearance, by Potter's square root of the Kalman update.

    Args:
        step: The step so far.
        h: The row, shape (n,).
        b: Its target.
        R: Its clearance, at least 0.
        limit: The row counts when |h S| exceeds this.

    Source: Bierman 1977.
    """
    y = h @ step.S
    counted = where(frobenius(y) > limit, 1.0, 0.0)
    y = counted * y
    variance = y @ y + R
    variance = where(variance > 0.0, variance, 1.0)
    gain = step.S @ y
    x = step.x + gain * ((b - h @ step.x) / variance)
    S = step.S - np.outer(gain, y) / (variance + np.sqrt(variance * R))
    return Realised(x, S, counted, step.split)


def projector_by_complement(A: Array, rank_tolerance: float = RANK_TOLERANCE) -> Array:
    """Z Z^+, shape (n, n), for an orthogonal complement Z of A: the columns of Z are any basis of its kernel.

    Z comes from splitting the coordinates into as many dependent ones as A has rank and free ones,
    `A = Q [R1 R2]`, `Z = [-R1^-1 R2; I]`. The three roads lead to one orthogonal projector; on numbers.

    Source: Orsino 2017, proposition 3.1 (i).
    """
    from scipy.linalg import qr  # here, since laws import this module and a run need not wait for SciPy

    n = A.shape[1]
    if not len(A):
        return np.eye(n)
    R, order = qr(A, mode="r", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(R)) > rank_tolerance * frobenius(A)))
    Z = np.zeros((n, n - rank))
    Z[order[:rank]] = -np.linalg.solve(R[:rank, :rank], R[:rank, rank:])
    Z[order[rank:]] = np.eye(n - rank)
    projector: Array = Z @ decompose(Z, rank_tolerance).pseudoinverse()
    return projector


def projector_by_inverse(A: Array, rank_tolerance: float = RANK_TOLERANCE) -> Array:
    """I - A^+ A, shape (n, n); any A^g with `A A^g A = A` and `A^g A` symmetric would serve.

    Source: Orsino 2017, proposition 3.1 (iii).
    """
    projector: Array = np.eye(A.shape[1]) - decompose(A, rank_tolerance).pseudoinverse() @ A
    return projector


def projector_by_orthonormalization(A: Array, rank_tolerance: float = RANK_TOLERANCE) -> Array:
    """I - Z^T Z, shape (n, n), where the rows of Z are those of A made orthonormal.

    Source: Orsino 2017, proposition 3.1 (iv).
    """
    return np.eye(A.shape[1]) - decompose(A, rank_tolerance).row_projector()
