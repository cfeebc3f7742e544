"""The stated cost of a function in C equals the operations counted in its code, compiled with a counting number."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

from servoctl.assembly import load
from servoctl.engine import decomposition, linalg
from servoctl.engine.decomposition import decompose_function
from servoctl.engine.emit import Statements, emitted
from servoctl.engine.ops import FUNCTIONS, Cost, repeat, template
from servoctl.export.source import StandaloneSource
from servoctl.types import Array

CXX = shutil.which("c++") or shutil.which("g++")
needs_cxx = pytest.mark.skipif(CXX is None, reason="no C++ compiler on the path")

HEAD = """
#include <string.h>
#define NAN __builtin_nan("")
#define INFINITY __builtin_inf()
#define restrict __restrict__
static long count[3]; /* operations, divisions, functions */
struct M {
  bool is; M() {} M(bool b) : is(b) {} explicit operator bool() const { return is; }
  M operator&(M o) const { ++count[0]; return is && o.is; }
  M operator|(M o) const { ++count[0]; return is || o.is; }
};
struct V {
  double x; V() {} explicit V(double y) : x(y) {}
  V operator-() const { ++count[0]; return V(-x); }
  V &operator+=(V o) { return *this = V(x + o.x, 0); }
  V &operator-=(V o) { return *this = V(x - o.x, 0); }
  V &operator*=(V o) { return *this = V(x * o.x, 0); }
  V(double y, int division) : x(y) { ++count[0]; count[1] += division; }
};
static V operator+(V a, V b) { return V(a.x + b.x, 0); }
static V operator-(V a, V b) { return V(a.x - b.x, 0); }
static V operator*(V a, V b) { return V(a.x * b.x, 0); }
static V operator/(V a, V b) { return V(a.x / b.x, 1); }
static M operator<(V a, V b) { ++count[0]; return a.x < b.x; }
static M operator>(V a, V b) { ++count[0]; return a.x > b.x; }
static M operator<=(V a, V b) { ++count[0]; return a.x <= b.x; }
static M operator==(V a, V b) { ++count[0]; return a.x == b.x; }
static M operator!=(V a, V b) { ++count[0]; return a.x != b.x; }
static V number(double x) { return V(x); }
static V select(M m, V a, V b) { ++count[0]; return m.is ? a : b; }
static V keep(M m, V a) { ++count[0]; return m.is ? a : V(0.0); }
static M invert(M m) { ++count[0]; return !m.is; }
static bool any(M m) { return m.is; }
static V v_sqrt(V a) { return V(__builtin_sqrt(a.x), 1); }
static V v_fabs(V a) { return V(__builtin_fabs(a.x), 0); }
static V v_fmin(V a, V b) { return V(__builtin_fmin(a.x, b.x), 0); }
static V v_fmax(V a, V b) { return V(__builtin_fmax(a.x, b.x), 0); }
static V v_sin(V a) { ++count[2]; return V(__builtin_sin(a.x), 0); }
static V v_cos(V a) { ++count[2]; return V(__builtin_cos(a.x), 0); }
"""
"""Without <cmath>, which takes four fifths of the compiler's time."""


def counted(function: Any, folder: Path, *values: Array) -> Cost:
    """Operations that one call takes."""
    inputs = [np.ascontiguousarray(np.ravel(value, order="F"), dtype=float) for value in values]
    sizes = [function.nnz_out(i) for i in range(function.n_out())]
    names = [f"(const V*) x[{i}]" for i in range(len(inputs))] + [f"y{i}" for i in range(len(sizes))]
    call = (
        "".join(f"  V y{i}[{size}];\n" for i, size in enumerate(sizes)) + f"  f_{function.name()}({', '.join(names)});"
    )
    text = HEAD + template("rows.h") + "\n".join(each.text for each in emitted([function]).values())
    take = "for (int i = 0; i < 3; ++i) taken[i] = count[i];"
    text += f'extern "C" void call(const double** x, long* taken) {{\n{call}\n  {take}\n}}\n'
    (folder / "counted.cpp").write_text(text)
    built = folder / f"{function.name()}.so"
    subprocess.run(
        [str(CXX), "-O0", "-w", "-fpermissive", "-fPIC", "-shared", "-o", built, folder / "counted.cpp"], check=True
    )
    pointers = (ctypes.c_void_p * len(inputs))(*(each.ctypes.data for each in inputs))
    taken = (ctypes.c_long * 3)()
    ctypes.CDLL(str(built)).call(pointers, taken)
    return Cost(*taken)


