"""NumPy code as an operation of compiled functions: its exceptions come out as they are."""

from typing import Any

import casadi as ca
import numpy as np
import pytest

from servoctl.engine import numpy_call
from servoctl.engine.kernel import Kernel
from servoctl.engine.numpy_call import NumpyCall


def doubling(work: Any) -> tuple[Kernel, NumpyCall]:
    call = NumpyCall("doubling", work, [(2,)], [(2,)])
    x = ca.MX.sym("x", 2)
    function = ca.Function("f", [x], [call(x)])
    return Kernel(function, {"x": (2,)}, {"y": (2,)}), call


def test_it_gives_what_the_code_gives() -> None:
    kernel, _ = doubling(lambda x: [2.0 * x])
    np.testing.assert_array_equal(kernel(np.array([1.0, -3.0]))[0], [2.0, -6.0])


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_code_raises_is_raised(error: BaseException) -> None:
    def failing(x: Any) -> Any:
        raise error

    kernel, _ = doubling(failing)
    with pytest.raises(type(error)):
        kernel(np.zeros(2))


def test_an_interrupt_between_casadi_and_the_code_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(buffer: Any, shape: Any) -> Any:
        raise KeyboardInterrupt

    kernel, _ = doubling(lambda x: [x])
    kernel(np.zeros(2))
    monkeypatch.setattr(numpy_call, "_numbers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernel(np.zeros(2))
