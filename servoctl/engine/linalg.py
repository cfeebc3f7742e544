"""Products, solves with triangles, Cholesky factors, and whether arrays are finite, on numbers (LAPACK) or symbols; and
slopes of functions on numbers.

Design: small operations on symbols are written out, large ones are loops. In `is_finite` one test of the sum serves all
entries, because a sum with an infinity or a NaN is not finite. The comparison is one that CasADi cannot simplify away:
`x - x == 0` would become true.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.ops import Cost, Written, operation
from servoctl.engine.structured import Diagonal, blocks, diagonal_parts, is_zero
from servoctl.engine.symbol import Symbol, fmax, from_sx, is_symbolic, to_sx
from servoctl.types import Array

_LARGEST = 1.7976931348623157e308


def is_finite(*arrays: Array) -> Any:
    """Whether every entry is a finite number: a bool, or a symbol that is 0 or 1."""
    if not is_symbolic(*arrays):
        return all(bool(np.isfinite(np.asarray(array, dtype=float)).all()) for array in arrays)
    every = [entry for array in arrays for entry in np.asarray(array, dtype=object).flat]
    # equal expressions count once, finite numbers not at all: with them the step of two robots takes 3 % longer in C
    symbolic = {entry.sx.element_hash(): entry for entry in every if isinstance(entry, Symbol)}
    numbers = [entry for entry in every if not isinstance(entry, Symbol) and not math.isfinite(entry)]
    return abs(total([*numbers, *symbolic.values()])) <= _LARGEST


# products of symbols in a matrix product up to which it is written out: it leaves out the zeros. With 60, the step of
# two robots takes 4 % longer on the virtual machine; with 30 to 400, two arms and a quadruped the same time in C
SMALL = 100
WORTH = 60  # entries from which other operations are loops; with 20 to 200, those take the same time within 3 %
PARTS = 8  # parts of a long sum


def called(function: Any, arguments: tuple[Array, ...], *shapes: tuple[int, ...]) -> list[Any]:
    """The results of a CasADi function of symbols or numbers in these shapes; () for a scalar."""
    if not is_symbolic(*arguments):
        numbers = function(*(np.asarray(argument, dtype=float) for argument in arguments))
        numbers = numbers if isinstance(numbers, (tuple, list)) else (numbers,)
        return [np.array(x).reshape(shape, order="F") for x, shape in zip(numbers, shapes, strict=True)]
    results = function(*map(to_sx, arguments))
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [Symbol(sx) if shape == () else from_sx(sx, shape) for sx, shape in zip(results, shapes, strict=True)]


LARGE = 8000
"""Operations on more than this many pairs of numbers are CasADi's own matrix operations on the virtual machine."""


def _kind(work: int) -> Any:
    """The CasADi type in which an operation on so many pairs of numbers is written."""
    return ca.SX if work <= LARGE else ca.MX


@operation(
    "ROWS N COLUMNS TRANSPOSED",
    lambda rows, n, columns, transposed: Cost(2 * rows * n * columns),
    lambda rows, n, columns, transposed: rows * (n + 1),
)
def product_function(rows: int, n: int, columns: int, transposed: int) -> Written:
    """(A, B) -> A B, shape (rows, columns), or A B^T if `transposed`."""
    kind = _kind(rows * n * columns)
    A, B = kind.sym("A", rows, n), kind.sym("B", *((columns, n) if transposed else (n, columns)))
    return [A, B], [ca.mtimes(A, B.T if transposed else B)]


def product(A: Array, B: Array) -> Array:
    """A B, shape (r, c), or (r,) for a vector B."""
    if not is_symbolic(A) or not is_symbolic(B) or _products(A, B) < SMALL:
        plain: Array = A @ B
        return plain
    parts = blocks(A)
    if len(parts) > 1:
        by_rows: Array = np.full((len(A), *B.shape[1:]), 0.0).astype(object)
        for chosen, columns_of in parts:
            by_rows[chosen] = product(A[np.ix_(chosen, columns_of)], B[columns_of])
        return by_rows
    parts = blocks(B) if B.ndim == 2 else []
    if len(parts) > 1 or (len(parts) == 1 and len(parts[0][0]) < len(B)):
        whole: Array = np.full((len(A), B.shape[1]), 0.0).astype(object)
        for rows, chosen in parts:
            whole[:, chosen] = product(A[:, rows], B[np.ix_(rows, chosen)])
        return whole
    columns = B.shape[1] if B.ndim == 2 else 1
    # what loops return lies in column order, or transposed in row order: taken as it lies, no entry is copied in C
    transposed = _transposed(B)
    function = product_function(*A.shape, columns, transposed)
    (AB,) = called(function, (A, B.T if transposed else B), (len(A), *B.shape[1:]))
    result: Array = AB
    return result


