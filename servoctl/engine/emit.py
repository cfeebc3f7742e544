"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from servoctl.engine.compiler import LONG
from servoctl.engine.decomposition import decompose_function, written_decomposition
from servoctl.engine.lookup import is_lookup_derivative
from servoctl.engine.loops import Operation
from servoctl.engine.numpy_call import is_numpy_call
from servoctl.engine.ops import CFunction, Cost, Op, definition, instance, op_of, same, sizes_of, template
from servoctl.engine.statements import USE_VM, Statements
from servoctl.errors import CompileError


def over_numbers(lanes: int) -> str:
    """C of the number V, that holds so many doubles, and of rows of it."""
    rows = ["#if defined(PACKED)\n", template("packs.h"), "#else\n", template("rows.h"), "#endif\n"]
    sine = [instance("sine_near_zero.h", {"T": "V", "OF(name)": "name"}), "#if defined(PACKED)\n"]
    sine += [instance("sine_near_zero.h", {"T": "Pack", "OF(name)": "pack_##name"}), "#endif\n", template("sine.h")]
    return "".join([f"#define LANES {lanes}\n", template("libc.h"), template("numbers.h"), *rows, *sine])


MANY = 2500  # a function of more statements is marked as long: `c/numbers.h` lets the compiler spend less time on it


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
        if not same(known, function):
            raise CompileError(f"two functions are named {function.name()}, so C would take one for the other{USE_VM}")
        if function.name() in done:
            return
        whole = leading.get(function.name())
        for called in _called_by(function, unrolled) if whole is None else [whole]:
            add(called)
        made = _function(function, unrolled, fast) if whole is None else _leading(function, whole)
        done[function.name()] = made

    for function in functions:
        add(function)
    return done


def _op(function: Any, unrolled: bool) -> Op | None:
    """The operation that a function does; matrix operations are none if they are written out."""
    op = op_of(function.name())
    return None if unrolled and isinstance(op, Operation) else op


def _called_by(function: Any, unrolled: bool) -> Sequence[Any]:
    """The functions that the C code of a function calls."""
    op = _op(function, unrolled)
    if op is not None:
        return op.called
    return [called for called in function.find_functions(0) if not is_lookup_derivative(called.name())]


def _function(function: Any, unrolled: bool, fast: bool) -> CFunction:
    op = _op(function, unrolled)
    if op is not None:
        return op.in_c(function)
    if op_of(function.name()) is decompose_function:
        function = written_decomposition(*sizes_of(function.name()))
    if "decompose_" in function.name() and not unrolled:
        raise CompileError(
            f"no C code for the derivative of a rank decomposition, which this law or plant needs{USE_VM}"
        )
    if is_numpy_call(function.name()):
        raise CompileError(f"code of the plant or the law runs in NumPy, which has no C{USE_VM}")
    body = Statements(function, sine_with_cosine=fast)
    mark = f"{LONG} " if fast and len(body.lines) > MANY else ""
    return CFunction(mark + definition(function, body.lines), body.cost, body.numbers, tuple(body.calls))


def _leading(function: Any, whole: Any) -> CFunction:
    """A function of the first outputs of another, by calling it."""
    own, sizes = function.n_out(), [whole.numel_out(k) for k in range(whole.n_out())]
    names = [f"x{k}" for k in range(function.n_in())] + [f"y{k}" for k in range(own)]
    rest = [f"rest{k}" for k in range(own, len(sizes))]
    lines = [f"  V {name}[{max(1, size)}];" for name, size in zip(rest, sizes[own:], strict=True)]
    lines.append(f"  f_{whole.name()}({', '.join(names + rest)});")
    return CFunction(definition(function, lines), Cost(), sum(sizes[own:]), (whole.name(),))
