"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.engine.compiler import LONG
from servoctl.engine.cost import Cost, decomposition_cost, decomposition_numbers, lookup_cost
from servoctl.engine.lookup import TABLES, LookupTable, is_lookup_derivative
from servoctl.engine.mapped import MAPPED
from servoctl.engine.repeat import REPEATED
from servoctl.engine.statements import LARGEST_FLOAT, USE_VM, Statements
from servoctl.errors import CompileError
from servoctl.types import Array

_FOLDER = Path(__file__).parent / "c"

TABLE = "static const"
"""Start of a line that is a constant table: it takes the compiler little time for its length."""

MANY = 2000
"""A function of more statements is marked as long, see `compiler.LONG`."""


def template(name: str) -> str:
    """A C file of this package."""
    return (_FOLDER / name).read_text()


@dataclass(frozen=True)
class CFunction:
    """A function in C.

    Attributes:
        text: Its code.
        cost: Of one call, without the functions that it calls.
        numbers: Variables that it keeps on the stack.
        calls: Names of the functions that it calls, each as often as it is called at most.
        statements: Number of its statements; 0 for loops.
    """

    text: str
    cost: Cost
    numbers: int
    calls: tuple[str, ...] = ()
    statements: int = 0


def emit(functions: Sequence[Any]) -> str:
    """C of CasADi functions and of what they call: static functions `f_<name>` of pointers to inputs, then outputs.

    Raises:
        CompileError: An operation has no C.
    """
    functions_in_c = emitted(functions).values()
    return "\n".join(f"{LONG} {each.text}" if each.statements > MANY else each.text for each in functions_in_c)


def emitted(functions: Sequence[Any], single: bool = False, unrolled: bool = False) -> Mapping[str, CFunction]:
    """The same, function by function, each behind those that it calls.

    Args:
        functions: CasADi functions.
        single: Whether V is a float.
        unrolled: Whether decompositions are written out, statement by statement; their derivatives have C then.

    Raises:
        CompileError: An operation has no C.
    """
    done: dict[str, CFunction] = {}

    def add(function: Any) -> None:
        if function.name() in done:
            return
        for called in _called(function):
            add(called)
        done[function.name()] = _function(function, single, unrolled)

    for function in functions:
        add(function)
    return done


def _called(function: Any) -> Sequence[Any]:
    """The functions that the C code of a function calls."""
    if function.name() in TABLES:
        return []
    if function.name() in REPEATED:
        return [REPEATED[function.name()].step]
    if function.name() in MAPPED:
        return [MAPPED[function.name()].one]
    return [called for called in function.find_functions(0) if not is_lookup_derivative(called.name())]


def _function(function: Any, single: bool, unrolled: bool) -> CFunction:
    if function.name() in TABLES:
        return _lookup(TABLES[function.name()], single)
    if "decompose_" in function.name() and not unrolled:
        return _decomposition(function)
    if function.name() in REPEATED:
        return _loop(function)
    if function.name() in MAPPED:
        return _mapped(function)
    body = Statements(function, single)
    return CFunction(_text(function, body.lines), body.cost, body.numbers, tuple(body.calls), len(body.lines))


def _text(function: Any, lines: Sequence[str]) -> str:
    inputs = [f"const V* restrict x{i}" for i in range(function.n_in())]
    outputs = [f"V* restrict y{i}" for i in range(function.n_out())]
    return f"static void f_{function.name()}({', '.join(inputs + outputs)}) {{\n" + "\n".join(lines) + "\n}\n"


def _decomposition(function: Any) -> CFunction:
    size = re.fullmatch(r"decompose_(\d+)x(\d+)", function.name())
    if size is None:
        raise CompileError(
            f"no C code for the derivative of a rank decomposition, which this law or plant needs{USE_VM}"
        )
    rows, n = int(size[1]), int(size[2])
    names = {"DECOMPOSE": f"f_{function.name()}", "COLUMNS": f"columns_{rows}x{n}"}
    names |= {"ROWS": str(rows), "N": str(n), "K": str(min(rows, n))}
    text = "".join(f"#define {key} {value}\n" for key, value in names.items()) + template("decompose.h")
    return CFunction(text, decomposition_cost(rows, n), decomposition_numbers(rows, n))


def _loop(function: Any) -> CFunction:
    """A function that repeats another, in each lane until that is done."""
    repeated = REPEATED[function.name()]
    size, done, step = function.nnz_in(0), repeated.done, repeated.step.name()
    rest = ", ".join(f"x{i}" for i in range(1, function.n_in()))
    lines = [
        f"  for (int i = 0; i < {size}; ++i) y0[i] = x0[i];",
        f"  for (int k = 0; k < {repeated.most}; ++k) {{",
        f"    V after[{size}];",
        f"    M open = y0[{done}] == number(0.0);",
        "    if (!any(open)) break;",
        f"    f_{step}(y0, {rest}, after);",
        f"    for (int i = 0; i < {size}; ++i) y0[i] = select(open, after[i], y0[i]);",
        "  }",
    ]
    choices = Cost(repeated.most * (size + 1))
    return CFunction(_text(function, lines), choices, size + 1, repeated.most * (step,))


def _mapped(function: Any) -> CFunction:
    """A function that evaluates another for each of many like things."""
    one, count = MAPPED[function.name()].one, MAPPED[function.name()].count
    own, results = one.nnz_in(1), one.nnz_out(0)
    lines = [f"  for (int k = 0; k < {count}; ++k) f_{one.name()}(x0, x1 + {own} * k, y0 + {results} * k);"]
    return CFunction(_text(function, lines), Cost(), 1, count * (one.name(),))


def _lookup(table: LookupTable, single: bool) -> CFunction:
    """A function that finds the row of a table."""
    breaks, rows = f"breaks_{table.name}", f"rows_{table.name}"
    count, width = len(table.breaks), table.rows.shape[1]
    names = {"LOOKUP": f"f_{table.name}", "BREAKS": breaks, "ROWS": rows, "COUNT": str(count), "WIDTH": str(width)}
    text = constants(breaks, table.breaks, single) + constants(rows, table.rows.ravel(), single)
    text += "".join(f"#define {key} {value}\n" for key, value in names.items()) + template("lookup.h")
    return CFunction(text, lookup_cost(count), 4)


def constants(name: str, values: Array, single: bool) -> str:
    """A constant array in C, on one line."""
    limited = np.clip(values, -LARGEST_FLOAT, LARGEST_FLOAT) if single else values
    numbers = ", ".join("NAN" if x != x else f"{x!r}{'f' * single}" for x in limited.tolist())
    return f"{TABLE} {'float' if single else 'double'} {name}[] = {{{numbers}}};\n"
