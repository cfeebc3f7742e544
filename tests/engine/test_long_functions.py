"""Long functions without loops: other compiler flags, the same numbers."""

import casadi as ca
import numpy as np
import pytest

from servoctl.engine import compiler
from servoctl.engine.ccode import Program
from servoctl.engine.emit import MANY
from servoctl.engine.kernel import Kernel

pytestmark = [
    pytest.mark.optimised,
    pytest.mark.skipif(compiler.compiler() is None or compiler.is_tcc(), reason="no C compiler on the path"),
]


def polynomials(name: str, count: int) -> Kernel:
    """Products and sums, in which a fused multiply-add would show, with roots among them."""
    x = ca.SX.sym("x", 3)
    y = [x[0], x[1], x[2]]
    for k in range(count):
        y[k % 3] = 0.3 * y[(k + 1) % 3] * y[(k + 2) % 3] - (0.9 + 1e-4 * k) * y[k % 3]
        if k % 50 == 0:
            y[k % 3] = ca.sqrt(1.0 + y[k % 3] ** 2)
    return Kernel(ca.Function(name, [x], [ca.vertcat(*y)]), {"x": (3,)}, {"y": (3,)})


def test_a_long_function_gives_the_numbers_of_the_virtual_machine_to_the_bit() -> None:
    kernel = polynomials("long_polynomials", 1000)
    values = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 3))
    expected = [kernel(x)[0] for x in values]
    program = Program([kernel])
    assert program.source.count(f"{compiler.LONG} static void f_long_polynomials(") == 1
    kernel.run_on(program.load())
    np.testing.assert_array_equal([kernel(x)[0] for x in values], expected)


def test_only_code_without_a_long_function_is_scheduled_before_register_allocation() -> None:
    short, long = (Program([polynomials(f"of_{n}", n)]).source for n in (MANY // 8, MANY // 2))
    assert set(compiler.SCHEDULING) <= set(compiler.flags(short))
    assert not set(compiler.SCHEDULING) & set(compiler.flags(long))
    assert set(compiler.flags(long)) < set(compiler.flags(short))


def test_a_switch_of_the_environment_compiles_every_program_without_optimisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, source = polynomials("switched", 10), "static int one;"
    program, switched = (Program([kernel], content="equal") for _ in range(2))
    key, flags = program.key, compiler.flags(source)
    monkeypatch.setenv(compiler.SWITCH, "0")
    assert set(compiler.PLAIN) <= set(compiler.flags(source)) and not set(compiler.PLAIN) & set(flags)
    assert switched.key != key
