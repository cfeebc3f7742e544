"""One step of the recursion that meets rows `H x = b` in the space that earlier rows leave free.

    x <- x + S (H S)^+ (b - H x),   S <- S (I - (H S)^+ H S),   P = S S^T

In `mechanics.hierarchy` x is a mass-weighted acceleration, in `laws.priorities` it is the inputs. The step runs on
numbers and on symbols.

Source: Orsino 2017, (4.14), (4.15).
"""

from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.linalg import Decomposition, decompose, frobenius, longer_rows, product, project
from servoctl.engine.symbol import where
from servoctl.types import Array

RANK_TOLERANCE = 1e-10
"""A direction counts when its pivot exceeds this times the Frobenius norm of its rows, before any projection."""


class Realised(NamedTuple):
    """The result of one step of the recursion."""

    x: Array  # the new estimate, shape (n,)
    S: Array  # the new factor, shape (n, n)
    counted: Array  # which rows act, shape (r,): 1, or 0 where earlier rows leave no room
    split: Decomposition  # decomposition of `H S`


def realise(x: Array, S: Array, H: Array, b: Array, rank_tolerance: Any, scale: Any) -> Realised:
    """`x + S (H S)^+ (b - H x)` and `S (I - (H S)^+ H S)`: the rows `H x = b` met in the range of S.

    Rows that contradict each other there are met in the sense of least squares.

    Args:
        x: The estimate so far, shape (n,).
        S: The factor so far, shape (n, n).
        H: Shape (r, n).
        b: Shape (r,).
        rank_tolerance: Relative rank tolerance.
        scale: Pivots of `H S` count relative to this. Use the size of H: that of H S may be round-off alone.
    """
    HS = product(H, S)
    # rows of round-off are set to zero, so that their gain is exactly 0 and `counted` says so
    counted, kept = longer_rows(HS, rank_tolerance * scale)
    split = decompose(kept, rank_tolerance, scale)
    Z = split.row_basis
    return Realised(x + product(S, split.solve(b - product(H, x))), project(Z, S.T).T, counted, split)


def realise_with_clearance(step: Realised, h: Array, b: Any, R: Any, limit: Any) -> Realised:
    """The same step for one row with a clearance, by Potter's square root form of the Kalman update.

    Args:
        step: The step before.
        h: The row, shape (n,).
        b: Its target.
        R: Its clearance, at least 0; see `mechanics.hierarchy.Level`.
        limit: The row acts when |h S| exceeds this.

    Source: Bierman 1977.
    """
    y = h @ step.S
    counted = where(frobenius(y) > limit, 1.0, 0.0)
    y = counted * y
    # Potter: S <- S - S y y^T / (v + sqrt(v R)) with v = |y|^2 + R needs no root of a matrix, and P = S S^T cannot
    # become indefinite by rounding. A row that does not count has y = 0, so x and S stay.
    variance = y @ y + R
    variance = where(variance > 0.0, variance, 1.0)
    gain = step.S @ y
    x = step.x + gain * ((b - h @ step.x) / variance)
    S = step.S - np.outer(gain, y) / (variance + np.sqrt(variance * R))
    return Realised(x, S, counted, step.split)
