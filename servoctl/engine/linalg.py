"""Cholesky factor, and the face of all linear algebra, on numbers (LAPACK) or on symbols."""

from typing import Any

import numpy as np

from servoctl.engine import loops
from servoctl.engine.decomposition import Decomposition, decompose, frobenius, longer_rows, pinv
from servoctl.engine.products import called, is_finite, product, project, solve_lower, solve_upper
from servoctl.engine.structured import Sparse, diagonal_parts
from servoctl.engine.symbol import is_symbolic, where
from servoctl.types import Array

__all__ = [
    "Decomposition", "cholesky", "decompose", "frobenius",
    "is_finite", "longer_rows", "pinv", "product", "project", "solve_lower", "solve_upper",
]  # fmt: skip

FACTOR_WRITTEN_OUT = 8
"""Cholesky factors of symbols up to this size are written out: at 7 rows in half the time of loops."""


def cholesky(M: Array | Sparse) -> tuple[Any, Any]:
    """The lower triangular L of `M = L L^T`, and whether M is positive definite.

    If it is not, the entries of L are finite but meaningless.
    """
    M = np.asarray(M)
    if is_symbolic(M):
        return _by_parts(M)
    try:
        return np.linalg.cholesky(M.astype(float)), True
    except np.linalg.LinAlgError:
        return np.eye(len(M)), False


def _by_parts(M: Array) -> tuple[Array, Any]:
    """`cholesky` on symbols: a factor for each block, such as the coordinates of one of several arms."""
    L: Array = np.full(M.shape, 0.0).astype(object)
    positive: Any = 1.0
    for part in diagonal_parts(M):
        block = M[np.ix_(part, part)]
        if len(part) <= FACTOR_WRITTEN_OUT:
            factor, fine = _cholesky_symbolic(block)
        else:
            factor, fine = called(loops.cholesky_function(len(part)), (block,), block.shape, ())
        L[np.ix_(part, part)] = factor
        positive = where(fine, positive, 0.0)
    return L, positive


def _cholesky_symbolic(M: Array) -> tuple[Array, Any]:
    """Uses `M = W D^-1 W^T` with D the diagonal of W, so that no pivot depends on the square root of another."""
    n = len(M)
    W: Array = np.zeros((n, n), dtype=object)
    L: Array = np.zeros((n, n), dtype=object)
    inverse: Array = np.zeros(n, dtype=object)
    positive: Any = 1.0
    for j in range(n):
        scaled = W[j, :j] * inverse[:j]
        pivot = M[j, j] - W[j, :j] @ scaled
        positive = where(pivot > 0.0, positive, 0.0)
        pivot = where(pivot > 0.0, pivot, 1.0)
        inverse[j], L[j, j] = 1.0 / pivot, np.sqrt(pivot)
        for i in range(j + 1, n):
            W[i, j] = M[i, j] - W[i, :j] @ scaled
            L[i, j] = W[i, j] * (L[j, j] * inverse[j])
    return L, positive
