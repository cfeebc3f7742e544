"""Compiled functions: on CasADi's virtual machine at once, on generated C where a library is at hand.

Design: a `Kernel` owns its buffers, so a call allocates only its results. It is not thread-safe: one per thread.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from servoctl.engine.symbol import from_sx, is_symbolic, symbols, to_sx
from servoctl.types import Array

if TYPE_CHECKING:
    from servoctl.engine.ccode import Library


def jacobian(expressions: Array, variables: Array) -> Array:
    """Partial derivatives of a vector of symbols, shape (len(expressions), len(variables))."""
    shape = (len(expressions), len(variables))
    if 0 in shape:
        return np.zeros(shape)
    return from_sx(ca.jacobian(to_sx(expressions), to_sx(variables)), shape)


def directional(expressions: Array, variables: Array, direction: Array) -> Array:
    """Derivative of a vector of symbols along a direction, shape (len(expressions),); never forms the Jacobian."""
    if 0 in (len(expressions), len(variables)):
        return np.zeros(len(expressions))
    return from_sx(ca.jtimes(to_sx(expressions), to_sx(variables), to_sx(direction)), (len(expressions),))


Shape = tuple[int, ...]


def _shapes(arrays: Mapping[str, Array]) -> dict[str, Shape]:
    return {name: np.shape(array) for name, array in arrays.items()}


class Kernel:
    """A function of named arrays, compiled.

    Attributes:
        function: The CasADi function, for composition.
        inputs: Name -> shape, in order.
        outputs: Name -> shape, in order.
    """

    def __init__(self, function: Any, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape]) -> None:
        """Takes a CasADi function whose dense inputs and outputs have these names and shapes."""
        self.function, self.inputs, self.outputs = function, dict(inputs), dict(outputs)
        self._bind()

    @classmethod
    def compile(cls, name: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> "Kernel":
        """Compiles `outputs`, expressions of `inputs`, which are arrays of plain symbols."""
        results = ca.cse([to_sx(value) for value in outputs.values()])
        function = ca.Function(name, [to_sx(v) for v in inputs.values()], results, list(inputs), list(outputs))
        return cls(function, _shapes(inputs), _shapes(outputs))

    def _bind(self) -> None:
        self._buffer, self._evaluate = self.function.buffer()
        self._arguments = [np.zeros(shape, order="F") for shape in self.inputs.values()]
        self._results = [np.zeros(shape, order="F") for shape in self.outputs.values()]
        for index, array in enumerate(self._arguments):
            if array.size:
                self._buffer.set_arg(index, _view(array))
        for index, array in enumerate(self._results):
            if array.size:
                self._buffer.set_res(index, _view(array))

    def run_on(self, library: "Library") -> None:
        """Evaluates numbers in C from now on; symbols as before."""
        self._evaluate = library.caller(self.function.name(), self._arguments, self._results)

    def __call__(self, *values: Any) -> list[Array]:
        """Evaluates on numbers (copies of the results) or on symbols (inlined into their expressions)."""
        if is_symbolic(*values):
            results = self.function(*[to_sx(value) for value in values])
            results = results if isinstance(results, (tuple, list)) else (results,)
            return [from_sx(sx, shape) for sx, shape in zip(results, self.outputs.values(), strict=True)]
        for array, value in zip(self._arguments, values, strict=True):
            if np.size(value) != array.size:
                self._refuse(values)
            array[...] = value
        self._evaluate()
        return [array.copy() for array in self._results]

    def _refuse(self, values: Sequence[Any]) -> None:
        """Raises ValueError for the first value of the wrong size, which NumPy would stretch to fit."""
        for (name, shape), value in zip(self.inputs.items(), values, strict=True):
            if np.size(value) != np.prod(shape, dtype=int):
                raise ValueError(f"{self.function.name()}: {name}: expected shape {shape}, got {np.shape(value)}")


def _view(array: Array) -> Any:
    """The memory of an array in column order."""
    flat: Any = array.reshape(-1, order="F")
    return memoryview(flat)


def inputs(shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Fresh symbols for a kernel's inputs."""
    return {name: symbols(name, *shape) for name, shape in shapes.items()}
