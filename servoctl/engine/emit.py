"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h` or `c/standalone.h`, and what it costs.

Design: one C variable per instruction, and comparisons stay comparisons until arithmetic asks for 0 or 1, so that the
compiler makes vector selections of them. CasADi writes x*(1/y) back as x/y: a denominator that serves more than once
is inverted once.

Design: decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the work of
lost rank in every case, and take gcc half a minute when they are large.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import casadi as ca

from servoctl.engine.compiler import LONG
from servoctl.engine.decomposition import decompose_function, written_decomposition
from servoctl.engine.numpy_call import is_numpy_call
from servoctl.engine.ops import (
    COMPARE,
    TEXT,
    CFunction,
    Cost,
    Op,
    Operation,
    cost_of,
    definition,
    instance,
    is_lookup_derivative,
    literal,
    op_of,
    operation_name,
    same,
    sizes_of,
    template,
)
from servoctl.errors import CompileError

USE_VM = " (take --engine vm)"  # what to do where there is no C, for somebody who runs a config
TOGETHER = 4  # angles whose sines and cosines one call computes, in the time of one


class Statements:
    """The statements of one function."""

    def __init__(self, function: Any, sine_with_cosine: bool = False) -> None:
        """Writes the statements.

        Args:
            sine_with_cosine: Whether one call, of `c/sine.h`, gives sine and cosine of the same angle.

        Raises:
            CompileError: An operation has no C, or the function is one of matrices.
        """
        if not function.is_a("SXFunction"):
            raise CompileError(f"{function.name()}: no C code for a function of matrices (make it of scalars, ca.SX)")
        self.lines: list[str] = []  # of C
        # cost: of these lines, without the functions that they call
        # numbers: how many variables they declare
        # calls: names of the functions that they call, in order
        self.cost, self.numbers, self.calls = Cost(), 0, list[str]()
        self._function = function
        # operation, inputs and outputs of each instruction; these are mostly places in CasADi's work vector
        self._steps: list[tuple[int, list[int], list[int]]] = [
            (function.instruction_id(i), function.instruction_input(i), function.instruction_output(i))
            for i in range(function.n_instructions())
        ]
        self._sources = self._made_by()  # for each instruction, those that made what it reads
        self._held: dict[int, str] = {}  # place in CasADi's work vector -> variable, or number
        self._comparisons: set[str] = set()
        self._arrays: dict[tuple[str, ...], str] = {}  # entries of an array that is an argument or that a call fills
        for k in range(function.n_in()):
            self._arrays[tuple(f"x{k}[{j}]" for j in range(function.nnz_in(k)))] = f"x{k}"
        self._inverses: dict[str, str] = {}
        self._shared = self._denominators()
        self._angles = self._angles_of_both() if sine_with_cosine else {}
        self._groups, self._both = self._groups_of_angles(), dict[int, tuple[str, str]]()
        read = {inputs[0] for operation, inputs, _ in self._steps if operation == ca.OP_INPUT}
        self.lines += [f"  (void) x{k};" for k in range(function.n_in()) if k not in read]
        results = [[""] * function.nnz_out(k) for k in range(function.n_out())]
        for i, step in enumerate(self._steps):
            self._statement(i, *step, results)
        self.lines += [f"  y{k}[{j}] = {value};" for k, values in enumerate(results) for j, value in enumerate(values)]

    def _made_by(self) -> list[list[int]]:
        made: dict[int, int] = {}
        sources: list[list[int]] = []
        for i, (operation, inputs, outputs) in enumerate(self._steps):
            sources.append([] if operation in (ca.OP_INPUT, ca.OP_CONST) else [made[place] for place in inputs])
            if operation != ca.OP_OUTPUT:
                made |= dict.fromkeys(outputs, i)
        return sources

    @cached_property
    def _expressions(self) -> Any:
        """The instructions once more; those that call a function know it."""
        return self._function.instructions_sx()

    def _denominators(self) -> set[int]:
        """The instructions by whose results more than one is divided."""
        uses = Counter(self._sources[i][-1] for i in range(len(self._steps)) if self._divides(i))
        alone = {i for i in uses if self._steps[i][0] in (ca.OP_CONST, ca.OP_CALL)}
        return {i for i, times in uses.items() if times > 1} - alone

    def _angles_of_both(self) -> dict[int, int]:
        """Instruction that is a sine or a cosine -> that of its angle, for angles of which both are needed."""
        both = (ca.OP_SIN, ca.OP_COS)
        angles = {i: self._sources[i][0] for i, step in enumerate(self._steps) if step[0] in both}
        asked = {(self._steps[i][0], angle) for i, angle in angles.items()}
        return {i: angle for i, angle in angles.items() if all((operation, angle) in asked for operation in both)}

    def _groups_of_angles(self) -> dict[int, list[int]]:
        """Angle -> the angles whose sines are computed with its own; all of them are inputs of the function."""
        inputs = list(dict.fromkeys(angle for angle in self._angles.values() if self._steps[angle][0] == ca.OP_INPUT))
        groups = [inputs[first : first + TOGETHER] for first in range(0, len(inputs), TOGETHER)]
        return {angle: group for group in groups if len(group) > 1 for angle in group}

    def _divides(self, i: int) -> bool:
        return self._steps[i][0] in (ca.OP_DIV, ca.OP_INV)

    def _statement(
        self, i: int, operation: int, inputs: list[int], outputs: list[int], results: list[list[str]]
    ) -> None:
        """Writes one instruction; what it gives as a result of the function goes into `results`."""
        if operation == ca.OP_INPUT:
            self._held[outputs[0]] = f"x{inputs[0]}[{inputs[1]}]"
            if i in self._shared:
                self._set(i, outputs[0], self._held[outputs[0]], Cost())
        elif operation == ca.OP_CONST:
            self._held[outputs[0]] = f"number({literal(float(self._function.instruction_constant(i)))})"
        elif operation == ca.OP_OUTPUT:
            results[outputs[0]][outputs[1]] = self._value(inputs[0])
        elif operation == ca.OP_CALL:
            self._call(i, inputs, outputs)
        elif operation in COMPARE:
            self._compare(i, outputs[0], COMPARE[operation].format(*map(self._value, inputs)))
        elif operation in (ca.OP_AND, ca.OP_OR):
            sign = " & " if operation == ca.OP_AND else " | "
            self._compare(i, outputs[0], sign.join(map(self._comparison, inputs)))
        elif operation == ca.OP_NOT:
            self._compare(i, outputs[0], f"invert({self._comparison(inputs[0])})")
        elif operation == ca.OP_IF_ELSE_ZERO:
            self._set(i, outputs[0], f"keep({self._comparison(inputs[0])}, {self._value(inputs[1])})", Cost(1))
        elif i in self._angles:
            self._sine_or_cosine(i, operation, inputs[0], outputs[0])
        elif operation in TEXT:
            self._arithmetic(i, operation, inputs, outputs[0])
        else:
            raise CompileError(
                f"{self._function.name()}: no C code for the operation {operation_name(operation)}{USE_VM}"
            )

    def _arithmetic(self, i: int, operation: int, inputs: list[int], place: int) -> None:
        inverse = self._inverses.get(self._held[inputs[-1]]) if operation in (ca.OP_DIV, ca.OP_INV) else None
        if inverse is not None and operation == ca.OP_INV:
            self._set(i, place, inverse, Cost())
        elif inverse is not None:
            self._set(i, place, f"{self._value(inputs[0])} * {inverse}", Cost(1))
        else:
            self._set(i, place, TEXT[operation].format(*map(self._value, inputs)), cost_of(operation))

    def _sine_or_cosine(self, i: int, operation: int, angle: int, place: int) -> None:
        """The sine or the cosine of an angle; the first of them that is asked for computes both."""
        own = self._angles[i]
        if own in self._groups and own not in self._both:
            self._sines_and_cosines(i, self._groups[own])
        if own not in self._both:
            both, text = f"d{i}_0", self._value(angle)
            self._declare(f"V {both}[2];", Cost(2, 0, 2), 2)
            self.lines.append(f"  v_sine_cosine({text}, {both});")
            self._both[own] = f"{both}[0]", f"{both}[1]"
        self._held[place] = self._both[own][int(operation == ca.OP_COS)]

    def _sines_and_cosines(self, i: int, group: Sequence[int]) -> None:
        """Sines and cosines of up to `TOGETHER` angles that are inputs, in one call."""
        given, both = f"c{i}_0", f"d{i}_0"
        texts = ["x{}[{}]".format(*self._steps[angle][1][:2]) for angle in group]
        texts += texts[-1:] * (TOGETHER - len(group))
        self._declare(f"const V {given}[] = {{{', '.join(texts)}}};", Cost(), TOGETHER)
        self._declare(f"V {both}[{2 * TOGETHER}];", Cost(2, 0, 2) * TOGETHER, 2 * TOGETHER)
        self.lines.append(f"  v_sines_cosines({given}, {both});")
        self._both |= {angle: (f"{both}[{k}]", f"{both}[{k + TOGETHER}]") for k, angle in enumerate(group)}

    def _set(self, i: int, place: int, text: str, cost: Cost) -> None:
        self._held[place] = f"a{i}"
        self._declare(f"const V a{i} = {text};", cost)
        if i in self._shared:
            self._inverses[f"a{i}"] = f"b{i}"
            self._declare(f"const V b{i} = number(1.0) / a{i};", Cost(1, 1))

    def _compare(self, i: int, place: int, text: str) -> None:
        self._held[place] = f"a{i}"
        self._comparisons.add(f"a{i}")
        self._declare(f"const M a{i} = {text};", Cost(1))

    def _declare(self, line: str, cost: Cost, count: int = 1) -> None:
        self.lines.append(f"  {line}")
        self.cost += cost
        self.numbers += count

    def _value(self, place: int) -> str:
        held = self._held[place]
        if held not in self._comparisons:
            return held
        self.cost += Cost(1)
        return f"keep({held}, number(1.0))"

    def _comparison(self, place: int) -> str:
        held = self._held[place]
        if held in self._comparisons:
            return held
        self.cost += Cost(1)
        return f"({held} != number(0.0))"

    def _call(self, i: int, inputs: list[int], outputs: list[int]) -> None:
        """Arrays c of the inputs and d of the outputs, and the call; an array that another call fills is no copy."""
        called = self._expressions[i].which_function()
        if is_lookup_derivative(called.name()):
            self._held |= {place: "number(0.0)" for place in outputs if place >= 0}
            return
        names, position = [], 0
        for k in range(called.n_in()):
            values = [self._value(place) for place in inputs[position : position + called.nnz_in(k)]]
            position += len(values)
            whole = self._arrays.get(tuple(values))
            if whole is not None:
                names.append(whole)
                continue
            names.append(f"c{i}_{k}")
            self._declare(f"const V {names[-1]}[] = {{{', '.join(values) or 'number(0.0)'}}};", Cost(), len(values))
            self._arrays[tuple(values)] = names[-1]
        position = 0
        for k in range(called.n_out()):
            size = called.nnz_out(k)
            names.append(f"d{i}_{k}")
            self._declare(f"V d{i}_{k}[{max(1, size)}];", Cost(), size)
            for j, place in enumerate(outputs[position : position + size]):
                if place >= 0:
                    self._held[place] = f"d{i}_{k}[{j}]"
            self._arrays[tuple(f"d{i}_{k}[{j}]" for j in range(size))] = f"d{i}_{k}"
            position += size
        self.calls.append(called.name())
        self.lines.append(f"  f_{called.name()}({', '.join(names)});")


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
