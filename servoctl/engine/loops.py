"""Matrix operations on symbols that are functions of their own: called, never inlined, and loops in C.

Design: straight-line code is for the terms of a plant. Written out, the algebra of two arms with seven joints has more
statements than the arms, and takes the compiler and the processor longer than loops. A name says what a function does
and at which size, and is all that the C code needs. Derivatives of these functions are written out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import casadi as ca

LARGE = 8000
"""Operations on more than this many pairs of numbers are CasADi's own matrix operations on the virtual machine."""


def _kind(work: int) -> Any:
    """The CasADi type in which an operation on so many pairs of numbers is written."""
    return ca.SX if work <= LARGE else ca.MX


def _called(name: str, inputs: list[Any], outputs: list[Any]) -> Any:
    return ca.Function(name, inputs, outputs, {"never_inline": True})


@cache
def cholesky_function(n: int) -> Any:
    """CasADi function M -> (L, positive), of which M has its lower triangle only; see `linalg.cholesky`."""
    if _kind(n**3) is ca.MX:
        return _large_cholesky(n)
    M = ca.SX.sym("M", ca.Sparsity.lower(n))
    W, L, positive = ca.tril(M), ca.SX(n, n), ca.SX(1)
    for j in range(n):
        counted = W[j, j] > 0
        positive = ca.logic_and(positive, counted)
        pivot = ca.if_else(counted, W[j, j], 1)
        inverse, root = 1 / pivot, ca.sqrt(pivot)
        L[j, j] = root
        for k in range(j + 1, n):
            W[k:, k] -= W[k:, j] * (W[k, j] * inverse)
            L[k, j] = W[k, j] * (root * inverse)
    return _called(f"cholesky_{n}", [M], [ca.densify(L), positive])


def _large_cholesky(n: int) -> Any:
    """`cholesky_function`, column by column."""
    M = ca.MX.sym("M", ca.Sparsity.lower(n))
    rest, positive, columns = ca.densify(M), ca.MX(1), []
    for j in range(n):
        pivot = rest[0, 0]
        counted = pivot > 0
        positive = ca.logic_and(positive, counted)
        root = ca.sqrt(ca.if_else(counted, pivot, 1))
        below = rest[1:, 0] / root
        columns.append(ca.vertcat(ca.MX(ca.DM.zeros(j)), root, below))
        rest = rest[1:, 1:] - ca.mtimes(below, below.T)
    return _called(f"cholesky_{n}", [M], [ca.horzcat(*columns), positive])


def _large_solve(name: str, rows: int, n: int, triangle: Callable[[Any], Any], size: int) -> Any:
    """CasADi function (L, X) -> X of shape (rows, size), each row solved with a triangle of L, shape (n, n)."""
    L, X = ca.MX.sym("L", n, n), ca.MX.sym("X", rows, size)
    return _called(name, [L, X], [ca.solve(triangle(L), X.T).T])


@cache
def inverse_function(n: int) -> Any:
    """CasADi function L -> L^-1 of a lower triangle L, shape (n, n)."""
    L = ca.MX.sym("L", n, n)
    return _called(f"inverse_{n}", [L], [ca.densify(ca.solve(ca.tril(L), ca.MX(ca.DM.eye(n))))])


@cache
def lower_function(rows: int, n: int, first: int = 0) -> Any:
    """CasADi function (L, X) -> X L^-T, shape (rows, n - first), of a lower triangle L without its first rows."""
    name = f"lower_from_{rows}x{n}x{first}" if first else f"lower_{rows}x{n}"
    size = n - first
    if _kind(rows * size**2) is ca.MX:
        return _large_solve(name, rows, n, lambda L: ca.tril(L[first:, first:]), size)
    L, X = ca.SX.sym("L", n, n), ca.SX.sym("X", rows, size)
    Y: list[Any] = []
    for i in range(size):
        rest = X[:, i] - sum((L[first + i, first + j] * Y[j] for j in range(i)), start=ca.SX(rows, 1))
        Y.append(rest * (1 / L[first + i, first + i]))
    return _called(name, [L, X], [ca.densify(ca.horzcat(*Y))])


@cache
def upper_function(rows: int, n: int) -> Any:
    """CasADi function (L, X) -> X L^-1, shape (rows, n), of a lower triangle L."""
    if _kind(rows * n**2) is ca.MX:
        return _large_solve(f"upper_{rows}x{n}", rows, n, lambda L: ca.tril(L).T, n)
    L, X = ca.SX.sym("L", n, n), ca.SX.sym("X", rows, n)
    Y: list[Any] = [None] * n
    for i in reversed(range(n)):
        rest = X[:, i] - sum((L[j, i] * Y[j] for j in range(i + 1, n)), start=ca.SX(rows, 1))
        Y[i] = rest * (1 / L[i, i])
    return _called(f"upper_{rows}x{n}", [L, X], [ca.densify(ca.horzcat(*Y))])


@cache
def back_function(n: int) -> Any:
    """CasADi function (R, y) -> R^-1 y, shape (n,), of an upper triangle R."""
    kind = _kind(n**2)
    R, y = kind.sym("R", n, n), kind.sym("y", n)
    if kind is ca.MX:
        return _called(f"back_{n}", [R, y], [ca.solve(ca.triu(R), y)])
    x: list[Any] = [None] * n
    for i in reversed(range(n)):
        x[i] = (y[i] - sum((R[i, j] * x[j] for j in range(i + 1, n)), start=ca.SX(0))) * (1 / R[i, i])
    return _called(f"back_{n}", [R, y], [ca.densify(ca.vertcat(*x))])


