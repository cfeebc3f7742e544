"""The rank-revealing pseudoinverse A^+, by a row-pivoted complete orthogonal decomposition of numbers or symbols.

    A = C Z,  C = U R,  A^+ = Z^T R^-1 U^T

Rows of Z and columns of U are orthonormal, and R is upper triangular. A direction counts towards the rank if its pivot
is strictly greater than `tolerance * scale`.

Design: Gram-Schmidt on the rows, largest remainder first, orthogonalised twice; never a Gram matrix, which squares
the condition number. On symbols every division is guarded, so that derivatives stay finite when rank is lost, and each
size is one CasADi function that is called, never inlined. On numbers NumPy takes the same steps, with LAPACK's QR for
C, so both find the same rank.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.linalg import WORTH, called, is_finite, largest, product, project, solve_upper, sum_of_squares
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.ops import Cost, Written, operation
from servoctl.engine.structured import blocks
from servoctl.engine.symbol import Symbol, fmin, from_sx, is_symbolic, plain, to_sx, where
from servoctl.types import Array

FEW = 12  # matrices with more rows are decomposed by operations on whole matrices on the virtual machine
MANY = 60  # with more rows they are decomposed in NumPy there


@dataclass(frozen=True)
class Decomposition:
    """The factors of a matrix A, shape (r, n); k is at most min(r, n) on symbols, and the rank on numbers."""

    row_basis: Array  # Z, shape (k, n); rows beyond the rank are zero
    column_basis: Array  # U, shape (r, k); columns beyond the rank are zero
    triangle: Array  # R, shape (k, k), of `A / scale`; 1 on the diagonal beyond the rank
    rank: Any  # number of directions counted
    pivot_min: Any  # smallest pivot counted, divided by the scale; 0 at rank 0
    scale: Any  # pivots are relative to it

    def solve(self, b: Array) -> Array:
        """A^+ b: the shortest of the least-squares solutions of `A x = b`, shape (n,) or (n, columns)."""
        y = product(self.column_basis.T, b)
        x: Array = product(self.row_basis.T, solve_upper(self.triangle.T, y)) / self.scale
        return x

    def pseudoinverse(self) -> Array:
        """A^+, shape (n, r)."""
        return self.solve(np.eye(len(self.column_basis)))

    def project(self, w: Array) -> Array:
        """w - A^+ A w for w of shape (n,) or (n, columns); of a longer A only the first n columns act."""
        return project(self.row_basis[:, : len(w)], w)

    def row_projector(self) -> Array:
        """A^+ A, shape (n, n)."""
        return product(self.row_basis.T, self.row_basis)

    def residual(self, b: Array) -> Array:
        """(I - A A^+) b: the part of b that `A x` cannot equal for any x."""
        rest: Array = b - product(self.column_basis, product(self.column_basis.T, b))
        return rest


def frobenius(A: Array) -> Any:
    """|A|_F; on symbols its derivative at zero is finite."""
    total = sum_of_squares(A)
    if not is_symbolic(total):
        return float(np.sqrt(total))
    return where(total > 0.0, np.sqrt(where(total > 0.0, total, 1.0)), 0.0)


@operation("ROWS N", lambda rows, n: Cost(rows * (3 * n + 3), rows), lambda rows, n: 3)
def longer_function(rows: int, n: int) -> Written:
    """(A, limit) -> (1 or 0 for each row: whether it is longer, the rows or zeros)."""
    A, limit = ca.SX.sym("A", rows, n), ca.SX.sym("limit")
    counted = ca.SX(rows, 1)
    for i in range(rows):
        total = ca.sumsqr(A[i, :])  # its root has a finite derivative at zero, as in `frobenius`
        counted[i] = ca.if_else(total > 0, ca.sqrt(ca.if_else(total > 0, total, 1)), 0) > limit
    return [A, limit], [counted, ca.vertcat(*(ca.if_else(counted[i], A[i, :], 0) for i in range(rows)))]


def longer_rows(A: Array, limit: Any) -> tuple[Array, Array]:
    """Whether each row is longer than a limit, 1 or 0, shape (r,), and A with zeros in the other rows, shape (r, n)."""
    if not is_symbolic(A) or A.size < WORTH:
        counted = np.array([where(frobenius(row) > limit, 1.0, 0.0) for row in A])
        return counted, counted.reshape(-1, 1) * A
    longer, kept = called(longer_function(*A.shape), (A, np.array(limit)), (len(A),), A.shape)
    return longer, kept


def decompose(A: Array, tolerance: Any, scale: Any = None, masked: bool = False) -> Decomposition:
    """The decomposition of A.

    Args:
        A: Shape (r, n), of finite numbers or of symbols.
        tolerance: Relative rank tolerance: a direction counts if its pivot exceeds `tolerance * scale`.
        scale: Positive number; None: |A|_F.
        masked: Whether most rows may be zero at a time: compiled code then leaves them out.
    """
    scale = frobenius(A) if scale is None else scale
    scale = where(scale > 0.0, scale, 1.0) if is_symbolic(scale) else (scale if scale > 0.0 else 1.0)
    if is_symbolic(A, scale, tolerance):
        return _by_blocks(A, tolerance, scale, masked)
    return _numeric(np.asarray(A, dtype=float) / scale, float(tolerance), scale)


def pinv(A: Any, rank_tolerance: float = 1e-10) -> Array:
    """The Moore-Penrose inverse of a matrix of numbers or of symbols.

    Args:
        A: Shape (r, n).
        rank_tolerance: A direction counts when its pivot exceeds this times |A|_F.

    Returns:
        A^+, shape (n, r); NaN if an entry is not finite.
    """
    A = plain(A)
    size = largest(A.flat)
    size = where(size > 0.0, size, 1.0)
    with np.errstate(invalid="ignore"):  # infinite entries
        scaled = A / size  # squares may overflow
    inverse: Array = where(is_finite(scaled), decompose(scaled, rank_tolerance).pseudoinverse() / size, np.nan)
    return inverse


def _numeric(A: Array, tolerance: float, scale: float) -> Decomposition:
    rows, n = A.shape
    k = min(rows, n)
    if not k:  # no constraints
        return Decomposition(np.zeros((0, n)), np.zeros((rows, 0)), np.zeros((0, 0)), 0, 0.0, scale)
    # while a function is traced, NumPy's constructors give arrays of objects
    C, Z = (np.asarray(np.zeros(shape), dtype=float) for shape in ((rows, k), (k, n)))
    remainder = A.copy()
    rank, smallest = 0, 0.0
    for j in range(k):
        i = int(np.argmax(np.einsum("ij,ij->i", remainder, remainder)))
        again = Z[:j] @ remainder[i]
        row = remainder[i] - again @ Z[:j]
        pivot = float(np.sqrt(row @ row))
        if not pivot > tolerance:
            break
        rank, smallest = j + 1, pivot
        Z[j] = row / pivot
        C[:, j] = remainder @ Z[j]
        C[i, :j] += again
        C[i, j] = pivot
        remainder -= np.outer(C[:, j], Z[j])
        remainder[i] = 0.0
    U, R = np.linalg.qr(C[:, :rank])
    return Decomposition(Z[:rank], U, R, rank, smallest, scale)


def _by_blocks(A: Array, tolerance: Any, scale: Any, masked: bool) -> Decomposition:
    """A decomposition of each part of A, such as one robot of a swarm, put together; the scale is that of the whole."""
    parts = blocks(A)
    if len(parts) < 2:
        return _symbolic(A / scale, tolerance, scale, masked)
    rows, n = A.shape
    k = sum(min(len(i), len(j)) for i, j in parts)
    Z, U, R = (np.full(shape, 0.0).astype(object) for shape in ((k, n), (rows, k), (k, k)))
    rank: Any = 0.0
    smallest: Any = np.inf
    first = 0
    for i, j in parts:
        part = _symbolic(A[np.ix_(i, j)] / scale, tolerance, scale, masked)
        place = np.arange(first, first + len(part.triangle))
        first += len(place)
        Z[np.ix_(place, j)], U[np.ix_(i, place)] = part.row_basis, part.column_basis
        R[np.ix_(place, place)] = part.triangle
        rank = rank + part.rank
        smallest = fmin(smallest, where(part.rank > 0.0, part.pivot_min, np.inf))
    return Decomposition(Z, U, R, rank, where(rank > 0.0, smallest, 0.0), scale)


def _symbolic(A: Array, tolerance: Any, scale: Any, masked: bool) -> Decomposition:
    rows, n = A.shape
    k = min(rows, n)
    if k == 0:
        return Decomposition(np.zeros((0, n)), np.zeros((rows, 0)), np.zeros((0, 0)), 0.0, 0.0, scale)
    function = decompose_function(rows, n, masked) if rows <= MANY else decomposition_call(rows, n, masked)
    Z, U, R, rank, pivot_min = function(to_sx(A), tolerance.sx if isinstance(tolerance, Symbol) else float(tolerance))
    return Decomposition(
        from_sx(Z, (k, n)), from_sx(U, (rows, k)), from_sx(R, (k, k)), Symbol(rank), Symbol(pivot_min), scale
    )


@cache
def decomposition_call(rows: int, n: int, masked: bool = False) -> NumpyCall:
    """The same as an operation in NumPy."""
    k = min(rows, n)

    def work(A: Array, tolerance: Array) -> list[Array]:
        split = _numeric(A, float(tolerance[0]), 1.0)
        Z, U, R = np.zeros((k, n)), np.zeros((rows, k)), np.eye(k)
        Z[: split.rank], U[:, : split.rank] = split.row_basis, split.column_basis
        R[: split.rank, : split.rank] = split.triangle
        return [Z, U, R, np.array(split.rank), np.array(split.pivot_min)]

    sizes = (k, n), (rows, k), (k, k), (1,), (1,)
    return NumpyCall(f"decompose_{rows}x{n}x{int(masked)}", work, ((rows, n), (1,)), sizes, numbered=False)


def decomposition_cost(rows: int, n: int, masked: int = 0) -> Cost:
    """Cost of `c/decompose.h` for one run, loop by loop in its order.

    The worst case: every direction takes most of the length of the rows that are left, and rank is lost.
    """
    k, dot = min(rows, n), 2 * n + 3
    others = sum(rows - 1 - j for j in range(k))  # rows that are not chosen yet, over all pivots
    total = 3 + rows * dot + others * (2 + dot) + (others - (rows - k)) * (2 * n + dot + 5)
    total += k * (13 + dot + n) + k - 1  # length of the new direction, whether it counts, its entries
    total += (k * (k - 1) // 2) * (dot + 2 * n + 2)  # products with the directions before
    column = 2 * rows + 6 + 2 * rows
    columns = k * column + 2 * (k - 1) * 2 * rows * k + k * (k - 1) * (2 * rows + 1) + k * k
    return Cost(total + columns + k * n + 1, 5 * k)


def decomposition_numbers(rows: int, n: int, masked: int = 0) -> int:
    """Numbers and conditions that the two functions of `c/decompose.h` keep on the stack."""
    k = min(rows, n)
    rank = rows * n + k * n + n + k * rows + 4 * rows + 2 * k
    return rank + rows * k + k * k + k + 48  # the last: the second call, pointers and counters


@operation(
    "ROWS N MASKED", decomposition_cost, decomposition_numbers,
    more=lambda rows, n, masked: {"K": min(rows, n), "COLUMNS": f"columns_{rows}x{n}x{masked}"},
)  # fmt: skip
def decompose_function(rows: int, n: int, masked: int) -> Written:
    """(A, tolerance) -> (Z, U, R, rank, pivot_min), scale 1; if `masked`, most rows may be zero at a time."""
    return _decomposition(rows, n, ca.SX if rows <= FEW else ca.MX)


def written_decomposition(rows: int, n: int, masked: int) -> Any:
    """`decompose_function`, written out in operations on numbers, whatever its size."""
    return ca.Function(f"decompose_{rows}x{n}x{masked}", *_decomposition(rows, n, ca.SX), {"never_inline": True})


def _decomposition(rows: int, n: int, kind: Any) -> Written:
    A, tolerance = kind.sym("A", rows, n), kind.sym("tolerance")
    C, Z, live, pivots = _pivots(A, tolerance)
    U, R = _columns(C, live)
    rank, pivot_min = 0, 0
    for counted, pivot in zip(live, pivots, strict=True):
        rank += counted
        pivot_min = ca.if_else(counted, pivot, pivot_min)
    return [A, tolerance], list(map(ca.densify, [Z, U, R, rank, pivot_min]))


def _pivots(A: Any, tolerance: Any) -> tuple[Any, Any, list[Any], list[Any]]:
    """C and Z of A = C Z by Gram-Schmidt on the rows, largest remainder first; which directions count; their pivots."""
    (rows, n), kind = A.shape, type(A)
    sizes = ca.SX.sym("sizes", rows)
    choice = ca.Function("choice", [sizes], [ca.vertcat(*_first_largest(ca.vertsplit(sizes)))])
    remainder, C, Z = A, kind(rows, 0), kind(n, 0)
    live: list[Any] = []
    pivots: list[Any] = []
    for _ in range(min(rows, n)):
        chosen = choice(ca.sum2(remainder * remainder))
        row = ca.mtimes(remainder.T, chosen)
        again = ca.mtimes(Z.T, row)
        row -= ca.mtimes(Z, again)
        C += ca.mtimes(chosen, again.T)
        square = ca.sumsqr(row)
        counted = ca.logic_and(square > tolerance * tolerance, live[-1]) if live else square > tolerance * tolerance
        pivot = ca.sqrt(ca.if_else(counted, square, 1))
        direction = row * ca.if_else(counted, 1 / pivot, 0)
        others = 1 - chosen
        column = others * ca.mtimes(remainder, direction) + chosen * ca.if_else(counted, pivot, 0)
        remainder = (remainder - ca.mtimes(column, direction.T)) * ca.mtimes(others, kind(ca.DM.ones(1, n)))
        C, Z = ca.horzcat(C, column), ca.horzcat(Z, direction)
        live.append(counted)
        pivots.append(pivot)
    return C, Z.T, live, pivots


def _first_largest(values: list[Any]) -> list[Any]:
    """1 for the first of the largest values, 0 for all others."""
    if len(values) == 1:
        return [ca.SX(1)]
    largest = values[0]
    for value in values[1:]:
        largest = ca.fmax(largest, value)
    chosen, taken = [], ca.SX(0)
    for value in values:
        chosen.append(ca.if_else(taken, 0, value >= largest))
        taken = ca.logic_or(taken, chosen[-1])
    return chosen


def _columns(C: Any, live: list[Any]) -> tuple[Any, Any]:
    """C = U R by Gram-Schmidt on the columns, orthogonalised twice."""
    rows, k = C.shape
    kind: Any = type(C)
    U, R = kind(rows, 0), list[Any]()
    for j, column in enumerate(ca.horzsplit(C)):
        above = kind(ca.DM.zeros(j))
        for _ in range(2 if j else 0):
            part = ca.mtimes(U.T, column)
            column = column - ca.mtimes(U, part)
            above = above + part
        square = ca.sumsqr(column)
        counted = ca.logic_and(live[j], square > 0)
        length = ca.sqrt(ca.if_else(counted, square, 1))
        R.append(ca.vertcat(above, length, kind(ca.DM.zeros(k - j - 1))))
        U = ca.horzcat(U, column * ca.if_else(counted, 1 / length, 0))
    return U, ca.horzcat(*R)
