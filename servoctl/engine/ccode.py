"""CasADi functions as generated C: one source, one shared library, called without copies.

Design: a `Program` is a source and the key of its library; `load` takes the library from the cache or compiles it. A
`Library` calls functions on buffers that the caller owns, as CasADi's virtual machine does, and takes whole runs of
fixed steps without coming back to Python. cffi in ABI mode: a call costs a third of what ctypes takes.
"""

import hashlib
import platform
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine import cache, compiler
from servoctl.errors import CompileError
from servoctl.types import Array

DRIVER = """
/* Steps from times[k] to times[k + 1], k = 0 .. count - 1: states[k] -> states[k + 1] and rows[k].
   Returns the number of steps before the first whose row has a status to stop at, or that ends in a number that is
   not finite: that one is the caller's to look at. */
CASADI_SYMBOL_EXPORT long long servoctl_steps(long long count, const double* times, const double* parameters,
    long long status, long long stop_count, const double* stops, double* states, double* rows,
    const double** arg, double** res, long long* iw, double* w) {{
  for (long long k = 0; k < count; ++k) {{
    const double h = times[k + 1] - times[k];
    const double* row = rows + k * {width};
    const double* next = states + (k + 1) * {size};
    arg[0] = states + k * {size};
    arg[1] = times + k;
    arg[2] = &h;
    arg[3] = parameters;
    res[0] = states + (k + 1) * {size};
    res[1] = rows + k * {width};
    if ({step}(arg, res, iw, w, 0)) return k;
    for (long long i = 0; i < stop_count; ++i) if (row[status] == stops[i]) return k;
    for (long long i = 0; i < {size}; ++i) if (!isfinite(next[i])) return k;
  }}
  return count;
}}
"""

STEPS = """long long servoctl_steps(long long, const double*, const double*, long long, long long, const double*,
    double*, double*, const double**, double**, long long*, double*);"""


class Program:
    """C source of some functions.

    Attributes:
        source: The C code.
    """

    def __init__(self, functions: Sequence[Any], step: Any = None) -> None:
        """Generates the source.

        Args:
            functions: CasADi functions.
            step: One more, (x, t, h, p) -> x after h, row; with it comes the driver that repeats it.
        """
        self._functions = {function.name(): function for function in [*functions, *([] if step is None else [step])]}
        self._step = step
        generator = ca.CodeGenerator("servoctl", {"with_header": False, "main": False, "mex": False})
        for function in self._functions.values():
            generator.add(function)
        self.source: str = generator.dump()
        if step is not None:
            self.source += DRIVER.format(step=step.name(), size=step.numel_out(0), width=step.numel_out(1))

    @cached_property
    def key(self) -> str:
        """What the library depends on: code, flags, compiler, CasADi and the machine's binary interface.

        Raises:
            CompileError: There is no compiler.
        """
        machine = (platform.machine(), sysconfig.get_platform(), *platform.libc_ver())
        parts = [self.source, *compiler.FLAGS, compiler.identity(), ca.CasadiMeta.version(), *machine]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    @property
    def cached(self) -> bool:
        """Whether the library is there already."""
        try:
            return cache.find(self.key) is not None
        except CompileError:
            return False

    def load(self) -> "Library":
        """The library, compiled where it is not in the cache.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        found = cache.find(self.key)
        if found is not None:
            try:
                return Library(found, self._functions, self._step)
            except OSError:
                cache.drop(found)
        try:
            with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
                built = Path(folder) / "code.so"
                compiler.build(self.source, built)
                return Library(cache.put(self.key, built), self._functions, self._step)
        except OSError as error:
            raise CompileError(f"the compiled library cannot be loaded: {error}") from error


class Library:
    """A loaded library."""

    def __init__(self, path: Path, functions: dict[str, Any], step: Any) -> None:
        """Loads.

        Raises:
            OSError: It cannot be loaded.
        """
        import cffi

        self._ffi = cffi.FFI()
        for name in functions:
            self._ffi.cdef(f"int {name}(const double**, double**, long long*, double*, int);")
        if step is not None:
            self._ffi.cdef(STEPS)
        self._library = self._ffi.dlopen(str(path))
        self._functions, self._step = functions, step

    def caller(self, name: str, arguments: Sequence[Array], results: Sequence[Array]) -> Callable[[], object]:
        """A call of a function that reads and writes these arrays, which lie in column order."""
        function, work = self._functions[name], self._work(self._functions[name])
        for index, array in enumerate(arguments):
            work[0][index] = self._pointer(array)
        for index, array in enumerate(results):
            work[1][index] = self._pointer(array)
        compiled = getattr(self._library, function.name())
        return lambda: compiled(*work, 0)

    @cached_property
    def _steps_work(self) -> tuple[Any, Any, Any, Any]:
        return self._work(self._step)

    def steps(self, x: Array, times: Array, parameters: Array, status: int, stops: Array) -> tuple[Array, Array]:
        """Takes fixed steps until one must be looked at.

        Args:
            x: State at the first time, shape (size,).
            times: Of the steps, shape (steps + 1,) [s].
            parameters: Of the loop.
            status: Where the status stands in a row.
            stops: Statuses to stop at.

        Returns:
            States, shape (good + 1, size), and rows, shape (good, width), of the steps that may be kept.
        """
        count = len(times) - 1
        states, rows = np.empty((count + 1, len(x))), np.empty((count, self._step.numel_out(1)))
        states[0] = x
        given = [np.ascontiguousarray(array, dtype=float) for array in (times, parameters, stops)]
        moments, p, codes = (self._pointer(array) for array in given)
        good = self._library.servoctl_steps(
            count, moments, p, status, len(stops), codes, self._pointer(states), self._pointer(rows), *self._steps_work
        )
        return states[: good + 1], rows[:good]

    def _work(self, function: Any) -> tuple[Any, Any, Any, Any]:
        new = self._ffi.new
        return (
            new("const double*[]", max(1, function.sz_arg())),
            new("double*[]", max(1, function.sz_res())),
            new("long long[]", max(1, function.sz_iw())),
            new("double[]", max(1, function.sz_w())),
        )

    def _pointer(self, array: Array) -> Any:
        """The memory of an array, which the caller keeps."""
        return self._ffi.cast("double*", array.ctypes.data) if array.size else self._ffi.NULL
