"""The search for limits and bounds in float: the same code with the rounding of float, against double."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest

from servoctl.engine import compiler
from servoctl.engine.kernel import Kernel, inputs
from servoctl.export.interface import SINGLE_FLOOR
from servoctl.export.source import StandaloneSource
from servoctl.laws.limits import Start, within_limits
from servoctl.types import Array

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")

SHAPES: dict[str, tuple[int, ...]] = {
    "T": (2, 4), "e": (2,), "lower": (4,), "upper": (4,), "s": (4,), "G": (3, 4), "g": (3,), "u": (4,), "held": (7,)
}  # fmt: skip


def solver(folder: Path) -> ctypes._CFuncPtr:
    """C code in float: (inputs one after the other) -> u, lack and whether it is proven."""
    x = inputs(SHAPES)
    found = within_limits(
        [(x["T"], x["e"])], x["lower"], x["upper"], x["s"], inequalities=(x["G"], x["g"]),
        rank_tolerance=SINGLE_FLOOR["rank_tolerance"], rounding=SINGLE_FLOOR["rounding"],
        start=Start(x["u"], x["held"]),
    )  # fmt: skip
    values = np.concatenate([found.u, found.slack, np.array([found.converged], dtype=object)])
    source = StandaloneSource(Kernel.compile("bounds", x, {"values": values}).function, single=True)
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in SHAPES.values())])
    given = ", ".join(f"all + {start}" for start in ends[:-1])
    entry = f"void solve(const float *all, float *values) {{ {source.entry}({given}, values); }}\n"
    compiler.build(f"#include <math.h>\n#include <string.h>\n{source.text}\n{entry}", folder / "solver.so")
    return ctypes.CDLL(str(folder / "solver.so")).solve


@needs_compiler
def test_the_search_in_float_equals_that_in_double_on_random_problems(tmp_path: Path) -> None:
    random, solve = np.random.default_rng(30), solver(tmp_path)
    held, worst = 0, 0.0
    for _ in range(250):
        x: dict[str, Array] = {name: random.standard_normal(shape) for name, shape in SHAPES.items()}
        x["lower"], x["upper"] = -random.uniform(0.3, 1.5, 4), random.uniform(0.3, 1.5, 4)
        x = {name: np.float32(value).astype(float) for name, value in x.items()}
        sides = np.append(random.integers(-1, 2, 4), random.integers(0, 2, 3))
        x["held"] = np.where(random.random(7) < 0.3, sides, 0).astype(float)
        exact = within_limits([(x["T"], x["e"])], x["lower"], x["upper"], x["s"], inequalities=(x["G"], x["g"]))
        every = np.concatenate([np.ravel(x[name], order="F") for name in SHAPES]).astype(np.float32)
        values = np.zeros(8, dtype=np.float32)
        solve(ctypes.c_void_p(every.ctypes.data), ctypes.c_void_p(values.ctypes.data))
        assert values[7] == 1.0
        assert (values[:4] >= np.float32(x["lower"])).all() and (values[:4] <= np.float32(x["upper"])).all()
        held += bool(exact.iterations)
        error = np.abs(np.concatenate([values[:4] - exact.u, values[4:7] - exact.slack])).max()
        worst = max(worst, float(error))
    assert held > 150
    assert worst <= 1e-5  # measured: 1.2e-6
