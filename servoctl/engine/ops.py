"""Operations: CasADi functions that are called, never inlined, and that C has in a form of its own.

Design: one registry has them all. The name of such a function says which operation it is, and its sizes. That is all
that the C code needs, also of a function from the cache, so equal names must mean equal functions.

Design: straight-line code is for the terms of a plant. Written out, the algebra of two arms with seven joints has more
statements than the arms, and takes the compiler and the processor longer than loops. A matrix operation is one value:
its CasADi function, its C and its cost. Derivatives of these functions are written out.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import casadi as ca
import numpy as np

from servoctl.engine.symbol import Symbol, from_sx, is_symbolic
from servoctl.types import Array


@dataclass(frozen=True)
class Cost:
    """Operations on numbers, in the worst case."""

    operations: int = 0  # all: arithmetic, comparisons, choices
    divisions: int = 0  # of these, divisions and square roots
    functions: int = 0  # of these, sines, exponentials and the like

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.operations + other.operations, self.divisions + other.divisions, self.functions + other.functions
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(times * self.operations, times * self.divisions, times * self.functions)


_UNARY = {
    ca.OP_NEG: "-{0}",
    ca.OP_SQ: "{0} * {0}",
    ca.OP_TWICE: "number(2.0) * {0}",
    ca.OP_INV: "number(1.0) / {0}",
    ca.OP_ASSIGN: "{0}",
}
_BINARY = {
    ca.OP_ADD: "{0} + {1}",
    ca.OP_SUB: "{0} - {1}",
    ca.OP_MUL: "{0} * {1}",
    ca.OP_DIV: "{0} / {1}",
    ca.OP_CONSTPOW: "v_pow({0}, {1})",
}
CHEAP_OF_ONE, CHEAP_OF_TWO = ("floor", "ceil", "fabs", "sign"), ("copysign", "fmin", "fmax", "fmod")
SLOW_OF_ONE = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log",
    "expm1", "log1p", "erf",
)  # fmt: skip
SLOW_OF_TWO = ("atan2", "hypot", "pow")
FUNCTIONS = ("sqrt", *CHEAP_OF_ONE, *CHEAP_OF_TWO, *SLOW_OF_ONE, *SLOW_OF_TWO)
"""Functions of V, each written `v_<name>` in C."""

_UNARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}})" for name in ("sqrt", *CHEAP_OF_ONE, *SLOW_OF_ONE)}
_BINARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}}, {{1}})" for name in (*CHEAP_OF_TWO, *SLOW_OF_TWO)}
TEXT = _UNARY | _BINARY  # C of an operation on numbers, `{0}` and `{1}` for its operands

COMPARE = {ca.OP_LT: "{0} < {1}", ca.OP_LE: "{0} <= {1}", ca.OP_EQ: "{0} == {1}", ca.OP_NE: "{0} != {1}"}
_DIVISIONS = {ca.OP_DIV, ca.OP_INV, ca.OP_SQRT}
_SLOW = {getattr(ca, f"OP_{name.upper()}") for name in (*SLOW_OF_ONE, *SLOW_OF_TWO)} | {ca.OP_CONSTPOW}


def cost_of(operation: int) -> Cost:
    """Cost of an operation on numbers."""
    return Cost(1, int(operation in _DIVISIONS), int(operation in _SLOW))


def operation_name(operation: int) -> str:
    """What CasADi calls an operation: `erfinv`."""
    return next(word[3:].lower() for word in dir(ca) if word.startswith("OP_") and getattr(ca, word) == operation)


@dataclass(frozen=True)
class CFunction:
    """A function in C."""

    text: str  # its code
    cost: Cost  # of one call, without the functions that it calls
    numbers: int  # variables that it keeps on the stack
    calls: tuple[str, ...] = ()  # names of the functions that it calls, each as often as it is called at most


class Op(ABC):
    """An operation, at one size or at every size."""

    @property
    def called(self) -> Sequence[Any]:
        """The CasADi functions that its C code calls."""
        return ()

    @abstractmethod
    def in_c(self, function: Any) -> CFunction:
        """The C of a CasADi function of it."""


T = TypeVar("T", bound=Op)
OPS: dict[str, Op] = {}
"""Name of a CasADi function, or `<name>_` for all sizes of a matrix operation -> the operation."""

_SIZES = re.compile(r"_\d+(?:x\d+)*$")


def register(name: str, op: T) -> T:
    """Keeps an operation under its name, and returns it."""
    known = OPS.setdefault(name, op)
    assert known == op, f"two operations are named {name}"
    return op


def op_of(name: str) -> Op | None:
    """The operation that a CasADi function of this name does; None if it is none."""
    return OPS.get(name) or OPS.get(_SIZES.sub("_", name))


def sizes_of(name: str) -> tuple[int, ...]:
    """The sizes in the name of a matrix operation's function."""
    return tuple(map(int, name.rpartition("_")[2].split("x")))


def same(one: Any, other: Any) -> bool:
    """Whether two CasADi functions are equal."""
    return hash(one) == hash(other) or one.serialize() == other.serialize()


