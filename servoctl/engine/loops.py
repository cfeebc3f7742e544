"""Matrix operations on symbols that are functions of their own: called, never inlined, and loops in C.

Design: straight-line code is for the terms of a plant. Written out, the algebra of two arms with seven joints has more
statements than the arms, and takes the compiler and the processor longer than loops. An operation is one value: its
CasADi function, its C and its cost. Derivatives of these functions are written out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import casadi as ca

from servoctl.engine.ops import CFunction, Cost, Op, definition, instance, register, same, sizes_of

LARGE = 8000
"""Operations on more than this many pairs of numbers are CasADi's own matrix operations on the virtual machine."""

Written = tuple[list[Any], list[Any]]  # inputs and outputs of a CasADi function
Writer = Callable[..., Written]


@dataclass(frozen=True)
class Operation(Op):
    """A matrix operation; called with sizes, it gives its CasADi function at this size."""

    name: str  # the functions are named `<name>_<size>x<size>..`
    write: Writer  # sizes -> its CasADi function
    sizes: tuple[str, ...]  # macros of the C file for the sizes, in order; those that are left out are 0
    cost: Callable[..., Cost]  # sizes -> operations in the worst case
    numbers: Callable[..., int]  # sizes -> numbers on the stack
    more: Callable[..., Mapping[str, object]]  # sizes -> further macros
    made: dict[str, Any] = field(default_factory=dict, compare=False)  # name -> CasADi function

    def __call__(self, *sizes: int, written: bool = False) -> Any:
        """The function at these sizes; if `written`, one that is written out where it is called."""
        every = [int(size) for size in (*sizes, *[0] * (len(self.sizes) - len(sizes)))]
        name = f"{self.name}_{'x'.join(map(str, every))}{'_written' * written}"
        if name not in self.made:
            inputs, outputs = self.write(*every)
            options = {"always_inline" if written else "never_inline": True}
            self.made[name] = ca.Function(name, inputs, list(map(ca.densify, outputs)), options)
        return self.made[name]

    def in_c(self, function: Any) -> CFunction:
        """The C of its function at a size, which the file `<name of the operation>.h` calls `OPERATION`."""
        name, sizes = function.name(), sizes_of(function.name())
        macros = {"OPERATION": f"f_{name}", **dict(zip(self.sizes, sizes, strict=True)), **self.more(*sizes)}
        return CFunction(instance(f"{self.name}.h", macros), self.cost(*sizes), self.numbers(*sizes))


def operation(
    sizes: str,
    cost: Callable[..., Cost],
    numbers: Callable[..., int],
    more: Callable[..., Mapping[str, object]] = lambda *sizes: {},
) -> Callable[[Writer], Operation]:
    """Makes a function `<name>_function` of sizes an `Operation`; for the arguments see there."""

    def made(write: Writer) -> Operation:
        name = write.__name__.removesuffix("_function")
        return register(f"{name}_", Operation(name, write, tuple(sizes.split()), cost, numbers, more))

    return made


def _kind(work: int) -> Any:
    """The CasADi type in which an operation on so many pairs of numbers is written."""
    return ca.SX if work <= LARGE else ca.MX


def _cholesky_cost(n: int) -> Cost:
    below = n * (n - 1) // 2
    changed = (n + 1) * n * (n - 1) // 6  # entries that the columns before them change
    return Cost(4 * n + below + 2 * changed + 2 * n + below + 2, 2 * n)


def _triangle_cost(rows: int, n: int, first: int = 0) -> Cost:
    return Cost(n - first + rows * (n - first) ** 2, n - first)


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


@operation("N", lambda n: Cost(2 * n + n * (n - 1), n), lambda n: n + 3)
def back_function(n: int) -> Written:
    """(R, y) -> R^-1 y, shape (n,), of an upper triangle R."""
    kind = _kind(n**2)
    R, y = kind.sym("R", n, n), kind.sym("y", n)
    if kind is ca.MX:
        return [R, y], [ca.solve(ca.triu(R), y)]
    x: list[Any] = [None] * n
    for i in reversed(range(n)):
        x[i] = (y[i] - sum((R[i, j] * x[j] for j in range(i + 1, n)), start=ca.SX(0))) * (1 / R[i, i])
    return [R, y], [ca.vertcat(*x)]


