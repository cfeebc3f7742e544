"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from servoctl.engine.compiler import LONG
from servoctl.engine.cost import Cost, decomposition_cost, decomposition_numbers, lookup_cost
from servoctl.engine.decomposition import decomposition_function
from servoctl.engine.lookup import TABLES, LookupTable, is_lookup_derivative
from servoctl.engine.loops import REPEATED
from servoctl.engine.numpy_call import is_numpy_call
from servoctl.engine.statements import USE_VM, Statements
from servoctl.errors import CompileError
from servoctl.types import Array

_FOLDER = Path(__file__).parent / "c"


def template(name: str) -> str:
    """A C file of this package."""
    return (_FOLDER / name).read_text()


@dataclass(frozen=True)
class Loops:
    """A matrix operation in loops."""

    file: str  # name of its C file; the function is named by the file's name in capitals
    sizes: tuple[str, ...]  # what the file calls the sizes, in the order of the numbers in the operation's name
    cost: Callable[..., Cost]  # sizes -> operations in the worst case
    numbers: Callable[..., int]  # sizes -> numbers on the stack
    defined: Callable[..., dict[str, object]] = lambda *sizes: {}  # further definitions: name -> formula in sizes


def _cholesky(n: int) -> Cost:
    below = n * (n - 1) // 2
    changed = (n + 1) * n * (n - 1) // 6  # entries that the columns before them change
    return Cost(4 * n + below + 2 * changed + 2 * n + below + 2, 2 * n)


def _triangle(rows: int, n: int) -> Cost:
    return Cost(n + rows * n * n, n)


def _inverse(n: int) -> Cost:
    panels = [(i, first) for i in range(n) for first in range(0, i + 1, 16)]
    return Cost(n + sum(32 * (i - first) + 16 for i, first in panels), n)


def _product(rows: int, n: int, columns: int) -> Cost:
    return Cost(2 * rows * n * columns)


def _part_of_product(rows: int, n: int, columns: int) -> int:
    return rows * (n + 1)


