"""Time of one arithmetic operation on this machine, from small loops in C, and the lower bound for a law.

Design: the loops keep twelve independent chains going, in scalar code from the same compiler with the same flags as the
law, so the figures are throughputs: no scalar code with these operations can be faster, whatever its order. The floor
is the operations of the law's compiled function times these, with nothing for loads, stores, and waiting.
"""

import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine import compiler
from servoctl.engine.templates import over_numbers

CHAINS = 12
"""Number of independent chains: enough to hide the latency of an addition, few enough for the registers."""

UPDATES = {
    "arithmetic": ("y{i} = y{i} * 0.999 + 0.001;", 2),
    "division": ("y{i} = 1.5 / y{i};", 1),
    "root": ("y{i} = v_sqrt(y{i} + 0.5);", 1),
    "function": ("y{i} = v_sin(y{i} + 0.7);", 1),
}
"""Kind -> statement of a chain, and the number of operations of this kind in it."""

LOOP = """
double cost_{kind}(long long turns) {{
  {declared}
  for (long long k = 0; k < turns; ++k) {{
    {body}
    {barrier}
  }}
  return {total};
}}
"""
HEAD = """#include <math.h>
#include <time.h>
/* a chain that passes through a scalar register of its own stays scalar */
#if defined(__GNUC__) && defined(__x86_64__)
#define KEEP(y) __asm__ volatile("" : "+x"(y))
#elif defined(__GNUC__) && defined(__aarch64__)
#define KEEP(y) __asm__ volatile("" : "+w"(y))
#else
#define KEEP(y)
#endif
double cost_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}
"""

KINDS = {
    "free": ("OP_CONST", "OP_INPUT", "OP_OUTPUT", "OP_PARAMETER", "OP_CALL"),
    "arithmetic": (),
    "division": ("OP_DIV", "OP_INV"),
    "root": ("OP_SQRT",),
    "function": (
        "OP_SIN", "OP_COS", "OP_TAN", "OP_ASIN", "OP_ACOS", "OP_ATAN", "OP_ATAN2", "OP_SINH", "OP_COSH", "OP_TANH",
        "OP_EXP", "OP_LOG", "OP_POW", "OP_CONSTPOW", "OP_HYPOT",
    ),
}  # fmt: skip
"""Kind -> names in CasADi; every other operation is arithmetic."""


@dataclass(frozen=True)
class OperationCosts:
    """Time per operation [s].

    Attributes:
        arithmetic: Addition, multiplication, comparison, choice.
        division: Division.
        root: Square root.
        function: Sine, cosine and the like.
    """

    arithmetic: float
    division: float
    root: float
    function: float


@dataclass(frozen=True)
class Operations:
    """Number of operations of each kind of `OperationCosts`."""

    arithmetic: int
    division: int
    root: int
    function: int

    @property
    def total(self) -> int:
        """Number of all operations."""
        return sum(asdict(self).values())

    def floor(self, costs: OperationCosts) -> float:
        """Lower bound for their time in scalar code [s]."""
        cost = asdict(costs)
        return float(sum(count * cost[kind] for kind, count in asdict(self).items()))


def source() -> str:
    """C code of the loops."""
    text = over_numbers(1) + HEAD
    for kind, (update, _) in UPDATES.items():
        names = [f"y{i}" for i in range(CHAINS)]
        text += LOOP.format(
            kind=kind,
            declared="double " + ", ".join(f"{name} = {1.0 + 0.01 * i}" for i, name in enumerate(names)) + ";",
            body=" ".join(update.format(i=i) for i in range(CHAINS)),
            barrier=" ".join(f"KEEP({name});" for name in names),
            total=" + ".join(names),
        )
    return text


def measure(turns: int = 5_000, rounds: int = 200) -> OperationCosts:
    """Measured times; the least of several rounds, because other load only makes a round longer.

    Raises:
        CompileError: There is no compiler, or it fails.
    """
    import cffi

    ffi = cffi.FFI()
    ffi.cdef("double cost_seconds(void);" + "".join(f"double cost_{kind}(long long);" for kind in UPDATES))
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        built = Path(folder) / "costs.so"
        compiler.build(source(), built)
        library = ffi.dlopen(str(built))
    times: dict[str, list[float]] = {kind: [] for kind in UPDATES}
    for _ in range(rounds):
        for kind, each in times.items():
            began = library.cost_seconds()
            getattr(library, f"cost_{kind}")(turns)
            each.append(library.cost_seconds() - began)
    costs_of = {kind: float(np.min(times[kind])) / (turns * CHAINS * count) for kind, (_, count) in UPDATES.items()}
    # the chains of these two kinds also have one addition each
    costs_of["root"] -= costs_of["arithmetic"]
    costs_of["function"] -= costs_of["arithmetic"]
    return OperationCosts(**costs_of)


def operations(function: Any) -> Operations:
    """Operations of a CasADi function and of each function that it calls; each function once, with all branches.

    Repeated divisions by one number count as one division and multiplications by the inverse, as the compiler does it.
    """
    kinds = {getattr(ca, name): kind for kind, names in KINDS.items() for name in names}
    counts = dict.fromkeys(KINDS, 0)
    for each in [function, *function.find_functions()]:
        written: Counter[int] = Counter()  # writes to each work variable: they identify its present value
        inverted = set()
        for k in range(each.n_instructions()):
            operation, inputs = each.instruction_id(k), each.instruction_input(k)
            kind = kinds.get(operation, "arithmetic")
            if kind == "division":
                denominator = (inputs[-1], written[inputs[-1]])
                kind = "arithmetic" if denominator in inverted else kind
                inverted.add(denominator)
            counts[kind] += 1
            if operation != ca.OP_OUTPUT:
                written.update(each.instruction_output(k))
    del counts["free"]
    return Operations(**counts)
