"""A user's function in a law: traced where symbols can follow it, else called in NumPy."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.kernel import inputs
from servoctl.engine.numpy_call import NumpyCall
from servoctl.engine.products import called
from servoctl.engine.symbol import plain
from servoctl.engine.trace import trace
from servoctl.errors import ServoctlError, TaskError, TraceError, in_one_line
from servoctl.types import Array


class UserFunction(NamedTuple):
    """A function of arrays that symbols can follow."""

    function: Callable[..., Array]  # the arrays -> inputs, shape (m,)
    opaque: str | None  # why it is called in NumPy; None: it is traced

    def __call__(self, *arrays: Array) -> Array:
        """The inputs, shape (m,)."""
        return self.function(*arrays)


def user_function(function: Callable[..., Any], name: str, shapes: Sequence[tuple[int, ...]], m: int) -> UserFunction:
    """The function itself if it can be traced, else an operation that calls it.

    Args:
        function: Plain NumPy; its first array has the time alone.
        name: In messages.
        shapes: Shape of each array.
        m: Number of inputs that it returns.

    Raises:
        TaskError: It returns another shape.
    """

    def traced(*arrays: Array) -> Array:
        return _inputs(plain(trace(function, *arrays)), name, m)

    def work(*arrays: Array) -> list[Array]:
        try:
            return [_inputs(function(*(array.copy() for array in arrays)), name, m).astype(float)]
        except (KeyboardInterrupt, ServoctlError):
            raise
        except BaseException as error:  # user code may raise anything
            raise TaskError(f"{name} failed at t = {arrays[0][0]:.6g} s: {in_one_line(error)}") from error

    try:
        traced(*inputs({f"x{i}": shape for i, shape in enumerate(shapes)}).values())
    except TraceError as error:
        call = NumpyCall("law", work, shapes, [(m,)])
        return UserFunction(lambda *arrays: called(call, arrays, (m,))[0], str(error))
    return UserFunction(traced, None)


def _inputs(values: Any, name: str, m: int) -> Array:
    """What a function returned, as m inputs."""
    u: Array = np.atleast_1d(np.asarray(values))
    if u.shape != (m,):
        raise TaskError(f"{name} returns shape {u.shape}, the plant has {m} inputs")
    return u
