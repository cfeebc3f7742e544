"""Expressions without repeated operations, with calls of other functions in them."""

import casadi as ca
import numpy as np
import pytest

from servoctl.engine.repetitions import without_repetitions


def norm_and_mean() -> ca.Function:
    x = ca.SX.sym("x", 2)
    return ca.Function("norm_and_mean", [x], [ca.norm_2(x), ca.sum1(x) / 2], {"never_inline": True})


def count(function: ca.Function, code: int) -> int:
    return sum(function.instruction_id(i) == code for i in range(function.n_instructions()))


def test_equal_calls_and_operations_remain_once_and_values_keep_their_bits() -> None:
    x, called = ca.SX.sym("x", 2), norm_and_mean()

    def expression() -> ca.SX:
        size, mean = called(ca.sin(x) * 0.3)
        return ca.vertcat(size * x[0], mean - x[1] * x[0], x[0] * x[1], ca.if_else(mean > 0, 1.5, -0.0))

    repeated = [ca.vertcat(expression(), 2.0 * expression()), ca.SX(2, 2), called(ca.sin(x) * 0.3)[1]]
    before = ca.Function("before", [x], repeated)
    after = ca.Function("after", [x], without_repetitions(repeated))
    assert count(before, ca.OP_CALL) == 3 and count(after, ca.OP_CALL) == 1
    assert count(before, ca.OP_SIN) == 6 and count(after, ca.OP_SIN) == 2
    for point in np.random.default_rng(0).standard_normal((20, 2)):
        for one, other in zip(before.call([point]), after.call([point]), strict=True):
            assert np.array(one).tobytes() == np.array(other).tobytes() and one.sparsity() == other.sparsity()


def test_results_without_symbols_are_kept() -> None:
    numbers, empty = without_repetitions([ca.DM([1.5, -2.0]), ca.SX(0, 1)])
    np.testing.assert_array_equal(np.array(ca.DM(numbers)).ravel(), [1.5, -2.0])
    assert empty.shape == (0, 1)


def test_casadi_does_not_warn_of_more_symbols_than_it_likes_as_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    many = ca.SX.sym("x", 10_001)
    (same,) = without_repetitions([many])
    assert ca.is_equal(same, many)
    captured = capfd.readouterr()
    assert "max_io" not in captured.out + captured.err
