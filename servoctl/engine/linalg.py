"""Cholesky factor, triangular solves and products, on numbers (LAPACK) or on symbols (small ones are written out)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.engine import loops
from servoctl.engine.decomposition import Decomposition, decompose, frobenius, pinv
from servoctl.engine.products import called, product, project
from servoctl.engine.symbol import is_finite, is_symbolic, where
from servoctl.types import Array

__all__ = [
    "Decomposition", "cholesky", "decompose", "frobenius", "is_finite", "pinv", "product", "project", "solve_lower",
    "solve_upper",
]  # fmt: skip

WRITTEN_OUT = 6
"""Triangles up to this size are written out on symbols; larger ones are loops."""


def cholesky(M: Array) -> tuple[Array, Any]:
    """The lower triangular L of `M = L L^T`, and whether M is positive definite.

    If it is not, the entries of L are finite but meaningless.
    """
    if is_symbolic(M):
        if len(M) <= WRITTEN_OUT:
            return _cholesky_symbolic(M)
        L, positive = called(loops.cholesky_function(len(M)), (M,), M.shape, ())
        return L, positive
    try:
        return np.linalg.cholesky(np.asarray(M, dtype=float)), True
    except np.linalg.LinAlgError:
        return np.eye(len(M)), False


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


def solve_lower(L: Array, X: Array) -> Array:
    """L^-1 X for a lower triangular L; X of shape (n,) or (n, columns)."""
    if not is_symbolic(L, X):
        L, X = (np.asarray(A, dtype=float) for A in (L, X))  # constants of a traced plant are object arrays
        return np.linalg.solve(L, X)
    if len(L) > WRITTEN_OUT:
        return _solve(loops.lower_function, L, X)
    Y, inverse = np.array(X, dtype=object), 1.0 / np.diag(L)
    for i in range(len(L)):
        Y[i] = (Y[i] - L[i, :i] @ Y[:i]) * inverse[i] if i else Y[i] * inverse[i]
    return Y


def solve_upper(L: Array, X: Array) -> Array:
    """L^-T X for a lower triangular L; X of shape (n,) or (n, columns)."""
    if not is_symbolic(L, X):
        L, X = (np.asarray(A, dtype=float) for A in (L, X))
        return np.linalg.solve(L.T, X)
    if len(L) > WRITTEN_OUT:
        return _solve(loops.upper_function, L, X)
    Y, inverse = np.array(X, dtype=object), 1.0 / np.diag(L)
    n = len(L)
    for i in reversed(range(n)):
        Y[i] = (Y[i] - L[i + 1 :, i] @ Y[i + 1 :]) * inverse[i] if i < n - 1 else Y[i] * inverse[i]
    return Y


def _solve(function: Callable[[int, int], Any], L: Array, X: Array) -> Array:
    """The loops solve for the rows of X^T."""
    rows: Array = X.T.reshape(-1, len(L))
    if not len(rows):
        return X
    (Y,) = called(function(len(rows), len(L)), (L, rows), rows.shape)
    solved: Array = Y.T.reshape(X.shape)
    return solved