LOOPS = {
    "cholesky": Loops("cholesky.h", ("N",), _cholesky, lambda n: n * n + 2 * n),
    "inverse": Loops("inverse.h", ("N",), _inverse, lambda n: n * (n + 15) // 16 * 16),
    "back": Loops("back.h", ("N",), lambda n: Cost(2 * n + n * (n - 1), n), lambda n: n + 3),
    "lower": Loops("lower.h", ("ROWS", "N"), _triangle, lambda rows, n: rows * n, lambda *sizes: {"FIRST": 0}),
    "lower_from": Loops(
        "lower.h", ("ROWS", "N", "FIRST"), lambda rows, n, first: _triangle(rows, n - first),
        lambda rows, n, first: rows * (n - first),
    ),
    "upper": Loops("upper.h", ("ROWS", "N"), _triangle, lambda rows, n: rows * n),
    "product": Loops(
        "product.h", ("ROWS", "N", "COLUMNS"), _product, _part_of_product, lambda *sizes: {"TRANSPOSED": 0}
    ),
    "product_transposed": Loops(
        "product.h", ("ROWS", "N", "COLUMNS"), _product, _part_of_product, lambda *sizes: {"TRANSPOSED": 1}
    ),
    "project": Loops(
        "project.h", ("K", "N", "ROWS"), lambda k, n, rows: Cost(4 * k * n * rows), lambda k, n, rows: (k + n) * rows
    ),
    "dots": Loops("dots.h", ("COLUMNS", "N"), lambda columns, n: Cost(columns * (2 * n + 3)), lambda columns, n: 4),
    "squares": Loops("squares.h", ("COUNT",), lambda count: Cost(2 * count + 7), lambda count: 8),
    "total": Loops("total.h", ("COUNT",), lambda count: Cost(count + 7), lambda count: 8),
    "largest": Loops("largest.h", ("COUNT",), lambda count: Cost(2 * count + 7), lambda count: 8),
    "longer": Loops("longer.h", ("ROWS", "N"), lambda rows, n: Cost(rows * (3 * n + 3), rows), lambda rows, n: 3),
    "sizes": Loops("sizes.h", ("ROWS", "N"), lambda rows, n: Cost(2 * rows * n), lambda rows, n: 3),
    "divided": Loops("divided.h", ("COUNT",), lambda count: Cost(count + 1, 1), lambda count: 2),
    "decompose": Loops(
        "decompose.h", ("ROWS", "N"), decomposition_cost, decomposition_numbers,
        lambda rows, n: {"K": min(rows, n), "COLUMNS": f"columns_{rows}x{n}", "MASKED": 0},
    ),
    "decompose_masked": Loops(
        "decompose.h", ("ROWS", "N"), decomposition_cost, decomposition_numbers,
        lambda rows, n: {"K": min(rows, n), "COLUMNS": f"columns_masked_{rows}x{n}", "MASKED": 1},
    ),
}  # fmt: skip
"""Kind of operation -> its loops."""


def over_numbers(lanes: int) -> str:
    """C of the number V, that holds so many doubles, and of rows of it."""
    rows = ["#if defined(PACKED)\n", template("packs.h"), "#else\n", template("rows.h"), "#endif\n"]
    near_zero = template("sine_near_zero.h")
    sine = ["#define T V\n#define OF(name) name\n", near_zero]
    sine += ["#if defined(PACKED)\n#define T Pack\n#define OF(name) pack_##name\n", near_zero, "#endif\n"]
    return "".join([f"#define LANES {lanes}\n", template("numbers.h"), *rows, *sine, template("sine.h")])


def loops_of(name: str) -> tuple[Loops, tuple[int, ...]] | None:
    """The loops of the operation that a CasADi function of this name does, and their sizes; None if it is none."""
    found = re.fullmatch(r"([a-z_]+)_([0-9]+(?:x[0-9]+)*)", name)
    if found is None or found[1] not in LOOPS:
        return None
    return LOOPS[found[1]], tuple(map(int, found[2].split("x")))


def definition(name: str, loops: Loops, sizes: tuple[int, ...]) -> str:
    """The C code of a matrix operation as function `f_<name>`."""
    names: dict[str, object] = {loops.file.removesuffix(".h").upper(): f"f_{name}"}
    names |= dict(zip(loops.sizes, sizes, strict=True)) | loops.defined(*sizes)
    return "".join(f"#define {key} {value}\n" for key, value in names.items()) + template(loops.file)


MANY = 2500  # a function of more statements is marked as long: `c/numbers.h` lets the compiler spend less time on it
TABLE = "static const"  # start of a line that is a constant table: it takes the compiler little time for its length
DECOMPOSITION = re.compile(r"decompose_(masked_)?(\d+)x(\d+)")


@dataclass(frozen=True)
class CFunction:
    """A function in C."""

    text: str  # its code
    cost: Cost  # of one call, without the functions that it calls
    numbers: int  # variables that it keeps on the stack
    calls: tuple[str, ...] = ()  # names of the functions that it calls, each as often as it is called at most


def emit(functions: Sequence[Any], leading: Mapping[str, Any] = MappingProxyType({})) -> str:
    """C of CasADi functions and of what they call: static functions `f_<name>` of pointers to inputs, then outputs.

    Args:
        leading: Name of one of them -> another with the same inputs, of whose outputs it has the first: it calls that.

    Raises:
        CompileError: An operation has no C.
    """
    return "\n".join(each.text for each in emitted(functions, leading=leading, fast=True).values())


def emitted(
    functions: Sequence[Any],
    unrolled: bool = False,
    leading: Mapping[str, Any] = MappingProxyType({}),
    fast: bool = False,
) -> Mapping[str, CFunction]:
    """The same, function by function, each behind those that it calls.

    Args:
        unrolled: Whether decompositions are written out, statement by statement; their derivatives have C then.
        leading: As of `emit`.
        fast: Whether long functions are marked, and sine and cosine of an angle are one call.

    Raises:
        CompileError: An operation has no C.
    """
    done: dict[str, CFunction] = {}
    named: dict[str, Any] = {}

    def add(function: Any) -> None:
        known = named.setdefault(function.name(), function)
        if known is not function and not _equal(known, function):
            raise CompileError(f"two functions are named {function.name()}, so C would take one for the other{USE_VM}")
        if function.name() in done:
            return
        whole = leading.get(function.name())
        for called in called_by(function) if whole is None else [whole]:
            add(called)
        made = _function(function, unrolled, fast) if whole is None else _leading(function, whole)
        done[function.name()] = made

    for function in functions:
        add(function)
    return done


def _equal(one: Any, other: Any) -> bool:
    """Whether two CasADi functions are one, or have the same content."""
    return hash(one) == hash(other) or one.serialize() == other.serialize()


def called_by(function: Any) -> Sequence[Any]:
    """The functions that the C code of a function calls."""
    if function.name() in TABLES:
        return []
    if function.name() in REPEATED:
        return [REPEATED[function.name()].step]
    return [called for called in function.find_functions(0) if not is_lookup_derivative(called.name())]


def _function(function: Any, unrolled: bool, fast: bool) -> CFunction:
    if function.name() in TABLES:
        return _lookup(TABLES[function.name()])
    found = None if unrolled else loops_of(function.name())
    if found is not None:
        loops, sizes = found
        return CFunction(definition(function.name(), *found), loops.cost(*sizes), loops.numbers(*sizes))
    if unrolled and (named := DECOMPOSITION.fullmatch(function.name())):
        function = decomposition_function(int(named[2]), int(named[3]), bool(named[1]), written=True)
    if "decompose_" in function.name() and not unrolled:
        raise CompileError(
            f"no C code for the derivative of a rank decomposition, which this law or plant needs{USE_VM}"
        )
    if function.name() in REPEATED:
        return _loop(function)
    if is_numpy_call(function.name()):
        raise CompileError(f"code of the plant or the law runs in NumPy, which has no C{USE_VM}")
    body = Statements(function, sine_with_cosine=fast)
    mark = f"{LONG} " if fast and len(body.lines) > MANY else ""
    return CFunction(mark + _text(function, body.lines), body.cost, body.numbers, tuple(body.calls))


def _leading(function: Any, whole: Any) -> CFunction:
    """A function of the first outputs of another, by calling it."""
    own, sizes = function.n_out(), [whole.numel_out(k) for k in range(whole.n_out())]
    names = [f"x{k}" for k in range(function.n_in())] + [f"y{k}" for k in range(own)]
    rest = [f"rest{k}" for k in range(own, len(sizes))]
    lines = [f"  V {name}[{max(1, size)}];" for name, size in zip(rest, sizes[own:], strict=True)]
    lines.append(f"  f_{whole.name()}({', '.join(names + rest)});")
    return CFunction(_text(function, lines), Cost(), sum(sizes[own:]), (whole.name(),))


def _parameters(function: Any) -> list[str]:
    inputs = [f"const V* restrict x{i}" for i in range(function.n_in())]
    return inputs + [f"V* restrict y{i}" for i in range(function.n_out())]


def _text(function: Any, lines: Sequence[str]) -> str:
    return f"static void f_{function.name()}({', '.join(_parameters(function))}) {{\n" + "\n".join(lines) + "\n}\n"


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


def _lookup(table: LookupTable) -> CFunction:
    """A function that finds the row of a table."""
    breaks, rows = f"breaks_{table.name}", f"rows_{table.name}"
    count, width = len(table.breaks), table.rows.shape[1]
    names = {"LOOKUP": f"f_{table.name}", "BREAKS": breaks, "ROWS": rows, "COUNT": str(count), "WIDTH": str(width)}
    text = constants(breaks, table.breaks) + constants(rows, table.rows.ravel())
    text += "".join(f"#define {key} {value}\n" for key, value in names.items()) + template("lookup.h")
    return CFunction(text, lookup_cost(count), 4)


def constants(name: str, values: Array) -> str:
    """A constant array in C, on one line."""
    numbers = ", ".join("NAN" if x != x else f"{x!r}" for x in values.tolist())
    return f"{TABLE} double {name}[] = {{{numbers}}};\n"
