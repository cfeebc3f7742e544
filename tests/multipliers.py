"""Constrained motion by Lagrange's multipliers: an independent check of the fundamental equation."""

import numpy as np

from servoctl.types import Array


def multiplier_equation(M: Array, Q: Array, A: Array, b: Array, c: Array | None = None) -> Array:
    """q'', shape (n,), from `[[M, -A^T], [A, 0]] [q''; lambda] = [Q + c; b]` by least squares.

    A tangential c adds to Q; the multipliers absorb its normal part.
    """
    n, r = len(M), len(A)
    matrix = np.block([[M, -np.asarray(A).T], [A, np.zeros((r, r))]])
    right = np.concatenate([Q if c is None else Q + c, b])
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0][:n])
