"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from servoctl.engine.compiler import LONG
from servoctl.engine.cost import Cost, lookup_cost
from servoctl.engine.decomposition import written_decomposition
from servoctl.engine.lookup import TABLES, LookupTable, is_lookup_derivative
from servoctl.engine.loops import REPEATED, instance, operation_of, template
from servoctl.engine.numpy_call import is_numpy_call
from servoctl.engine.statements import USE_VM, Statements, literal
from servoctl.errors import CompileError
from servoctl.types import Array


def over_numbers(lanes: int) -> str:
    """C of the number V, that holds so many doubles, and of rows of it."""
    rows = ["#if defined(PACKED)\n", template("packs.h"), "#else\n", template("rows.h"), "#endif\n"]
    sine = [instance("sine_near_zero.h", {"T": "V", "OF(name)": "name"}), "#if defined(PACKED)\n"]
    sine += [instance("sine_near_zero.h", {"T": "Pack", "OF(name)": "pack_##name"}), "#endif\n", template("sine.h")]
    return "".join([f"#define LANES {lanes}\n", template("numbers.h"), *rows, *sine])


MANY = 2500  # a function of more statements is marked as long: `c/numbers.h` lets the compiler spend less time on it


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
        if hash(known) != hash(function) and known.serialize() != function.serialize():
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
    named = operation_of(function.name())
    if named is not None and not unrolled:
        kind, sizes = named
        return CFunction(kind.code(function.name(), sizes), kind.cost(*sizes), kind.numbers(*sizes))
    if named is not None and named[0].name == "decompose":
        function = written_decomposition(*named[1])
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
    text = constants(breaks, table.breaks) + constants(rows, table.rows.ravel())
    names = {"OPERATION": f"f_{table.name}", "BREAKS": breaks, "ROWS": rows, "COUNT": count, "WIDTH": width}
    text += instance("lookup.h", names)
    return CFunction(text, lookup_cost(count), 4)


def constants(name: str, values: Array) -> str:
    """A constant array in C, on one line."""
    return f"static const double {name}[] = {{{', '.join(map(literal, values.tolist()))}}};\n"
