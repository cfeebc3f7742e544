"""Compiles CasADi functions as C and calls them on the caller's arrays, without copies.

Design: a `Program` holds C source and the key of its library; `load` takes the library from the cache or compiles it.
A `Library` calls functions on buffers that the caller owns, like CasADi's virtual machine, and runs many steps without
returning to Python. cffi in ABI mode: a call takes a third of the time of ctypes, and releases Python's lock.
"""

import hashlib
import math
import platform
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from servoctl.engine import cache, compiler
from servoctl.engine.emit import emit, over_numbers
from servoctl.engine.ops import declaration
from servoctl.engine.step import StepFunctions
from servoctl.errors import CompileError
from servoctl.types import Array

STEP = "runge_kutta_step"  # name of the function (x, t, h, p) -> (x at t + h, row at t)

ENTRY = "void servoctl_{}(const double**, double**);"


class BoundCall(NamedTuple):
    """A call that reads and writes the same arrays every time; they are in column order."""

    evaluate: Callable[[], object]  # the call; it raises what code in NumPy raises
    arguments: Sequence[Array]
    results: Sequence[Array]
    # of `void (const double **arguments, double **results)`, by which other C code makes the same call; None: it does
    # not run in C
    address: int | None = None


class CSource:
    """C source and its compiled library."""

    def __init__(
        self, write: Callable[[], str], declarations: Sequence[str], lanes: int = 1, content: str | None = None
    ) -> None:
        """Writes the source, unless its content is known.

        Args:
            write: Gives code over the number V of `c/numbers.h`.
            declarations: C declarations of the functions that Python calls.
            lanes: How many doubles V holds; 0: the code does not use V.
            content: A text that stands for the source: equal texts mean equal sources, which are then written only
                where they are needed; None: there is none.
        """
        self._write, self._declarations, self._lanes, self._content = write, declarations, lanes, content

    @cached_property
    def source(self) -> str:
        """The C code.

        Raises:
            CompileError: An operation has no C.
        """
        return (over_numbers(self._lanes) if self._lanes else "") + self._write()

    @cached_property
    def key(self) -> str:
        """Hash of all that the library depends on: code, flags, compiler, CasADi, processor, binary interface.

        Raises:
            CompileError: There is no compiler, or an operation has no C.
        """
        machine = (platform.machine(), sysconfig.get_platform(), *platform.libc_ver())
        parts = [self.source, *compiler.flags(self.source)] if self._content is None else [self._content]
        parts += [] if compiler.optimises() else compiler.PLAIN
        parts += [compiler.identity(), ca.CasadiMeta.version(), *machine]
        return hashlib.sha256("\0".join([*parts, compiler.processor()]).encode()).hexdigest()[:32]

    @property
    def cached(self) -> bool:
        """Whether the cache has the library."""
        try:
            return cache.find(self.key) is not None
        except CompileError:
            return False

    def opened(self, limit: float = math.inf) -> tuple[Any, Any]:
        """cffi and the library; compiles it if the cache does not have it. `limit` is as of `compiler.build`.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        found = cache.find(self.key)
        if found is not None:
            try:
                return self._open(found.path)
            except (OSError, AttributeError):
                cache.drop(found.path)
        try:
            with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
                built = Path(folder) / "code.so"
                compiler.build(self.source, built, limit)
                kept = cache.put(self.key, built)
                try:
                    return self._open(kept)
                except (OSError, AttributeError):
                    cache.drop(kept)
                    raise
        except (OSError, AttributeError) as error:
            why = " ".join(str(error).partition(".  Additionally")[0].split())  # without cffi's list of other places
            raise CompileError(f"the compiled library cannot be loaded: {why}") from error

    def _open(self, path: Path) -> tuple[Any, Any]:
        """Loads a library; OSError if the file is not one, AttributeError if it lacks a declared function."""
        import cffi

        ffi = cffi.FFI()
        ffi.cdef("\n".join(self._declarations))
        library = ffi.dlopen(str(path))
        for name in dir(library):
            getattr(library, name)
        return ffi, library


class Program(CSource):
    """C source of functions, and of a step."""

    def __init__(self, kernels: Sequence[Any], step: StepFunctions | None = None, content: str | None = None) -> None:
        """Writes the source.

        Args:
            kernels: Python calls their functions by their names.
            step: A step and the loop that repeats it; the step is called by the name `STEP`. None: no step.
            content: As of `CSource`.
        """
        self._step = step
        self._functions = {kernel.name: (len(kernel.inputs), len(kernel.outputs)) for kernel in kernels}
        called, declarations = dict(self._functions), []

        def write() -> str:
            emitted = [*kernels, *([] if step is None else step.kernels)]
            text = emit([kernel.function for kernel in emitted], {} if step is None else step.leading)
            text += "".join(_entry(name, *counts) for name, counts in called.items())
            return text + ("" if step is None else step.source())

        if step is not None:
            if step.delays is None:
                self._functions[STEP] = (4, 2)
            declarations.append(declaration("stretches.h", "steps"))
        declarations += [ENTRY.format(name) for name in self._functions]
        super().__init__(write, declarations, content=content)

    def load(self, limit: float = math.inf) -> "Library":
        """The library; compiles it if the cache does not have it. `limit` is as of `compiler.build`.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        return Library(self.opened(limit), self._functions, self._step)


