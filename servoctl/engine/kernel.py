"""Compiled functions of named arrays, on CasADi's virtual machine or in C.

Design: a `Kernel` has buffers of its own in each thread, so a call allocates only its results, and threads that share a
kernel never see each other's numbers.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.ccode import BoundCall, Library, Program
from servoctl.engine.fingerprint import function_fingerprint, key_of
from servoctl.engine.numpy_call import numpy_calls, raise_failure
from servoctl.engine.symbol import Symbol, from_sx, is_symbolic, symbols, to_sx
from servoctl.errors import CompileError
from servoctl.types import Array


def jacobian(expressions: Array, variables: Array) -> Array:
    """Partial derivatives of a vector of symbols, shape (len(expressions), len(variables))."""
    shape = (len(expressions), len(variables))
    if 0 in shape:
        return np.zeros(shape)
    slopes = ca.jacobian(to_sx(expressions), to_sx(variables))
    # entries that are zero for certain are numbers, in the same order in memory as those of `from_sx`
    dense: Array = np.full(shape, 0.0, order="F").astype(object)
    places = slopes.sparsity().get_triplet()
    dense[places] = np.array([Symbol(entry) for entry in slopes.nonzeros()], dtype=object)
    return dense


def directional(expressions: Array, variables: Array, direction: Array) -> Array:
    """Derivative of a vector of symbols along a direction, shape (len(expressions),); never forms the Jacobian."""
    if 0 in (len(expressions), len(variables)):
        return np.zeros(len(expressions))
    return from_sx(ca.jtimes(to_sx(expressions), to_sx(variables), to_sx(direction)), (len(expressions),))


def substituted(expressions: Sequence[Array], symbols: Sequence[Array], values: Sequence[Array]) -> list[Array]:
    """The expressions with values in place of symbols; other symbols in them stay."""
    old, new = ([to_sx(array) for array in arrays] for arrays in (symbols, values))
    found = ca.substitute([to_sx(expression) for expression in expressions], old, new)
    return [from_sx(sx, np.shape(expression)) for sx, expression in zip(found, expressions, strict=True)]


WRITTEN_OUT = 400_000
"""Operations times entries up to which a derivative is written out: beyond, that takes seconds and gigabytes."""

Shape = tuple[int, ...]
_FLOAT = np.dtype(float)


def _shapes(arrays: Mapping[str, Array]) -> dict[str, Shape]:
    return {name: np.shape(array) for name, array in arrays.items()}


class BufferedCall:
    """A function with its own buffers, for a real-time loop: write `inputs`, call, read `outputs`.

    A call allocates, copies and checks nothing. Not thread-safe: use one per thread.
    """

    def __init__(self, kernel: "Kernel") -> None:
        """Uses the kernel's present engine; a later change of the kernel's engine has no effect here."""
        # name -> array; write into it
        self.inputs = {name: np.zeros(shape, order="F") for name, shape in kernel.inputs.items()}
        # name -> array; every call overwrites it
        self.outputs = {name: np.zeros(shape, order="F") for name, shape in kernel.outputs.items()}
        self.bound = kernel.bound(list(self.inputs.values()), list(self.outputs.values()))
        self.evaluate = self.bound.evaluate  # the call itself
        self.function = kernel.function  # the CasADi function

    def __call__(self) -> None:
        """Evaluates."""
        self.evaluate()


class Kernel:
    """A function of named arrays, compiled."""

    def __init__(
        self,
        function: Any,
        inputs: Mapping[str, Shape],
        outputs: Mapping[str, Shape],
        name: str | None = None,
        length: int | None = None,
    ) -> None:
        """Names the inputs and outputs of a CasADi function, which must be dense and have these shapes.

        Args:
            function: The function; with a name, () -> the function, made when more than its name and sizes is needed.
            name: Of a function that is made later.
            length: Number of its instructions, if it is known before.
        """
        # inputs: name -> shape, in order
        # outputs: name -> shape, in order
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.name: str = function.name() if name is None else name
        self._make, self._length = function if name is not None else lambda: function, length
        self._library: Library | None = None
        self._derivatives: dict[tuple[Any, ...], Kernel] = {}
        self._call = _Call(self)

    @cached_property
    def function(self) -> Any:
        """The CasADi function, for composition."""
        return self._make()

    @property
    def length(self) -> int:
        """Number of its instructions."""
        return int(self.function.n_instructions()) if self._length is None else self._length

    def sizes(self) -> tuple[list[int], list[int]]:
        """Number of entries of each input, and of each output."""
        return list(map(math.prod, self.inputs.values())), list(map(math.prod, self.outputs.values()))

    @classmethod
    def compile(cls, name: str, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> "Kernel":
        """Makes a kernel of `outputs`, which are expressions of `inputs`, arrays of plain symbols."""
        results = ca.cse([to_sx(value) for value in outputs.values()])
        function = ca.Function(name, [to_sx(v) for v in inputs.values()], results, list(inputs), list(outputs))
        return cls(function, _shapes(inputs), _shapes(outputs))

    def only(self, name: str, *outputs: str) -> "Kernel":
        """A kernel of some of the outputs, without the operations that only the others need."""
        given = self.function.sx_in()
        results = dict(zip(self.outputs, self.function.call(given), strict=True))
        function = ca.Function(name, given, [results[output] for output in outputs], list(self.inputs), list(outputs))
        return Kernel(function, self.inputs, {output: self.outputs[output] for output in outputs})

    def derivative(self, by: str, of: str | None = None, entries: slice = slice(None)) -> "Kernel":
        """The derivative of an output that is a vector by an input that is one, shape (values, entries).

        Args:
            by: The input.
            of: The output; None: the first.
            entries: Those of the output that count.
        """
        of = next(iter(self.outputs)) if of is None else of
        key = of, by, entries.start, entries.stop
        if key not in self._derivatives:
            given = self.function.sx_in()
            value = self.function.call(given)[list(self.outputs).index(of)][entries]
            index, name = list(self.inputs).index(by), f"{self.name}_{of}_by_{by}"
            x = given[index]
            if self.length * x.numel() > WRITTEN_OUT:
                given, slopes = _in_turn(ca.Function(self.name, given, [value]), index)
            else:
                slopes = ca.jacobian(value, x)
            function = ca.Function(name, given, [ca.densify(slopes)], list(self.inputs), [name])
            self._derivatives[key] = Kernel(function, self.inputs, {name: (value.numel(), x.numel())})
        return self._derivatives[key]

    def called(self) -> Any:
        """The CasADi function as one that is never inlined, so that its code appears once."""
        given = self.function.sx_in()
        return ca.Function(f"{self.name}_called", given, self.function.call(given), {"never_inline": True})

    def bound(self, arguments: Sequence[Array], results: Sequence[Array]) -> BoundCall:
        """A call that reads and writes these arrays, which are in column order."""
        if self._library is not None:
            return self._library.caller(self.name, arguments, results)
        buffer, evaluate = self.function.buffer()
        for index, array in enumerate(arguments):
            if array.size:
                buffer.set_arg(index, _view(array))
        for index, array in enumerate(results):
            if array.size:
                buffer.set_res(index, _view(array))

        def call(kept: Any = (buffer, arguments, results)) -> object:
            return evaluate()

        in_numpy = numpy_calls(self.function)
        if not in_numpy:
            return BoundCall(call, arguments, results)

        def guarded(kept: Any = in_numpy) -> None:
            try:
                call()
            except RuntimeError as error:  # of Ctrl-C between CasADi and the code in NumPy there is only the word
                raise_failure()
                raise (KeyboardInterrupt() if "KeyboardInterrupt" in str(error) else error) from None
            raise_failure()

        return BoundCall(guarded, arguments, results)

    def run_on(self, library: Library) -> None:
        """Evaluates numbers by a library in C from now on; symbols as before."""
        self._library = library
        self._call = _Call(self)

    def __call__(self, *values: Any) -> list[Array]:
        """Evaluates on numbers (copies of the results) or on symbols (inlined into their expressions)."""
        call = self._call
        for array, value in zip(call.arguments, values, strict=True):
            kind = value.__class__
            if kind is np.ndarray and value.dtype is _FLOAT and value.shape == array.shape:
                array[...] = value
            elif kind is float and array.size == 1:
                array.fill(value)
            else:
                return self._convert(values)
        call.evaluate()
        return [array.copy() for array in call.results]

    def _convert(self, values: Sequence[Any]) -> list[Array]:
        """`__call__` for symbols, and for numbers of another type or shape."""
        if is_symbolic(*values):
            results = self.function(*[to_sx(value) for value in values])
            results = results if isinstance(results, (tuple, list)) else (results,)
            return [from_sx(sx, shape) for sx, shape in zip(results, self.outputs.values(), strict=True)]
        call = self._call
        for array, value in zip(call.arguments, values, strict=True):
            if np.size(value) != array.size:
                self._refuse(values)
            array[...] = value
        call.evaluate()
        return [array.copy() for array in call.results]

    def _refuse(self, values: Sequence[Any]) -> None:
        """Raises ValueError for the first value of the wrong size, which NumPy would broadcast."""
        for (name, shape), value in zip(self.inputs.items(), values, strict=True):
            if np.size(value) != np.prod(shape, dtype=int):
                raise ValueError(f"{self.name}: {name}: expected shape {shape}, got {np.shape(value)}")


def _in_turn(function: Any, index: int) -> tuple[list[Any], Any]:
    """Symbols of a function's inputs, and its derivative by one of them: one code for all entries, one at a time."""
    count = function.n_in()
    given = [ca.MX.sym(function.name_in(i), *function.size_in(i)) for i in range(count)]
    directions = [ca.MX(*function.size_in(i)) for i in range(count)]
    entries = directions[index].numel()
    directions[index] = ca.MX(ca.DM.eye(entries))
    seeded = count + 1 + index  # inputs of the forward derivative: those of the function, its result, the directions
    shared = [i for i in range(2 * count + 1) if i != seeded]
    along = function.forward(1).map(function.name(), "serial", entries, shared, [])
    return given, along(*given, function(*given), *directions)