@cache
def dots_function(columns: int, n: int) -> Any:
    """CasADi function (A, b) -> A^T b, shape (columns,), of A of shape (n, columns)."""
    kind = _kind(columns * n)
    A, b = kind.sym("A", n, columns), kind.sym("b", n)
    return _called(f"dots_{columns}x{n}", [A, b], [ca.densify(ca.mtimes(A.T, b))])


@cache
def product_function(rows: int, n: int, columns: int, transposed: bool) -> Any:
    """CasADi function (A, B) -> A B, shape (rows, columns), or A B^T if `transposed`."""
    kind = _kind(rows * n * columns)
    A, B = kind.sym("A", rows, n), kind.sym("B", *((columns, n) if transposed else (n, columns)))
    name = f"product{'_transposed' * transposed}_{rows}x{n}x{columns}"
    return _called(name, [A, B], [ca.densify(ca.mtimes(A, B.T if transposed else B))])


@cache
def project_function(k: int, n: int, rows: int) -> Any:
    """CasADi function (Z, X) -> X (I - Z^T Z), shape (rows, n); Z has shape (k, n)."""
    kind = _kind(k * n * rows)
    Z, X = kind.sym("Z", k, n), kind.sym("X", rows, n)
    return _called(f"project_{k}x{n}x{rows}", [Z, X], [ca.densify(X - ca.mtimes(ca.mtimes(X, Z.T), Z))])


@cache
def squares_function(count: int) -> Any:
    """CasADi function of a vector -> the sum of its squares."""
    x = _kind(20 * count).sym("x", count)
    return _called(f"squares_{count}", [x], [ca.sumsqr(x)])


@cache
def total_function(count: int) -> Any:
    """CasADi function of a vector -> the sum of its entries."""
    x = ca.MX.sym("x", count)
    return _called(f"total_{count}", [x], [ca.sum1(x)])


@cache
def largest_function(count: int) -> Any:
    """CasADi function of a vector -> its largest absolute value."""
    x, result = ca.SX.sym("x", count), ca.SX(0)
    for i in range(count):
        result = ca.fmax(result, ca.fabs(x[i]))
    return _called(f"largest_{count}", [x], [result])


@cache
def longer_function(rows: int, n: int) -> Any:
    """CasADi function (A, limit) -> (1 or 0 for each row: whether it is longer, the rows or zeros)."""
    A, limit = ca.SX.sym("A", rows, n), ca.SX.sym("limit")
    counted = ca.SX(rows, 1)
    for i in range(rows):
        total = ca.sumsqr(A[i, :])  # its root has a finite derivative at zero, as in `decomposition.frobenius`
        counted[i] = ca.if_else(total > 0, ca.sqrt(ca.if_else(total > 0, total, 1)), 0) > limit
    kept = ca.vertcat(*(ca.if_else(counted[i], A[i, :], 0) for i in range(rows)))
    return _called(f"longer_{rows}x{n}", [A, limit], [ca.densify(counted), ca.densify(kept)])


@cache
def sizes_function(rows: int, n: int) -> Any:
    """CasADi function of a matrix -> the sum of the absolute values in each column."""
    A = ca.SX.sym("A", rows, n)
    return _called(f"sizes_{rows}x{n}", [A], [ca.densify(ca.sum1(ca.fabs(A)))])


@cache
def divided_function(count: int) -> Any:
    """CasADi function (x, divisor) -> x / divisor."""
    x, divisor = _kind(20 * count).sym("x", count), _kind(20 * count).sym("divisor")
    return _called(f"divided_{count}", [x, divisor], [ca.densify(x / divisor)])


@dataclass(frozen=True)
class Repeated:
    """What the C code needs to write the repetition as a loop."""

    step: Any  # CasADi function (state, ...) -> state after a step
    most: int  # most steps
    done: int  # index of the entry of the state that is 1 when done, 0 before


REPEATED: dict[str, Repeated] = {}  # name of a CasADi function that repeats another -> what it repeats


def repeat(name: str, step: Any, most: int, done: int) -> Any:
    """CasADi function (state, ...) -> state when done, or after the most steps.

    The virtual machine has no loops. There the steps are nested in pairs, each pair behind a branch, so that steps
    after the end are not run. This rounds the number of steps up to a power of two, for C too.
    """
    inputs = [ca.MX.sym(step.name_in(i), *step.size_in(i)) for i in range(step.n_in())]
    state, rest = inputs[0], inputs[1:]
    stay = ca.Function(f"{name}_rest", inputs, [state], {"never_inline": True})
    run, steps = step, 1
    while True:
        unless_done = ca.Function.if_else(f"{name}_branch_{steps}", stay, run)
        if steps >= most:
            REPEATED[name] = Repeated(step, steps, done)
            return ca.Function(name, inputs, [unless_done(state[done], state, *rest)], {"never_inline": True})
        half = run(state, *rest)
        pair = unless_done(half[done], half, *rest)
        run, steps = ca.Function(f"{name}_{2 * steps}", inputs, [pair], {"never_inline": True}), 2 * steps
