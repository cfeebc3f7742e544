"""Cholesky factor, triangular solves and products, on numbers (LAPACK) or on symbols (small ones are written out)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.engine import loops
from servoctl.engine.decomposition import Decomposition, decompose, frobenius, longer_rows, pinv
from servoctl.engine.products import called, is_finite, product, project
from servoctl.engine.structured import Sparse, components, is_zero
from servoctl.engine.symbol import is_symbolic, where
from servoctl.types import Array

__all__ = [
    "Decomposition", "cholesky", "decompose", "frobenius",
    "is_finite", "longer_rows", "pinv", "product", "project", "solve_lower", "solve_upper",
]  # fmt: skip

WRITTEN_OUT = 6  # solves with a triangle of symbols up to this size are written out; larger ones are loops

FACTOR_WRITTEN_OUT = 8
"""Cholesky factors of symbols up to this size are written out: at 7 rows in half the time of loops."""

INVERTED = 20
"""Triangles of symbols from this size on are inverted where L^-1 is asked for: a third of the products of a solve."""

LARGE = 40
"""Triangles of numbers from this size on are solved by LAPACK's routine for triangles, smaller ones by a general one.

At 40 the import of SciPy is soon paid; below, its call takes as long as the solve.
"""


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
    for part in _parts(M):
        block = M[np.ix_(part, part)]
        if len(part) <= FACTOR_WRITTEN_OUT:
            factor, fine = _cholesky_symbolic(block)
        else:
            factor, fine = called(loops.cholesky_function(len(part)), (block,), block.shape, ())
        L[np.ix_(part, part)] = factor
        positive = where(fine, positive, 0.0)
    return L, positive


def _parts(M: Array) -> list[Array]:
    """The indices of each block of a matrix of symbols that has zeros between its blocks."""
    places = Sparse.of(M)
    count, label = components(places.rows, places.columns, len(M))
    return [np.flatnonzero(label == part) for part in range(count)]


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
        return _solve_numbers(L, X, 0)
    return _solve_symbols(_lower, L, X)


def solve_upper(L: Array, X: Array) -> Array:
    """L^-T X for a lower triangular L; X of shape (n,) or (n, columns)."""
    if not is_symbolic(L, X):
        return _solve_numbers(L, X, 1)
    return _solve_symbols(_upper, L, X)


def _solve_symbols(solve: Callable[[Array, Array, bool], Array], L: Array, X: Array) -> Array:
    """Solves block by block, for the columns of X that are not zero in the rows of a block."""
    columns, written = X.reshape(len(X), -1), len(L) <= WRITTEN_OUT
    Y: Array = np.full(columns.shape, 0.0).astype(object)
    given = np.array([not is_zero(entry) for entry in columns.flat], dtype=bool).reshape(columns.shape)
    for part in _parts(L):
        reached = np.flatnonzero(given[part].any(axis=0))
        if len(reached):
            Y[np.ix_(part, reached)] = solve(L[np.ix_(part, part)], columns[np.ix_(part, reached)], written)
    return Y.reshape(X.shape)


def _lower(L: Array, X: Array, written: bool) -> Array:
    """L^-1 X of symbols, shape (n, columns), in statements or in loops."""
    if len(L) > INVERTED and _is_identity(X):
        whole: Array = called(loops.inverse_function(len(L)), (L,), X.shape)[0]
        return whole
    if not written and len(L) > 1:
        return _solve_from(_zero_rows(X), L, X)
    Y, inverse = np.array(X, dtype=object), 1.0 / np.diag(L)
    for i in range(len(L)):
        Y[i] = (Y[i] - L[i, :i] @ Y[:i]) * inverse[i] if i else Y[i] * inverse[i]
    return Y


def _upper(L: Array, X: Array, written: bool) -> Array:
    """L^-T X of symbols, shape (n, columns), in statements or in loops."""
    if not written and len(L) > 1:
        return _solve(loops.upper_function, L, X)
    Y, inverse = np.array(X, dtype=object), 1.0 / np.diag(L)
    n = len(L)
    for i in reversed(range(n)):
        Y[i] = (Y[i] - L[i + 1 :, i] @ Y[i + 1 :]) * inverse[i] if i < n - 1 else Y[i] * inverse[i]
    return Y


def _zero_rows(X: Array) -> int:
    """How many rows of X are zero before the first that is not; they are zero in L^-1 X too."""
    return next((i for i, row in enumerate(X) if not all(map(is_zero, row))), len(X))


def _solve_from(first: int, L: Array, X: Array) -> Array:
    """L^-1 X of symbols, shape (n, columns), for X whose first rows are zero."""
    if not first:
        return _solve(loops.lower_function, L, X)
    Y: Array = np.full(X.shape, 0.0).astype(object)
    if first < len(X):
        rows: Array = X[first:].T
        (below,) = called(loops.lower_function(len(rows), len(L), first), (L, rows), rows.shape)
        Y[first:] = below.T
    return Y


def _is_identity(X: Array) -> bool:
    """Whether a matrix holds numbers only and is the identity."""
    square = X.ndim == 2 and len(X) == X.shape[1]
    return square and not is_symbolic(X) and np.array_equal(np.asarray(X, dtype=float), np.eye(len(X)))


def _solve_numbers(L: Any, X: Any, transposed: int) -> Array:
    """L^-1 X, or L^-T X."""
    L, X = (np.asarray(A, dtype=float) for A in (L, X))  # constants of a traced plant are object arrays
    if len(L) < LARGE:
        return np.linalg.solve(L.T if transposed else L, X)
    if not X.size:
        return np.zeros(X.shape)
    from scipy.linalg.lapack import dtrtrs

    # a matrix in row order is its transpose in column order, which is what LAPACK reads
    rest, _ = dtrtrs(L.T, X, lower=0, trans=1 - transposed)
    solved: Array = np.ascontiguousarray(rest).reshape(X.shape)
    return solved


def _solve(function: Callable[[int, int], Any], L: Array, X: Array) -> Array:
    """The loops solve for the rows of X^T."""
    rows: Array = X.T.reshape(-1, len(L))
    if not len(rows):
        return X
    (Y,) = called(function(len(rows), len(L)), (L, rows), rows.shape)
    solved: Array = Y.T.reshape(X.shape)
    return solved
