"""CasADi functions of scalars -> C over the number `V` of `c/numbers.h`, a double or several side by side.

Design: one C variable per instruction, and comparisons stay comparisons until arithmetic asks for 0 or 1, so that the
compiler makes vector selections of them. CasADi writes x*(1/y) back as x/y: a denominator that serves more than once
is inverted once. Decompositions are loops: those of CasADi, written out, choose among all rows at every pivot, do the
work of lost rank in every case, and take gcc half a minute when they are large.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import casadi as ca

from servoctl.engine.repeat import REPEATED
from servoctl.errors import CompileError

_FOLDER = Path(__file__).parent / "c"

_UNARY = {
    ca.OP_NEG: "-{0}",
    ca.OP_SQ: "{0} * {0}",
    ca.OP_TWICE: "2.0 * {0}",
    ca.OP_INV: "1.0 / {0}",
    ca.OP_ASSIGN: "{0}",
}
_BINARY = {
    ca.OP_ADD: "{0} + {1}",
    ca.OP_SUB: "{0} - {1}",
    ca.OP_MUL: "{0} * {1}",
    ca.OP_DIV: "{0} / {1}",
    ca.OP_CONSTPOW: "v_pow({0}, {1})",
}
_FUNCTIONS_OF_ONE = (
    "sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp log expm1 log1p floor ceil fabs sign erf"
)
_UNARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}})" for name in _FUNCTIONS_OF_ONE.split()}
_FUNCTIONS_OF_TWO = "atan2 hypot pow fmod copysign fmin fmax"
_BINARY |= {getattr(ca, f"OP_{name.upper()}"): f"v_{name}({{0}}, {{1}})" for name in _FUNCTIONS_OF_TWO.split()}
_COMPARE = {ca.OP_LT: "{0} < {1}", ca.OP_LE: "{0} <= {1}", ca.OP_EQ: "{0} == {1}", ca.OP_NE: "{0} != {1}"}


def template(name: str) -> str:
    """A C file of this package."""
    return (_FOLDER / name).read_text()


def emit(functions: list[Any]) -> str:
    """C of CasADi functions and of what they call: static functions `f_<name>` of pointers to inputs, then outputs.

    Raises:
        CompileError: An operation has no C.
    """
    done: dict[str, str] = {}

    def add(function: Any) -> None:
        if function.name() in done:
            return
        inner = [REPEATED[function.name()].step] if function.name() in REPEATED else function.find_functions(0)
        for called in inner:
            add(called)
        done[function.name()] = _text(function)

    for function in functions:
        add(function)
    return "\n".join(done.values())


def _text(function: Any) -> str:
    size = re.fullmatch(r"decompose_(\d+)x(\d+)", function.name())
    if size:
        rows, n = int(size[1]), int(size[2])
        named = {"DECOMPOSE": f"f_{function.name()}", "COLUMNS": f"columns_{rows}x{n}"}
        named |= {"ROWS": str(rows), "N": str(n), "K": str(min(rows, n))}
        return "".join(f"#define {key} {value}\n" for key, value in named.items()) + template("decompose.h")
    if "decompose_" in function.name():
        raise CompileError(
            "no C code for the derivative of a rank decomposition, which this law or plant needs (take --engine vm)"
        )
    given = [f"const V* restrict x{i}" for i in range(function.n_in())]
    taken = [f"V* restrict y{i}" for i in range(function.n_out())]
    lines = _loop(function) if function.name() in REPEATED else _Body(function).lines
    return f"static void f_{function.name()}({', '.join(given + taken)}) {{\n" + "\n".join(lines) + "\n}\n"


def _loop(function: Any) -> list[str]:
    """The statements of a function that repeats another, in each lane until that is done."""
    repeated = REPEATED[function.name()]
    size, done = function.nnz_in(0), repeated.done
    given = ", ".join(f"x{i}" for i in range(1, function.n_in()))
    return [
        f"  for (int i = 0; i < {size}; ++i) y0[i] = x0[i];",
        f"  for (int k = 0; k < {repeated.most}; ++k) {{",
        f"    V after[{size}];",
        f"    M open = y0[{done}] == 0.0;",
        "    if (!any(open)) break;",
        f"    f_{repeated.step.name()}(y0, {given}, after);",
        f"    for (int i = 0; i < {size}; ++i) y0[i] = select(open, after[i], y0[i]);",
        "  }",
    ]


def _name_of(operation: int) -> str:
    """What CasADi calls an operation: `erfinv`."""
    return next(word[3:].lower() for word in dir(ca) if word.startswith("OP_") and getattr(ca, word) == operation)


class _Body:
    """The statements of one function."""

    def __init__(self, function: Any) -> None:
        if not function.is_a("SXFunction"):
            raise CompileError(f"{function.name()}: no C code for a function of matrices (make it of scalars, ca.SX)")
        self.lines: list[str] = []
        self._function = function
        self._expressions: Any = None
        self._held: dict[int, str] = {}  # place in CasADi's work vector -> variable
        self._comparisons: set[str] = set()
        self._inverses: dict[str, str] = {}
        count = function.n_instructions()
        self._steps = [
            (function.instruction_id(i), function.instruction_input(i), function.instruction_output(i))
            for i in range(count)
        ]
        self._shared = self._denominators()
        for i, step in enumerate(self._steps):
            self._statement(i, *step)

    def _denominators(self) -> set[int]:
        """The instructions by whose results more than one is divided."""
        made: dict[int, int] = {}
        uses: Counter[int] = Counter()
        for i, (operation, given, taken) in enumerate(self._steps):
            if operation in (ca.OP_DIV, ca.OP_INV):
                uses[made[given[-1] if operation == ca.OP_DIV else given[0]]] += 1
            if operation != ca.OP_OUTPUT:
                made |= dict.fromkeys(taken, i)
        alone = {i for i in uses if self._steps[i][0] in (ca.OP_CONST, ca.OP_CALL)}
        return {i for i, times in uses.items() if times > 1} - alone

    def _statement(self, i: int, operation: int, given: list[int], taken: list[int]) -> None:
        function = self._function
        if operation == ca.OP_INPUT:
            self._set(i, taken[0], f"x{given[0]}[{given[1]}]")
        elif operation == ca.OP_CONST:
            self._held[taken[0]] = _constant(function.instruction_constant(i))
        elif operation == ca.OP_OUTPUT:
            self.lines.append(f"  y{taken[0]}[{taken[1]}] = {self._value(given[0])};")
        elif operation == ca.OP_CALL:
            self._call(i, given, taken)
        elif operation in _COMPARE:
            self._compare(i, taken[0], _COMPARE[operation].format(*map(self._value, given)))
        elif operation in (ca.OP_AND, ca.OP_OR):
            sign = " & " if operation == ca.OP_AND else " | "
            self._compare(i, taken[0], sign.join(map(self._comparison, given)))
        elif operation == ca.OP_NOT:
            self._compare(i, taken[0], f"invert({self._comparison(given[0])})")
        elif operation == ca.OP_IF_ELSE_ZERO:
            self._set(i, taken[0], f"keep({self._comparison(given[0])}, {self._value(given[1])})")
        elif operation == ca.OP_DIV and self._value(given[1]) in self._inverses:
            self._set(i, taken[0], f"{self._value(given[0])} * {self._inverses[self._value(given[1])]}")
        elif operation == ca.OP_INV and self._value(given[0]) in self._inverses:
            self._set(i, taken[0], self._inverses[self._value(given[0])])
        elif operation in _UNARY:
            self._set(i, taken[0], _UNARY[operation].format(self._value(given[0])))
        elif operation in _BINARY:
            self._set(i, taken[0], _BINARY[operation].format(*map(self._value, given)))
        else:
            raise CompileError(
                f"{function.name()}: no C code for the operation {_name_of(operation)} (take --engine vm)"
            )

    def _set(self, i: int, place: int, text: str) -> None:
        self._held[place] = f"a{i}"
        self.lines.append(f"  const V a{i} = {text};")
        if i in self._shared:
            self._inverses[f"a{i}"] = f"b{i}"
            self.lines.append(f"  const V b{i} = 1.0 / a{i};")

    def _compare(self, i: int, place: int, text: str) -> None:
        self._held[place] = f"a{i}"
        self._comparisons.add(f"a{i}")
        self.lines.append(f"  const M a{i} = {text};")

    def _value(self, place: int) -> str:
        held = self._held[place]
        return f"keep({held}, number(1.0))" if held in self._comparisons else held

    def _comparison(self, place: int) -> str:
        held = self._held[place]
        return held if held in self._comparisons else f"({held} != 0.0)"

    def _call(self, i: int, given: list[int], taken: list[int]) -> None:
        if self._expressions is None:
            self._expressions = self._function.instructions_sx()
        called = self._expressions[i].which_function()
        names, position = [], 0
        for k in range(called.n_in()):
            own = given[position : position + called.nnz_in(k)]
            position += len(own)
            names.append(f"c{i}_{k}")
            self.lines.append(f"  const V c{i}_{k}[] = {{{', '.join(map(self._value, own))}}};")
        position = 0
        for k in range(called.n_out()):
            names.append(f"d{i}_{k}")
            self.lines.append(f"  V d{i}_{k}[{called.nnz_out(k)}];")
            for j, place in enumerate(taken[position : position + called.nnz_out(k)]):
                if place >= 0:
                    self._held[place] = f"d{i}_{k}[{j}]"
            position += called.nnz_out(k)
        self.lines.append(f"  f_{called.name()}({', '.join(names)});")


def _constant(value: float) -> str:
    if value != value:
        return "number(NAN)"
    return f"number({'-' if value < 0 else ''}INFINITY)" if abs(value) == float("inf") else f"number({value!r})"