def _transposed(A: Array) -> bool:
    """Whether a matrix lies in row order in memory."""
    return A.ndim == 2 and A.flags.c_contiguous and not A.flags.f_contiguous


def _products(A: Array, B: Array) -> int:
    """How many products of two symbols A B has."""
    left, right = (np.vectorize(lambda x: isinstance(x, Symbol), otypes=[int])(X) for X in (A, B))
    return int(left.sum(axis=0) @ right.reshape(len(B), -1).sum(axis=1))


@operation("K N ROWS", lambda k, n, rows: Cost(4 * k * n * rows), lambda k, n, rows: (k + n) * rows)
def project_function(k: int, n: int, rows: int) -> Written:
    """(Z, X) -> X (I - Z^T Z), shape (rows, n); Z has shape (k, n)."""
    kind = _kind(k * n * rows)
    Z, X = kind.sym("Z", k, n), kind.sym("X", rows, n)
    return [Z, X], [X - ca.mtimes(ca.mtimes(X, Z.T), Z)]


def project(Z: Array, w: Array) -> Array:
    """w - Z^T Z w for orthonormal rows Z, shape (k, n); w of shape (n,) or (n, columns)."""
    if not len(Z):
        return w
    if not is_symbolic(Z) or Z.size * w.size // len(w) < WORTH:
        plain: Array = w - Z.T @ (Z @ w)
        return plain
    rows: Array = w.T.reshape(-1, len(w))
    (rest,) = called(project_function(*Z.shape, len(rows)), (Z, rows), rows.shape)
    projected: Array = rest.T.reshape(w.shape)
    return projected


def sum_of_squares(A: Array) -> Any:
    """The sum of the squares of all entries."""
    if not is_symbolic(A):
        return np.sum(A * A) if A.size else 0.0
    return total([entry * entry for entry in A.flat if not is_zero(entry)])


def total(entries: Sequence[Any]) -> Any:
    """The sum, in parts that do not wait for one another: an addition takes several times as long as its start."""
    return sum(sum(entries[start::PARTS], start=0.0) for start in range(PARTS))


def largest(values: Any) -> Any:
    """|values|_inf of a vector of numbers or symbols; 0 if it is empty."""
    result: Any = 0.0
    for value in values:
        result = fmax(result, abs(value))
    return result


WRITTEN_OUT = 6  # solves with a triangle of symbols up to this size are written out; larger ones are loops


def solve_lower(L: Array, X: Array) -> Array:
    """L^-1 X for a lower triangular L; X of shape (n,) or (n, columns)."""
    if not is_symbolic(L, X):
        return _solve_numbers(L, X)
    return _solve_symbols(_lower, L, X)


def solve_upper(L: Array, X: Array) -> Array:
    """L^-T X for a lower triangular L; X of shape (n,) or (n, columns)."""
    if not is_symbolic(L, X):
        return _solve_numbers(L.T, X)
    return _solve_symbols(_upper, L, X)


def _solve_symbols(solve: Callable[[Array, Array, bool], Array], L: Array, X: Array) -> Array:
    """Solves block by block, for the columns of X that are not zero in the rows of a block."""
    columns = X.reshape(len(X), -1)
    Y: Array = np.full(columns.shape, 0.0).astype(object)
    given = np.array([not is_zero(entry) for entry in columns.flat], dtype=bool).reshape(columns.shape)
    for part in diagonal_parts(L):
        reached = np.flatnonzero(given[part].any(axis=0))
        if len(reached):
            written = len(L) <= WRITTEN_OUT or len(part) == 1
            Y[np.ix_(part, reached)] = solve(L[np.ix_(part, part)], columns[np.ix_(part, reached)], written)
    return Y.reshape(X.shape)


def _triangle_cost(rows: int, n: int, first: int = 0) -> Cost:
    return Cost(n - first + rows * (n - first) ** 2, n - first)