def stated(function: Any) -> Cost:
    return StandaloneSource(function).cost


@needs_cxx
@pytest.mark.parametrize(("rows", "n", "rank"), [(1, 1, 0), (2, 5, 1), (3, 6, 2), (7, 4, 4), (5, 5, 4)])
def test_a_decomposition_that_loses_rank_takes_the_operations_stated(
    rows: int, n: int, rank: int, tmp_path: Path
) -> None:
    random, function = np.random.default_rng(1), decompose_function(rows, n)
    shrinking = 0.01 ** np.arange(rank)  # each direction takes most of what is left of every row
    A = random.uniform(1.0, 2.0, (rows, rank)) * shrinking @ np.linalg.qr(random.normal(size=(n, n)))[0][:rank]
    assert counted(function, tmp_path, A, np.array([1e-10])) == stated(function)


@needs_cxx
def test_a_decomposition_of_full_rank_takes_less(tmp_path: Path) -> None:
    taken = counted(decompose_function(3, 6), tmp_path, np.eye(3, 6), np.array([1e-10]))
    most = stated(decompose_function(3, 6))
    assert (taken.operations, most.operations) == (255, 582)
    assert (taken.divisions, most.divisions) == (9, 15)


@needs_cxx
@pytest.mark.parametrize("name", ["two_mass_spring", "coordinated_robots", "coordinated_robots_limited"])
def test_a_law_takes_at_most_the_operations_stated(name: str, tmp_path: Path) -> None:
    run = load(name)
    loop: Any = run.loop
    x = np.concatenate([run.start.q, run.start.v, loop.memory_start])
    function = loop.control_kernel.function
    taken, most = counted(function, tmp_path, np.array([run.start.t]), x, loop.parameters), stated(function)
    assert taken.functions == most.functions
    assert taken.divisions <= most.divisions
    share = taken.operations / most.operations
    assert 0.01 < share <= 1 if "limited" in name else 0.75 < share <= 1  # the search for limits takes 32 steps at most


@needs_cxx
@pytest.mark.parametrize("n", [1, 2, 7, 18])
def test_triangles_products_and_projections_take_the_operations_stated(n: int, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    X, Z = random.normal(size=(3, n)), random.normal(size=(2, n))
    lower = np.eye(n)
    calls = [
        (linalg.cholesky_function(n), (np.eye(n)[np.tril_indices(n)],)),
        (linalg.lower_function(3, n), (lower, X)),
        (linalg.lower_function(3, n + 2, 2), (np.eye(n + 2), X)),
        (linalg.upper_function(3, n), (lower, X)),
        (linalg.product_function(3, n, 2, False), (X, Z.T)),
        (linalg.product_function(3, n, 2, True), (X, Z)),
        (linalg.project_function(2, n, 3), (Z, X)),
        (decomposition.longer_function(3, n), (X, np.zeros(1))),
    ]
    for function, values in calls:
        assert counted(function, tmp_path, *values) == stated(function)


def test_a_divisor_that_serves_twice_is_inverted_once() -> None:
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    assert Statements(ca.Function("f", [x, y], [ca.sin(x) * y + ca.sqrt(x) / y - 2.0])).cost == Cost(6, 2, 1)
    halves = Statements(ca.Function("g", [x, y], [x / y + y / x + 2.0 / y]))
    assert halves.cost == Cost(6, 2, 0)  # 1/y, two products with it, y/x, two sums


def test_a_function_that_is_repeated_counts_as_often_as_it_may_be_called() -> None:
    state = ca.SX.sym("state", 2)
    step = ca.Function("half_step", [state], [ca.vertcat(state[0] / 2, state[0] <= 1)], {"never_inline": True})
    functions = emitted([repeat("half_steps", step, 8, done=1)])
    once = functions["half_step"].cost
    assert functions["half_steps"].calls == 8 * ("half_step",)
    whole = ca.Function("whole", [state], [repeat("half_steps_again", step, 8, done=1)(state)])
    assert stated(whole) == once * 8 + Cost(8 * 3)  # each step: is it done, and a choice for each entry


def test_every_function_of_numbers_has_a_name_in_c() -> None:
    x, pairs = ca.SX.sym("x"), {"atan2", "hypot", "pow", "fmod", "copysign", "fmin", "fmax"}
    for name in set(FUNCTIONS) - pairs:
        (line,) = (line for line in Statements(ca.Function("one", [x], [getattr(ca, name)(x)])).lines if "v_" in line)
        assert f"v_{name}(x0" in line
