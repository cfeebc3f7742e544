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

from servoctl.engine.cost import Cost
from servoctl.types import Array


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