@operation("ROWS N FIRST", _triangle_cost, lambda rows, n, first: rows * (n - first))
def lower_function(rows: int, n: int, first: int) -> Written:
    """(L, X) -> X L^-T, shape (rows, n - first), of a lower triangle L without its first rows."""
    size = n - first
    kind = _kind(rows * size**2)
    L, X = kind.sym("L", n, n), kind.sym("X", rows, size)
    if kind is ca.MX:
        return [L, X], [ca.solve(ca.tril(L[first:, first:]), X.T).T]
    Y: list[Any] = []
    for i in range(size):
        rest = X[:, i] - sum((L[first + i, first + j] * Y[j] for j in range(i)), start=ca.SX(rows, 1))
        Y.append(rest * (1 / L[first + i, first + i]))
    return [L, X], [ca.horzcat(*Y)]


def _lower(L: Array, X: Array, written: bool) -> Array:
    """L^-1 X of symbols, shape (n, columns), in statements or in loops."""
    first = next((i for i, row in enumerate(X) if not all(map(is_zero, row))), len(X))  # zero rows stay zero
    Y: Array = np.full(X.shape, 0.0).astype(object)
    if X[first:].size:
        rows: Array = X[first:].T
        function = lower_function(len(rows), len(L), first, written=written)
        Y[first:] = called(function, (L, rows), rows.shape)[0].T
    return Y


@operation("ROWS N", _triangle_cost, lambda rows, n: rows * n)
def upper_function(rows: int, n: int) -> Written:
    """(L, X) -> X L^-1, shape (rows, n), of a lower triangle L."""
    kind = _kind(rows * n**2)
    L, X = kind.sym("L", n, n), kind.sym("X", rows, n)
    if kind is ca.MX:
        return [L, X], [ca.solve(ca.tril(L).T, X.T).T]
    Y: list[Any] = [None] * n
    for i in reversed(range(n)):
        rest = X[:, i] - sum((L[j, i] * Y[j] for j in range(i + 1, n)), start=ca.SX(rows, 1))
        Y[i] = rest * (1 / L[i, i])
    return [L, X], [ca.horzcat(*Y)]


def _upper(L: Array, X: Array, written: bool) -> Array:
    """L^-T X of symbols, shape (n, columns), in statements or in loops."""
    rows: Array = X.T
    solved: Array = called(upper_function(len(rows), len(L), written=written), (L, rows), rows.shape)[0].T
    return solved


def _solve_numbers(L: Array, X: Array) -> Array:
    # constants of a traced plant are object arrays
    return np.linalg.solve(np.asarray(L, dtype=float), np.asarray(X, dtype=float))


FACTOR_WRITTEN_OUT = 8
"""Cholesky factors of symbols up to this size are written out: at 7 rows in half the time of loops."""


def _cholesky_cost(n: int) -> Cost:
    below = n * (n - 1) // 2
    changed = (n + 1) * n * (n - 1) // 6  # entries that the columns before them change
    return Cost(4 * n + below + 2 * changed + 2 * n + below + 2, 2 * n)


@operation("N", _cholesky_cost, lambda n: n * n + 2 * n)
def cholesky_function(n: int) -> Written:
    """M -> (L, positive), of which M has its lower triangle only; see `linalg.cholesky`.

    No pivot depends on the square root of another: `M = W D^-1 W^T` with D the diagonal of W.
    """
    kind = _kind(n**3)
    M = kind.sym("M", ca.Sparsity.lower(n))
    rest, positive, columns = ca.densify(M), kind(1), []
    for j in range(n):
        counted = rest[0, 0] > 0
        positive = ca.logic_and(positive, counted) if j else counted
        pivot = ca.if_else(counted, rest[0, 0], 1)
        inverse, root = 1 / pivot, ca.sqrt(pivot)
        below = rest[1:, 0]
        columns.append(ca.vertcat(kind(ca.DM.zeros(j)), root, below * (root * inverse)))
        rest = rest[1:, 1:] - ca.mtimes(below, (below * inverse).T)
    return [M], [ca.horzcat(*columns), positive]


def cholesky(M: Array | Diagonal) -> tuple[Any, Any]:
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
        function = cholesky_function(len(part), written=len(part) <= FACTOR_WRITTEN_OUT)
        factor, fine = called(function, (M[np.ix_(part, part)],), (len(part), len(part)), ())
        L[np.ix_(part, part)] = factor
        positive = positive * fine
    return L, positive


def slopes(function: Callable[[Array], Array], x: Array, steps: Array) -> Array:
    """Derivative of a function of a vector on numbers, shape (values, len(x)), by central differences.

    `steps`: how far each entry of x goes to both sides.
    """
    ways = zip(np.diag(steps), steps, strict=True)
    return np.stack([(function(x + way) - function(x - way)) / (2.0 * step) for way, step in ways], axis=1)