def template(name: str) -> str:
    """A C file of this package."""
    return (Path(__file__).parent / "c" / name).read_text()


def declaration(file: str, name: str) -> str:
    """C of the declaration of the function `servoctl_<name>`, which a file defines and Python calls."""
    found = re.search(rf"^[a-z ]+ servoctl_{name}\([^)]*\)", template(file), re.MULTILINE)
    assert found is not None, f"{file} has no function servoctl_{name}"
    return f"{found[0]};"


def instance(file: str, macros: Mapping[str, object]) -> str:
    """The C of a file with these macros, which are defined for it alone."""
    defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return defined + template(file) + "".join(f"#undef {name.partition('(')[0]}\n" for name in macros)


def literal(value: float) -> str:
    """A C literal of type double."""
    if value != value:
        return "NAN"
    return f"{'-' if value < 0 else ''}INFINITY" if abs(value) == float("inf") else repr(float(value))


def constants(name: str, values: Array) -> str:
    """A constant array in C, on one line."""
    return f"static const double {name}[] = {{{', '.join(map(literal, values.tolist()))}}};\n"


def definition(function: Any, lines: Sequence[str]) -> str:
    """A CasADi function in C, `f_<name>` of pointers to its inputs, then outputs, with these lines as its body."""
    inputs = [f"const V* restrict x{i}" for i in range(function.n_in())]
    outputs = [f"V* restrict y{i}" for i in range(function.n_out())]
    body = "\n".join(lines)
    return f"static void f_{function.name()}({', '.join(inputs + outputs)}) {{\n{body}\n}}\n"


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


@dataclass(frozen=True, eq=False)
class LookupTable(Op):
    """Rows over t: row k counts from the k-th break on, row 0 before the first break. Equal by content.

    The row depends on t by a search alone, so its derivative is zero, and polynomials of it, whose coefficients the
    rows are, have exact derivatives. CasADi 3.8 returns uninitialised memory for the derivative of a called function
    that it knows to be zero. Therefore the function contains a sine of t that is never added; its derivatives are
    evaluated as zeros.
    """

    breaks: Array  # strictly increasing, shape (k,)
    rows: Array  # shape (k + 1, width)

    def __post_init__(self) -> None:
        for name in ("breaks", "rows"):  # floats also where numpy's constructors make objects, while tracing
            kept = np.array(getattr(self, name), dtype=float, order="C")
            kept.flags.writeable = False
            object.__setattr__(self, name, kept)

    @cached_property
    def name(self) -> str:
        """Name of the compiled function, by content."""
        content = repr(self.rows.shape).encode() + self.breaks.tobytes() + self.rows.tobytes()
        return f"lookup_{hashlib.sha256(content).hexdigest()[:24]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LookupTable) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def at(self, t: Any) -> Array:
        """The rows at times, which are numbers, shape (*t.shape, width)."""
        found: Array = self.rows[np.searchsorted(self.breaks, t, side="right")]
        return found

    def columns(self, t: Any) -> Array:
        """The row at a time, which is a number, an array or a symbol, shape (width, *t.shape)."""
        if is_symbolic(t):
            return from_sx(self.function(t.sx if isinstance(t, Symbol) else t))
        return np.moveaxis(self.at(t), -1, 0)

    @property
    def function(self) -> Any:
        """The CasADi function t -> row."""
        if self.name not in _FUNCTIONS:
            register(self.name, self)
            _FUNCTIONS[self.name] = self._function()
        return _FUNCTIONS[self.name]

    def in_c(self, function: Any) -> CFunction:
        breaks, rows = f"breaks_{self.name}", f"rows_{self.name}"
        count, width = len(self.breaks), self.rows.shape[1]
        text = constants(breaks, self.breaks) + constants(rows, self.rows.ravel())
        names = {"OPERATION": f"f_{self.name}", "BREAKS": breaks, "ROWS": rows, "COUNT": count, "WIDTH": width}
        search = Cost(3 * count.bit_length())  # comparisons of a search by halves, with their choices and sums
        return CFunction(text + instance("lookup.h", names), search, 4)

    def _function(self) -> Any:
        t, infinite = ca.MX.sym("t"), np.inf
        index = ca.low(ca.MX(ca.DM([-infinite, *self.breaks, infinite])), t, {"lookup_mode": "binary"})
        # Every row stands twice, so that the interpolation between 2 k and 2 k + 1 gives row k to the bit.
        twice, places = np.repeat(self.rows, 2, axis=0), np.arange(2.0 * len(self.rows))
        row = ca.interpolant(f"{self.name}_rows", "linear", [places], twice.ravel(), {"lookup_mode": ["exact"]})
        never = ca.if_else(t > infinite, ca.sin(t), 0)
        return ca.Function(self.name, [t], [row(2 * index) + never], {"never_inline": True})


_FUNCTIONS: dict[str, Any] = {}
_DERIVATIVE = re.compile(r"(?:(?:fwd|adj)\d+_|jac_)+(lookup_[0-9a-f]{24})")


def is_lookup_derivative(name: str) -> bool:
    """Whether a function is a derivative, of any order, of a lookup; it is zero."""
    return _DERIVATIVE.fullmatch(name) is not None
