"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from servoctl.engine.cost import Cost, lookup_cost
from servoctl.engine.lookup import TABLES, LookupTable, is_lookup_derivative
from servoctl.engine.mapped import MAPPED
from servoctl.engine.pairwise import PAIRS, derivative_of, derived_pair
from servoctl.engine.pieces import MANY, in_pieces
from servoctl.engine.recursions import RECURSIONS, ROOT
from servoctl.engine.repeat import REPEATED
from servoctl.engine.statements import LARGEST_FLOAT, USE_VM, Statements
from servoctl.engine.templates import definition, loops_of, template
from servoctl.errors import CompileError
from servoctl.types import Array

TABLE = "static const"
"""Start of a line that is a constant table: it takes the compiler little time for its length."""


@dataclass(frozen=True)
class CFunction:
    """A function in C.

    Attributes:
        text: Its code.
        cost: Of one call, without the functions that it calls.
        numbers: Variables that it keeps on the stack.
        calls: Names of the functions that it calls, each as often as it is called at most.
    """

    text: str
    cost: Cost
    numbers: int
    calls: tuple[str, ...] = ()


def emit(functions: Sequence[Any], leading: Mapping[str, Any] = MappingProxyType({})) -> str:
    """C of CasADi functions and of what they call: static functions `f_<name>` of pointers to inputs, then outputs.

    Args:
        functions: The functions.
        leading: Name of one of them -> another with the same inputs, of whose outputs it has the first: it calls that.

    Raises:
        CompileError: An operation has no C.
    """
    return "\n".join(each.text for each in emitted(functions, leading=leading, split=True).values())