class _Call(threading.local):
    """A kernel's call on numbers, with buffers of its own in each thread."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.arguments = [_floats(shape) for shape in kernel.inputs.values()]
        self.results = [_floats(shape) for shape in kernel.outputs.values()]
        self.evaluate: Callable[[], object] = self._first

    def _first(self) -> object:
        """The first evaluation; until then a function need not be made."""
        self.evaluate = self._kernel.bound(self.arguments, self.results).evaluate
        return self.evaluate()


def _floats(shape: Shape) -> Array:
    """Zeros in column order; also within a trace, where `np.zeros` gives objects."""
    array: Array = np.ndarray(shape, order="F")
    array.fill(0.0)
    return array


def _view(array: Array) -> Any:
    """The memory of an array in column order."""
    flat: Any = array.reshape(-1, order="F")
    return memoryview(flat)


def inputs(shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Fresh symbols for a kernel's inputs."""
    return {name: symbols(name, *shape) for name, shape in shapes.items()}


AT_START = 60.0
"""Longest time that the start of a loop in real time waits for the compiler, unless `c` is asked for [s]."""


def patience(engine: str) -> float:
    """Longest time to wait for the compiler with `auto` or `c` [s]."""
    return AT_START if engine == "auto" else math.inf


def run_fast(kernel: Kernel, engine: str, *others: Kernel) -> tuple[str, str]:
    """Moves kernels from the virtual machine to C, if `engine` allows it.

    Args:
        kernel: Kernel on the virtual machine.
        engine: `auto`, `c`, `vm` or `numpy`; `auto` waits for the compiler no longer than `AT_START`.
        others: More kernels for the same library.

    Returns:
        The engine in use, and the reason why it is not C; the reason is empty if C is in use, or was not asked for.
    """
    if engine in ("vm", "numpy"):
        return engine, ""
    try:
        content = key_of(*(partial(function_fingerprint, each.function) for each in (kernel, *others)))
        library = Program([kernel, *others], content=content).load(patience(engine))
    except CompileError as error:
        return "vm", str(error)
    for each in (kernel, *others):
        each.run_on(library)
    return "c", ""
