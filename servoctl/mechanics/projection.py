"""One step of the recursion that meets rows `H x = b` in the space that earlier rows leave free.

    x <- x + S (H S)^+ (b - H x),   S <- S (I - (H S)^+ H S),   P = S S^T

In `mechanics.hierarchy` x is a mass-weighted acceleration, in `laws.priorities` it is the inputs. The step runs on
numbers and on symbols.

Source: Orsino 2017, (4.14), (4.15).
"""

from typing import Any, NamedTuple

from servoctl.engine.linalg import Decomposition, decompose, longer_rows, product, project
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