@operation("COLUMNS N", lambda columns, n: Cost(columns * (2 * n + 3)), lambda columns, n: 4)
def dots_function(columns: int, n: int) -> Written:
    """(A, b) -> A^T b, shape (columns,), of A of shape (n, columns)."""
    kind = _kind(columns * n)
    A, b = kind.sym("A", n, columns), kind.sym("b", n)
    return [A, b], [ca.mtimes(A.T, b)]


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


@operation("K N ROWS", lambda k, n, rows: Cost(4 * k * n * rows), lambda k, n, rows: (k + n) * rows)
def project_function(k: int, n: int, rows: int) -> Written:
    """(Z, X) -> X (I - Z^T Z), shape (rows, n); Z has shape (k, n)."""
    kind = _kind(k * n * rows)
    Z, X = kind.sym("Z", k, n), kind.sym("X", rows, n)
    return [Z, X], [X - ca.mtimes(ca.mtimes(X, Z.T), Z)]


@operation("COUNT", lambda count: Cost(2 * count + 7), lambda count: 8)
def squares_function(count: int) -> Written:
    """The sum of the squares of a vector."""
    x = _kind(20 * count).sym("x", count)
    return [x], [ca.sumsqr(x)]


@operation("ROWS N", lambda rows, n: Cost(rows * (3 * n + 3), rows), lambda rows, n: 3)
def longer_function(rows: int, n: int) -> Written:
    """(A, limit) -> (1 or 0 for each row: whether it is longer, the rows or zeros)."""
    A, limit = ca.SX.sym("A", rows, n), ca.SX.sym("limit")
    counted = ca.SX(rows, 1)
    for i in range(rows):
        total = ca.sumsqr(A[i, :])  # its root has a finite derivative at zero, as in `decomposition.frobenius`
        counted[i] = ca.if_else(total > 0, ca.sqrt(ca.if_else(total > 0, total, 1)), 0) > limit
    return [A, limit], [counted, ca.vertcat(*(ca.if_else(counted[i], A[i, :], 0) for i in range(rows)))]


@dataclass(frozen=True, eq=False)
class Repeated(Op):
    """A function repeated as a loop, in each lane until it is done."""

    step: Any  # CasADi function (state, ...) -> state after a step
    most: int  # most steps
    done: int  # index of the entry of the state that is 1 when done, 0 before

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Repeated) or (self.most, self.done) != (other.most, other.done):
            return False
        return same(self.step, other.step)

    @property
    def called(self) -> list[Any]:
        return [self.step]

    def in_c(self, function: Any) -> CFunction:
        size, step = function.nnz_in(0), self.step.name()
        rest = ", ".join(f"x{i}" for i in range(1, function.n_in()))
        lines = [
            f"  for (int i = 0; i < {size}; ++i) y0[i] = x0[i];",
            f"  for (int k = 0; k < {self.most}; ++k) {{",
            f"    V after[{size}];",
            f"    M open = y0[{self.done}] == number(0.0);",
            "    if (!any(open)) break;",
            f"    f_{step}(y0, {rest}, after);",
            f"    for (int i = 0; i < {size}; ++i) y0[i] = select(open, after[i], y0[i]);",
            "  }",
        ]
        choices = Cost(self.most * (size + 1))
        return CFunction(definition(function, lines), choices, size + 1, self.most * (step,))


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
            register(name, Repeated(step, steps, done))
            return ca.Function(name, inputs, [unless_done(state[done], state, *rest)], {"never_inline": True})
        half = run(state, *rest)
        pair = unless_done(half[done], half, *rest)
        run, steps = ca.Function(f"{name}_{2 * steps}", inputs, [pair], {"never_inline": True}), 2 * steps