def emitted(
    functions: Sequence[Any],
    single: bool = False,
    unrolled: bool = False,
    leading: Mapping[str, Any] = MappingProxyType({}),
    split: bool = False,
) -> Mapping[str, CFunction]:
    """The same, function by function, each behind those that it calls.

    Args:
        functions: CasADi functions.
        single: Whether V is a float.
        unrolled: Whether decompositions are written out, statement by statement; their derivatives have C then.
        leading: As of `emit`.
        split: Whether long functions are written in pieces, and sine and cosine of an angle in one call.

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
        made = _function(function, single, unrolled, split) if whole is None else _leading(function, whole)
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
    if function.name() in MAPPED:
        return [MAPPED[function.name()].one]
    if function.name() in RECURSIONS:
        return [RECURSIONS[function.name()].one]
    if _sums_pairs(function.name()):
        return [_pair(function.name())]
    return [called for called in function.find_functions(0) if not is_lookup_derivative(called.name())]


def _function(function: Any, single: bool, unrolled: bool, split: bool) -> CFunction:
    if function.name() in TABLES:
        return _lookup(TABLES[function.name()], single)
    found = None if unrolled else loops_of(function.name())
    if found is not None:
        loops, sizes = found
        return CFunction(definition(function.name(), *found), loops.cost(*sizes), loops.numbers(*sizes))
    if "decompose_" in function.name() and not unrolled:
        raise CompileError(
            f"no C code for the derivative of a rank decomposition, which this law or plant needs{USE_VM}"
        )
    if function.name() in REPEATED:
        return _loop(function)
    if function.name() in MAPPED:
        return _mapped(function)
    if function.name() in RECURSIONS:
        return _recursion(function)
    if _sums_pairs(function.name()):
        return _pairs(function)
    body = Statements(function, single, sine_with_cosine=split)
    if split and len(body.lines) > MANY:
        text = in_pieces(f"f_{function.name()}", _parameters(function), body.lines, body.variables)
    else:
        text = _text(function, body.lines)
    return CFunction(text, body.cost, body.numbers, tuple(body.calls))


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


def _mapped(function: Any) -> CFunction:
    """A function that evaluates another for each of many like things."""
    mapped = MAPPED[function.name()]
    one, count, size = mapped.one, mapped.count, mapped.one.nnz_out(0)
    own = "".join(f"x{i} + {one.nnz_in(i)} * k, " for i in range(mapped.first, one.n_in()))
    if not mapped.folded:
        lines = [f"  for (int k = 0; k < {count}; ++k) f_{one.name()}(x0, {own}y0 + {size} * k);"]
        return CFunction(_text(function, lines), Cost(), 1, count * (one.name(),))
    lines = [
        f"  for (int i = 0; i < {size}; ++i) y0[i] = x0[i];",
        f"  for (int k = 0; k < {count}; ++k) {{",
        f"    V after[{size}];",
        f"    f_{one.name()}(y0, x1, {own}after);",
        f"    for (int i = 0; i < {size}; ++i) y0[i] = after[i];",
        "  }",
    ]
    return CFunction(_text(function, lines), Cost(), size + 1, count * (one.name(),))


def _recursion(function: Any) -> CFunction:
    """A function that goes along a tree."""
    recursion = RECURSIONS[function.name()]
    name, parents, count = recursion.one.name(), recursion.parents, len(recursion.parents)
    k, one = recursion.one.numel_in(0), recursion.one
    own = "".join(f"x{i} + {one.numel_in(i)} * i, " for i in range(2, one.n_in()))
    chain = parents == tuple(range(ROOT, count - 1))
    parent = "i - 1" if chain else "parent[i]"
    lines = [] if chain else [f"  static const int parent[] = {{{', '.join(map(str, parents))}}};"]
    if recursion.inwards:
        lines += [
            f"  V part[{k}];",
            f"  for (int i = 0; i < {k * count}; ++i) y0[i] = x0[i];",
            f"  for (int i = {count - 1}; i >= 0; --i) {{",
            f"    if ({parent} < 0) continue;",
            f"    f_{name}(y0 + {k} * i, x1, {own}part);",
            f"    for (int m = 0; m < {k}; ++m) y0[{k} * ({parent}) + m] += part[m];",
            "  }",
        ]
    else:
        at = f"{parent} < 0 ? x0 : y0 + {k} * ({parent})"
        lines.append(f"  for (int i = 0; i < {count}; ++i) f_{name}({at}, x1, {own}y0 + {k} * i);")
    return CFunction(_text(function, lines), Cost(k * count), 2 * k, count * (name,))


def in_loops(function: Any) -> bool:
    """Whether the C code of a function is a loop over another, or over a table."""
    name = function.name()
    return name in TABLES or name in REPEATED or name in MAPPED or name in RECURSIONS or _sums_pairs(name)


def _sums_pairs(name: str) -> bool:
    return name in PAIRS or derivative_of(name) is not None


def _pair(name: str) -> Any:
    """The function of one pair in a sum over pairs, or in its derivative."""
    base = derivative_of(name)
    return PAIRS[name].one if base is None else derived_pair(PAIRS[base])


def _pairs(function: Any) -> CFunction:
    """A function that sums another over all pairs of bodies."""
    name, base = function.name(), derivative_of(function.name())
    pairs, one = PAIRS[base or name], _pair(function.name())
    # inputs: bodies and shared; of a derivative: bodies, shared, the result (unused), rates of both
    arrays, shared = (("x0",), ("x1",)) if base is None else (("x0", "x3"), ("x1", "x4"))
    N, w, k = pairs.bodies, pairs.one.nnz_in(0), pairs.one.nnz_out(0)

    def call(i: str, j: str, into: str) -> str:
        bodies = [f"{array} + {w} * {at}" for array in arrays for at in (i, j)]
        return f"f_{one.name()}({', '.join([*bodies, *shared, into])});"

    back = f"for (int m = 0; m < {k}; ++m) {{ sum[m] += c[m]; y0[{k} * j + m] -= c[m]; }}"
    if not pairs.opposite:
        back = f"{call('j', 'i', 'd')} for (int m = 0; m < {k}; ++m) {{ sum[m] += c[m]; y0[{k} * j + m] += d[m]; }}"
    lines = [
        *(["  (void) x2;"] if base else []),
        f"  for (int i = 0; i < {N * k}; ++i) y0[i] = number(0.0);",
        f"  for (int i = 0; i < {N}; ++i) {{",
        f"    V sum[{max(k, 1)}] = {{number(0.0)}};",
        f"    for (int m = 0; m < {k}; ++m) sum[m] = number(0.0);",
        f"    for (int j = i + 1; j < {N}; ++j) {{",
        f"      V c[{max(k, 1)}]{'' if pairs.opposite else f', d[{max(k, 1)}]'}; {call('i', 'j', 'c')}",
        f"      {back}",
        "    }",
        f"    for (int m = 0; m < {k}; ++m) y0[{k} * i + m] += sum[m];",
        "  }",
    ]
    calls = N * (N - 1) // (2 if pairs.opposite else 1)
    return CFunction(_text(function, lines), Cost(2 * k) * calls, 3 * k, calls * (one.name(),))


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
