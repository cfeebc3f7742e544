"""Symbols make the expressions that CasADi's own operators make."""

import casadi as ca
import pytest

from servoctl.engine.symbol import Symbol

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
    "larger": (x.maximum(y), ca.fmax(a, b)), "smaller": (x.minimum(y), ca.fmin(a, b)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_an_operation_is_that_of_casadi_with_its_simplifications(name: str) -> None:
    ours, expected = PAIRS[name]
    assert str(ours.sx) == str(expected)
