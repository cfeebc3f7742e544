"""NumPy code as an operation of compiled functions, on CasADi's virtual machine alone.

Design: an exception cannot pass through CasADi, which would print it and raise another one. So a call that fails gives
NaN and keeps its exception for the thread, and whoever evaluates the function raises it (`Kernel.bound`). CasADi does
not keep the Python part of an operation alive: its maker does, and every call that is bound to a function.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import casadi as ca
import numpy as np

from servoctl.types import Array

_alive: WeakValueDictionary[str, "NumpyCall"] = WeakValueDictionary()
_number = count()


class _Failure(threading.local):
    error: BaseException | None = None


_failure = _Failure()


class NumpyCall(ca.Callback):
    """An operation on vectors and matrices that Python evaluates.

    Args:
        name: Letters, digits and underscores.
        work: The arguments, arrays that last for the call -> the results.
        inputs: Shape of each argument.
        outputs: Shape of each result.
        numbered: Whether the name gets a number, because the work is not known by its name.
    """

    def __init__(
        self,
        name: str,
        work: Callable[..., Sequence[Array]],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        numbered: bool = True,
    ) -> None:
        ca.Callback.__init__(self)
        self._work, self._inputs, self._outputs = work, inputs, outputs
        self.construct(f"{name}_in_numpy_{next(_number)}" if numbered else name, {})
        _alive[self.name()] = self

    def get_n_in(self) -> int:
        return len(self._inputs)

    def get_n_out(self) -> int:
        return len(self._outputs)

    def get_sparsity_in(self, index: int) -> Any:
        return ca.Sparsity.dense(*self._inputs[index])

    def get_sparsity_out(self, index: int) -> Any:
        return ca.Sparsity.dense(*self._outputs[index])

    def has_eval_buffer(self) -> bool:
        return True

    def eval_buffer(self, arguments: Sequence[memoryview], results: Sequence[memoryview]) -> int:
        arrays = list(map(_numbers, results, self._outputs))
        try:
            for array, value in zip(arrays, self._work(*map(_numbers, arguments, self._inputs)), strict=True):
                array[...] = value
        except BaseException as error:  # Ctrl-C and SystemExit too: see the module
            _failure.error = _failure.error or error
            for array in arrays:
                array.fill(np.nan)
        return 0


def _numbers(buffer: memoryview, shape: tuple[int, ...]) -> Array:
    """The floats in a buffer of bytes, which may be empty."""
    values: Array = np.asarray(buffer).view(float)
    return values if len(shape) == 1 else values.reshape(shape, order="F")


def numpy_calls(function: Any) -> list[NumpyCall]:
    """The operations in NumPy that a CasADi function calls."""
    names = [each.name() for each in function.find_functions()] if _alive else []
    return [_alive[name] for name in names if name in _alive]


def is_numpy_call(name: str) -> bool:
    """Whether a CasADi function of this name is such an operation."""
    return name in _alive


def raise_failure() -> None:
    """Raises what an operation of this thread raised since the last call."""
    if _failure.error is not None:
        error, _failure.error = _failure.error, None
        raise error
