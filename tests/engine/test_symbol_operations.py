"""Symbols make the expressions that CasADi's own operators make."""

import casadi as ca
import numpy as np
import pytest

from servoctl.engine.kernel import Kernel
from servoctl.engine.symbol import Symbol, clip, from_sx, to_sx, within
from servoctl.engine.trace import trace

a, b = ca.SX.sym("a"), ca.SX.sym("b")
x, y = Symbol(a), Symbol(b)

PAIRS = {
    "sum": (x + y, a + b), "difference": (x - y, a - b), "product": (x * y, a * b), "quotient": (x / y, a / b),
    "power": (x**y, a**b), "square": (x**2, a**2), "root": (x**0.5, a**0.5), "inverse": (x**-1, a**-1),
    "number to a power": (2**x, 2**a), "number less": (2 - x, 2 - a), "number over": (3 / x, 3 / a),
    "times zero": (x * 0, a * 0), "times one": (x * 1, a * 1), "plus zero": (0 + x, 0 + a),
    "itself off": (x - x, a - a),
    "negative": (-x, -a), "minus a negative": (x - (-y), a - (-b)), "size": (abs(x), ca.fabs(a)),
    "less": (x < y, a < b), "at most": (x <= y, a <= b), "more": (x > y, a > b), "at least": (x >= y, a >= b),
    "equal": (x == y, a == b), "unequal": (x != y, a != b), "more than a number": (x > 1, a > 1),
    "and": (x & y, ca.logic_and(a, b)), "or": (x | y, ca.logic_or(a, b)), "not": (~x, ca.logic_not(a)),
    "angle": (x.arctan2(y), ca.atan2(a, b)), "length": (x.hypot(y), ca.hypot(a, b)),
    "larger": (x.fmax(y), ca.fmax(a, b)), "smaller": (x.fmin(y), ca.fmin(a, b)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_an_operation_is_that_of_casadi_with_its_simplifications(name: str) -> None:
    ours, expected = PAIRS[name]
    assert str(ours.sx) == str(expected)


def test_maximum_minimum_and_clip_keep_nan_as_numpy_does() -> None:
    """C's fmax and fmin give the other one, so a limit would take the place of a NaN."""

    def kinks(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        one = [np.maximum(p, q), np.minimum(p, q), np.clip(p, -1.0, q), np.maximum(p, 0.5), np.minimum(0.5, q)]
        return np.array([*one, clip(q, p, 2.0), within(p, -1.0, 1.0), np.maximum(p, np.nan)])

    numbers = [np.nan, 0.25, -3.0, np.inf, -np.inf]
    p, q = (np.array([Symbol(each)], dtype=object) for each in (a, b))
    function = ca.Function("kinks", [a, b], [to_sx(trace(kinks, p, q))])
    for one in numbers:
        for other in numbers:
            expected = kinks(np.array([one]), np.array([other]))
            np.testing.assert_array_equal(np.array(function(one, other)), expected, str((one, other)))


def test_equal_calls_and_operations_remain_once_in_a_kernel_and_values_keep_their_bits() -> None:
    inputs = ca.SX.sym("x", 2)
    called = ca.Function("norm_and_mean", [inputs], [ca.norm_2(inputs), ca.sum1(inputs) / 2], {"never_inline": True})

    def expression() -> ca.SX:
        size, mean = called(ca.sin(inputs) * 0.3)
        return ca.vertcat(size * inputs[0], mean - inputs[1], ca.if_else(mean > 0, 1.5, -0.0))

    repeated = ca.vertcat(expression(), 2.0 * expression(), called(ca.sin(inputs) * 0.3)[1])
    before = ca.Function("before", [inputs], [repeated])
    kernel = Kernel.compile("after", {"x": from_sx(inputs)}, {"y": from_sx(repeated)})
    counts = [
        [sum(each.instruction_id(i) == code for i in range(each.n_instructions())) for code in (ca.OP_CALL, ca.OP_SIN)]
        for each in (before, kernel.function)
    ]
    assert counts == [[3, 6], [1, 2]]
    for point in np.random.default_rng(0).standard_normal((20, 2)):
        assert np.array(before(point)).tobytes() == kernel(point)[0].tobytes()
