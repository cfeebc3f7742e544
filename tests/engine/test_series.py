"""Operations along arrays are loops in C, with the numbers of the virtual machine."""

import casadi as ca
import numpy as np
import pytest

from servoctl.engine import compiler
from servoctl.engine.ccode import Program
from servoctl.engine.copies import copies
from servoctl.engine.emit import emit
from servoctl.engine.expected_time import COPY, expected_time
from servoctl.engine.kernel import Kernel
from servoctl.engine.mapped import for_each
from servoctl.engine.pairwise import pairwise
from servoctl.engine.series import SHORTEST
from servoctl.engine.statements import Statements
from servoctl.engine.symbol import symbols
from servoctl.types import Array

pytestmark = [
    pytest.mark.optimised,
    pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"),
]

COUNT = 2 * SHORTEST
RNG = np.random.default_rng(4)


def long_kernel() -> Kernel:
    """Series on inputs, on results of a call, on series, on every second entry, beside what is none."""
    x, y = symbols("x", COUNT), symbols("y", COUNT)
    pulled = for_each(lambda row: row * row[0], x.reshape(-1, 2)).ravel()
    a = -pulled + 0.3 * y
    b = np.sqrt(a[::-1] * a[::-1] + 2.0) / y
    c = np.concatenate([x[::2] * b[1::2], x[:5] * y[7:12]])
    mixed = x[RNG.permutation(COUNT)] - y
    shared = np.array([a[0] / x[3], a[1] / x[3], x[4] / a[2], x[5] / a[2]])
    values = {"a": a, "b": b, "c": c, "mixed": mixed, "shared": shared, "sum": np.array([np.sum(b)])}
    return Kernel.compile("long", {"x": x, "y": y}, values)


@pytest.mark.parametrize("pieces", [False, True])
def test_loops_along_arrays_give_the_numbers_of_the_virtual_machine_to_the_bit(
    pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = long_kernel()
    points = RNG.uniform(0.5, 2.0, (5, 2, COUNT))
    expected = [kernel(*point) for point in points]
    if pieces:
        monkeypatch.setattr("servoctl.engine.emit.MANY", 10)
        monkeypatch.setattr("servoctl.engine.pieces.SIZE", 7)
    program = Program([kernel.function])
    assert f"k < {COUNT}; ++k) e0[k] = " in program.source.replace("w->", "")
    assert ("w->e0[" in program.source) == pieces
    kernel.run_on(program.load())
    for point, values in zip(points, expected, strict=True):
        for name, got, value in zip(kernel.outputs, kernel(*point), values, strict=True):
            # a denominator that serves twice is inverted once in C
            np.testing.assert_allclose(got, value, rtol=1e-15 if name == "shared" else 0.0)


def test_a_loop_takes_the_place_of_many_statements_and_costs_as_much() -> None:
    x, y = ca.SX.sym("x", SHORTEST), ca.SX.sym("y", SHORTEST)
    long = Statements(ca.Function("f", [x, y], [ca.sin(x / y) + 1.5]), False)
    assert len(long.lines) == 7  # three arrays, their loops, the results
    assert long.cost.operations == 3 * SHORTEST and long.cost.divisions == SHORTEST and long.numbers == 3 * SHORTEST
    short = Statements(ca.Function("g", [x, y], [ca.sin(x[1:] / y[1:]) + 1.5]), False)
    assert len(short.lines) > 3 * (SHORTEST - 1)
    assert short.cost.operations == 3 * (SHORTEST - 1)


def test_the_length_of_the_c_of_a_swarm_does_not_grow_with_it() -> None:
    lengths, times = [], []
    for count in (100, 400):
        q, v = symbols("q", 2 * count), symbols("v", 2 * count)
        pulled: Array = pairwise(lambda one, other: (other - one) * one, q.reshape(-1, 2)).ravel()
        kernel = Kernel.compile("swarm", {"q": q, "v": v}, {"psi": v + pulled, "energy": 0.5 * v * v})
        lengths.append(emit([kernel.function]).count("\n"))
        times.append(expected_time([kernel.function]))
    assert lengths[0] == lengths[1]
    assert times[0] == times[1] < 0.5


def test_numbers_that_are_copied_into_a_call_take_the_compiler_time() -> None:
    x, size = ca.SX.sym("x", 40), ca.SX.sym("y", 80)
    called = ca.Function("called", [size], [ca.sumsqr(size)], {"never_inline": True})
    same, mixed = ([value for k in range(40) for value in (x[k], number(k))] for number in (lambda k: x[k], float))
    times = [expected_time([ca.Function("f", [x], [called(ca.vertcat(*values))])]) for values in (same, mixed)]
    assert times[1] - times[0] == pytest.approx(40 * COPY)


def test_equal_values_are_copied_in_a_loop() -> None:
    values = ["number(NAN)"] * 200 + ["a4"] * 3 + [f"d1_0[{3 * k + 1}]" for k in range(10)]
    assert copies("y0", values) == [
        "for (int k = 0; k < 200; ++k) y0[k] = number(NAN);",
        *(f"y0[{i}] = a4;" for i in (200, 201, 202)),
        "for (int k = 0; k < 10; ++k) y0[203 + k] = d1_0[1 + 3 * k];",
    ]
