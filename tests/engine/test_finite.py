"""Whether numbers are finite, however large their squares."""

import numpy as np
import pytest

from servoctl.engine.kernel import Kernel, inputs
from servoctl.engine.products import is_finite

SOUND = (np.zeros(0), np.zeros((0, 2)), np.array(0.1), np.eye(3)[1:, ::2], np.array([[1, 2]]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_entry_that_is_not_finite_is_found_wherever_it_is(bad: float) -> None:
    for i in range(6):
        array = np.ones(6)
        array[i] = bad
        for view in (array, array.reshape(2, 3), array.reshape(2, 3).T, array[::-1]):
            assert not is_finite(*SOUND, view)
    assert not is_finite(bad)


def test_infinities_that_cancel_are_found() -> None:
    assert not is_finite(np.array([np.inf, -np.inf]))


@pytest.mark.parametrize("large", [1e155, 1e300, np.finfo(float).max])
def test_numbers_whose_squares_overflow_are_finite(large: float) -> None:
    assert is_finite(*SOUND, np.full((2, 3), large), -large)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1.0])
def test_among_symbols_only_numbers_that_are_not_finite_count(number: float) -> None:
    x = inputs({"x": (2,)})["x"]
    tested = is_finite(np.array([x[0], number, x[1]], dtype=object))
    finite = Kernel.compile("finite", {"x": x}, {"finite": np.array([tested])})
    assert finite(np.array([1.0, 2.0]))[0] == [float(number == 1.0)]
    assert finite(np.array([1.0, np.nan]))[0] == [0.0]
