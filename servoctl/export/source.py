"""CasADi's generated code, cut down to static functions, and what it costs."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

FRAME = 96
"""Bytes of a call beside its variables: return address and saved registers."""

POINTER = 8
"""Bytes of a pointer, counted for a 64-bit machine."""

_MATH = (
    "sqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh exp expm1 log log1p log10 pow fabs fmin "
    "fmax floor ceil fmod hypot copysign erf"
)
_FREE = ("OP_CONST", "OP_INPUT", "OP_OUTPUT", "OP_PARAMETER", "OP_CALL")
_SLOW = ("OP_DIV", "OP_INV", "OP_SQRT")
_WAVES = (
    "OP_SIN", "OP_COS", "OP_TAN", "OP_ASIN", "OP_ACOS", "OP_ATAN", "OP_ATAN2", "OP_SINH", "OP_COSH", "OP_TANH",
    "OP_ASINH", "OP_ACOSH", "OP_ATANH", "OP_EXP", "OP_LOG", "OP_POW", "OP_CONSTPOW", "OP_HYPOT", "OP_LOG1P", "OP_EXPM1",
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Operations in the worst case.

    Attributes:
        operations: All: arithmetic, comparisons, choices.
        divisions: Of these, divisions and square roots.
        functions: Of these, sines, exponentials and the like.
    """

    operations: int = 0
    divisions: int = 0
    functions: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.operations + other.operations, self.divisions + other.divisions, self.functions + other.functions
        )


class StaticSource:
    """The C code of a CasADi function, every function of it static.

    Attributes:
        text: The code; `real` is its number.
        entry: Name of the function in it.
        buffers: Lengths of arg, res, iw and w.
    """

    entry = "casadi_f0"

    def __init__(self, function: Any, single: bool) -> None:
        self._function, self._single = function, single
        generator = ca.CodeGenerator("law", {"with_header": False, "main": False, "mex": False, "verbose": False})
        generator.add(function)
        self._bodies: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self.text = self._clean(generator.dump())
        sizes = (function.sz_arg(), function.sz_res(), function.sz_iw(), function.sz_w())
        self.buffers = tuple(max(1, size) for size in sizes)

    def _clean(self, text: str) -> str:
        text = text[text.index("Symbol visibility") :].partition("\n#endif\n")[2]
        text = text[: text.index(f"CASADI_SYMBOL_EXPORT int {self._function.name()}(")]
        text = re.sub(r"/\* Configuration this file.*?\n(?=\n|static|/\*)", "", text, flags=re.DOTALL)
        text = re.sub(r"^CASADI_SYMBOL_EXPORT [^\n]*\}\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"/\* Pre-c99.*?#else\n(.*?)#endif\n", r"\1", text, flags=re.DOTALL)
        text = re.sub(r"^(casadi_real|void|casadi_int) casadi_", r"static \1 casadi_", text, flags=re.MULTILINE)
        text = text.replace(", int mem) {", ") {")
        text = re.sub(r"(if \(casadi_f\d+\([^;]*), 0\)\) return 1;", r"\1)) return 1;", text)
        text = re.sub(
            r"/\* (\w+):\(.*?\*/\n(static int (casadi_f\d+)\(.*?^}\n)",
            self._function_body,
            text,
            flags=re.DOTALL | re.MULTILINE,
        )
        text = _without_unused(text)
        text = text.replace("casadi_real", "real").replace("casadi_int", "int")
        if self._single:
            text = re.sub(rf"(?<![\w.])({'|'.join(_MATH.split())})\(", r"\1f(", text)
            text = re.sub(r"(?<![\w.])\d+\.\d*(?:e[+-]?\d+)?", lambda found: single_literal(float(found[0])), text)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"

    def _function_body(self, found: "re.Match[str]") -> str:
        title, body, name = found.groups()
        self._titles[name], self._bodies[name] = title, body
        head, _, rest = body.partition("{\n")
        unused = [word for word in ("arg", "res", "iw", "w") if not re.search(rf"\b{word}\b", rest)]
        ignored = "".join(f"  (void) {word};\n" for word in unused)
        return f"/* {title} */\n{head}{{\n{ignored}{rest}"

    def _calls(self, name: str) -> list[str]:
        return re.findall(r"\b(casadi_f\d+)\(", self._bodies[name].partition("{\n")[2])

    @cached_property
    def cost(self) -> Cost:
        """Operations in the worst case, called functions included; of a branch the dearer side."""
        known = {function.name(): function for function in [self._function, *self._function.find_functions()]}
        found: dict[str, Cost] = {}

        def cost(name: str) -> Cost:
            if name not in found:
                function, calls = known[self._titles[name]], [cost(other) for other in self._calls(name)]
                if function.class_name() == "Switch":
                    found[name] = max(calls, key=lambda each: each.operations) + Cost(1)
                else:
                    found[name] = sum(calls, _own(function))
            return found[name]

        return cost(self.entry)

    @cached_property
    def stack(self) -> int:
        """Bytes on the stack, about: every variable of the deepest chain of calls, and the buffers."""
        size = 4 if self._single else 8
        found: dict[str, int] = {}

        def need(name: str) -> int:
            if name not in found:
                numbers = len(set(re.findall(r"\b[aw]\d+\b", self._bodies[name])))
                found[name] = FRAME + size * numbers + max((need(other) for other in self._calls(name)), default=0)
            return found[name]

        arg, res, iw, w = self.buffers
        given = sum(self._function.numel_in(i) for i in range(self._function.n_in())) + self._function.numel_out(0)
        buffers: int = FRAME + POINTER * (arg + res) + 4 * iw + size * (w + given)
        return buffers + need(self.entry)


def _own(function: Any) -> Cost:
    """What a function does beside calling others."""
    free, slow, waves = ({getattr(ca, name) for name in names} for names in (_FREE, _SLOW, _WAVES))
    found = Cost()
    scalar = function.class_name() == "SXFunction"
    for k in range(function.n_instructions()):
        kind = function.instruction_id(k)
        if kind not in free:
            size = 1 if scalar else function.instruction_MX(k).nnz()
            found += Cost(size, size * (kind in slow), size * (kind in waves))
    return found


def _without_unused(text: str) -> str:
    """The code without tables and helpers that nothing refers to."""
    table = r"^static const casadi_\w+ (casadi_\w+)\[[^;]*;\n"
    helper = r"^static casadi_real (casadi_\w+)\([^\n]*\{ return [^\n]*\}\n|^static \w+ (casadi_\w+)\(.*?^}\n"
    while True:
        candidates = [*re.finditer(table, text, re.MULTILINE), *re.finditer(helper, text, re.MULTILINE | re.DOTALL)]
        names = ((found, next(filter(None, found.groups()))) for found in candidates)
        unused = [
            found for found, name in names if name != StaticSource.entry and len(re.findall(rf"\b{name}\b", text)) == 1
        ]
        if not unused:
            return text
        text = text.replace(unused[0][0], "")


def single_literal(value: float) -> str:
    """A C literal of type float; what float cannot hold becomes its largest number."""
    largest = float(np.finfo(np.float32).max)
    if abs(value) == float("inf"):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(str(np.float32(min(max(value, -largest), largest)))))
    return f"{text}f"


def double_literal(value: float) -> str:
    """A C literal of type double."""
    if value != value:
        return "NAN"
    if abs(value) == float("inf"):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(float(value))
