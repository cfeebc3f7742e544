"""Operations: CasADi functions that are called, never inlined, and that C has in a form of its own.

Design: one registry has them all. The name of such a function says which operation it is, and its sizes. That is all
that the C code needs, also of a function from the cache, so equal names must mean equal functions.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import casadi as ca

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