def _entry(name: str, inputs: int, outputs: int) -> str:
    """C of the function that Python calls."""
    arguments = [f"arg[{i}]" for i in range(inputs)] + [f"res[{i}]" for i in range(outputs)]
    return f"void servoctl_{name}(const double** arg, double** res) {{ f_{name}({', '.join(arguments)}); }}\n"


class CLibrary:
    """A loaded library: `opened` is cffi and the library."""

    def __init__(self, opened: tuple[Any, Any]) -> None:
        self._ffi, self._library = opened

    def call(self, name: str, *values: Any) -> Any:
        """Calls `servoctl_<name>` with numbers and arrays; it may write into those that are contiguous."""
        arrays = [_in_memory(value) if isinstance(value, np.ndarray) else value for value in values]
        given = [pointer(self._ffi, value) if isinstance(value, np.ndarray) else value for value in arrays]
        return getattr(self._library, f"servoctl_{name}")(*given)


class Library(CLibrary):
    """Functions, and a step and the loop that repeats it."""

    def __init__(
        self, opened: tuple[Any, Any], functions: dict[str, tuple[int, int]], step: StepFunctions | None
    ) -> None:
        """Keeps a library.

        Args:
            functions: Name -> number of inputs, number of outputs.
            step: The step that the library repeats; None: it has none.
        """
        super().__init__(opened)
        self._functions, self._step = functions, step

    def caller(self, name: str, arguments: Sequence[Array], results: Sequence[Array]) -> BoundCall:
        """A call of a function that reads and writes these arrays, which are in column order."""
        input_count, output_count = self._functions[name]
        inputs = self._ffi.new("const double*[]", max(1, input_count))
        outputs = self._ffi.new("double*[]", max(1, output_count))
        for index, array in enumerate(arguments):
            inputs[index] = pointer(self._ffi, array)
        for index, array in enumerate(results):
            outputs[index] = pointer(self._ffi, array)
        call = partial(getattr(self._library, f"servoctl_{name}"), inputs, outputs)
        call.kept = (self, arguments, results)  # type: ignore[attr-defined]
        return BoundCall(call, arguments, results, int(self._ffi.cast("uintptr_t", call.func)))

    def steps(
        self, x: Array, times: Array, parameters: Array, status: int, stops: Array, random: Array | None = None
    ) -> tuple[Array, Array]:
        """Takes fixed steps, up to the first that has a status to stop at or a number that is not finite.

        Args:
            x: State at the first time, shape (size,).
            times: Times of the steps, shape (steps + 1,) [s].
            random: Random numbers of each step of a realistic run, shape (steps, width); None: there are none.

        Returns:
            States, shape (good + 1, size), and rows, shape (good, width), of the steps before that one.
        """
        count, (states, rows) = len(times) - 1, self.room(len(times))
        states[0] = x
        codes, drawn = np.asarray(stops, dtype=float), np.zeros(0) if random is None else random
        good = self.call("steps", count, times, parameters, status, len(codes), codes, drawn, states, rows)
        return states[: good + 1], rows[:good]

    def room(self, count: int) -> tuple[Array, Array]:
        """Uninitialised states, shape (count, size), and rows, shape (count, width)."""
        assert self._step is not None
        return np.empty((count, self._step.size)), np.empty((count, self._step.width))


def _in_memory(array: Array) -> Array:
    """The array as C takes it: doubles or integers of 64 bits, row by row."""
    return np.ascontiguousarray(array, dtype=np.int64 if array.dtype == np.int64 else float)


def pointer(ffi: Any, array: Array) -> Any:
    """C pointer to an array's memory; the caller keeps the array alive."""
    kind = "long long*" if array.dtype == np.int64 else "double*"
    return ffi.cast(kind, array.ctypes.data) if array.size else ffi.NULL
