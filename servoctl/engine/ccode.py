"""CasADi functions as C: one source, one shared library, called without copies.

Design: a `Program` is a source and the key of its library; `load` takes the library from the cache or compiles it. A
`Library` calls functions on buffers that the caller owns, as CasADi's virtual machine does, and takes whole runs of
fixed steps without coming back to Python. cffi in ABI mode: a call costs a third of what ctypes takes, and other
threads run meanwhile.
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
from servoctl.engine.adaptive_steps import DOP853
from servoctl.engine.emit import emit, template
from servoctl.engine.step import StepFunctions
from servoctl.errors import CompileError
from servoctl.types import Array

STEP = "runge_kutta_step"
"""Name of the function (x, t, h, p) -> x after h, row at the start."""

ENTRY = "void servoctl_{}(const double**, double**);"
STEPS = """long long servoctl_steps(long long, const double*, const double*, long long, long long, const double*,
    const double*, double*, double*);"""


class CSource:
    """C source, and where its library is.

    Attributes:
        source: The C code.
    """

    def __init__(self, source: str, declarations: Sequence[str], lanes: int = 1) -> None:
        """Takes the C code.

        Args:
            source: Code over the number of `c/numbers.h`.
            declarations: Of what is called from outside.
            lanes: Doubles in a number.
        """
        self.source = f"#define LANES {lanes}\n" + template("numbers.h") + template("sine.h") + source
        self._declarations = declarations

    @cached_property
    def key(self) -> str:
        """What the library depends on: code, flags, compiler, CasADi, processor and binary interface.

        Raises:
            CompileError: There is no compiler.
        """
        machine = (platform.machine(), sysconfig.get_platform(), *platform.libc_ver())
        parts = [self.source, *compiler.flags(), compiler.identity(), ca.CasadiMeta.version(), *machine]
        return hashlib.sha256("\0".join([*parts, compiler.processor()]).encode()).hexdigest()[:32]

    @property
    def cached(self) -> bool:
        """Whether the library is there already."""
        try:
            return cache.find(self.key) is not None
        except CompileError:
            return False

    def opened(self) -> tuple[Any, Any]:
        """cffi and the library, compiled where it is not in the cache.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        found = cache.find(self.key)
        if found is not None:
            try:
                return self._open(found)
            except (OSError, AttributeError):
                cache.drop(found)
        try:
            with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
                built = Path(folder) / "code.so"
                compiler.build(self.source, built)
                kept = cache.put(self.key, built)
                try:
                    return self._open(kept)
                except (OSError, AttributeError):
                    cache.drop(kept)
                    raise
        except (OSError, AttributeError) as error:
            why = " ".join(
                str(error).partition(".  Additionally")[0].split()
            )  # cffi looks elsewhere then, and says so at length
            raise CompileError(f"the compiled library cannot be loaded: {why}") from error

    def _open(self, path: Path) -> tuple[Any, Any]:
        """Raises OSError for what is no library, AttributeError for a library without what was declared."""
        import cffi

        ffi = cffi.FFI()
        ffi.cdef("\n".join(self._declarations))
        library = ffi.dlopen(str(path))
        for name in dir(library):
            getattr(library, name)
        return ffi, library


class Program(CSource):
    """C source of some functions, and of a step."""

    def __init__(self, functions: Sequence[Any], step: StepFunctions | None = None) -> None:
        """Writes the source.

        Args:
            functions: CasADi functions, to be called by their names.
            step: One more, named `STEP`; with it comes the driver that repeats it.

        Raises:
            CompileError: An operation has no C.
        """
        self._step = step
        self._functions = {function.name(): (function.n_in(), function.n_out()) for function in functions}
        emitted = emit([*functions, *([] if step is None else step.functions)])
        entries = [_entry(name, *counts) for name, counts in self._functions.items()]
        declarations = []
        if step is not None:
            if step.between is None:
                self._functions[STEP] = (4, 2)
            entries.append(step.source())
            entries += [] if step.substeps is not None else [template("dop853.h")]
            declarations += [STEPS] if step.substeps is not None else [STEPS, DOP853]
        declarations += [ENTRY.format(name) for name in self._functions]
        super().__init__(emitted + "".join(entries), declarations)

    def load(self) -> "Library":
        """The library, compiled where it is not in the cache.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        return Library(self.opened(), self._functions, self._step)


def _entry(name: str, given: int, taken: int) -> str:
    """The function that is called from outside."""
    arguments = [f"arg[{i}]" for i in range(given)] + [f"res[{i}]" for i in range(taken)]
    return f"void servoctl_{name}(const double** arg, double** res) {{ f_{name}({', '.join(arguments)}); }}\n"


class Library:
    """A loaded library."""

    def __init__(
        self, opened: tuple[Any, Any], functions: dict[str, tuple[int, int]], step: StepFunctions | None
    ) -> None:
        """Takes cffi and the library, its functions with the numbers of their inputs and outputs, and its step."""
        self._ffi, self._library = opened
        self._functions, self._step = functions, step

    def caller(self, name: str, arguments: Sequence[Array], results: Sequence[Array]) -> Callable[[], object]:
        """A call of a function that reads and writes these arrays, which lie in column order."""
        given, taken = self._functions[name]
        inputs = self._ffi.new("const double*[]", max(1, given))
        outputs = self._ffi.new("double*[]", max(1, taken))
        for index, array in enumerate(arguments):
            inputs[index] = pointer(self._ffi, array)
        for index, array in enumerate(results):
            outputs[index] = pointer(self._ffi, array)
        compiled = getattr(self._library, f"servoctl_{name}")

        def call(kept: object = (self, arguments, results)) -> object:
            return compiled(inputs, outputs)

        return call

    def steps(
        self, x: Array, times: Array, parameters: Array, status: int, stops: Array, random: Array | None = None
    ) -> tuple[Array, Array]:
        """Takes fixed steps until one must be looked at.

        Args:
            x: State at the first time, shape (size,).
            times: Of the steps, shape (steps + 1,) [s].
            parameters: `step_parameters` of the loop.
            status: Where the status stands in a row.
            stops: Statuses to stop at.
            random: Of a realistic run: random numbers of each step, shape (steps, width).

        Returns:
            States, shape (good + 1, size), and rows, shape (good, width), of the steps that may be kept.
        """
        assert self._step is not None
        count = len(times) - 1
        states, rows = np.empty((count + 1, len(x))), np.empty((count, self._step.width))
        states[0] = x
        given = [np.ascontiguousarray(array, dtype=float) for array in (times, parameters, stops)]
        given.append(np.zeros(0) if random is None else np.ascontiguousarray(random))
        moments, p, codes, *taken = (pointer(self._ffi, array) for array in (*given, states, rows))
        good = self._library.servoctl_steps(count, moments, p, status, len(stops), codes, *taken)
        return states[: good + 1], rows[:good]

    def room(self, count: int) -> tuple[Array, Array]:
        """Empty states and rows."""
        assert self._step is not None
        return np.empty((count, self._step.size)), np.empty((count, self._step.width))

    def dop853(self, *values: Any) -> int:
        """`servoctl_dop853` of `c/dop853.h`; what is an array goes in place."""
        given = [pointer(self._ffi, value) if isinstance(value, np.ndarray) else value for value in values]
        return int(self._library.servoctl_dop853(*given))


def pointer(ffi: Any, array: Array) -> Any:
    """The memory of an array, which the caller keeps."""
    kind = "long long*" if array.dtype == np.int64 else "double*"
    return ffi.cast(kind, array.ctypes.data) if array.size else ffi.NULL
