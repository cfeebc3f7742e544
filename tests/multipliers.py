"""Constrained motion by Lagrange's multipliers: an independent check of the fundamental equation."""

import numpy as np

from servoctl.types import Array


def multiplier_equation(
    M: Array, Q: Array, A: Array, b: Array, c: Array | float = 0.0, R: Array | float = 0.0
) -> Array:
    """q'', shape (n,), from `[[M, -A^T], [A, R]] [q''; lambda] = [Q + c; b]` by least squares.

    A tangential c adds to Q; the multipliers absorb its normal part. R is the clearance of each row.
    """
    matrix = np.block([[M, -np.asarray(A).T], [A, np.eye(len(A)) * R]])
    return np.asarray(np.linalg.lstsq(matrix, np.concatenate([Q + c, b]), rcond=1e-13)[0][: len(M)])
