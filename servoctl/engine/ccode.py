"""Compiles CasADi functions as C and calls them on the caller's arrays, without copies.

Design: a `Program` holds C source and the key of its library; `load` takes the library from the cache or compiles it.
A `Library` calls functions on buffers that the caller owns, like CasADi's virtual machine, and runs many steps without
returning to Python. cffi in ABI mode: a call takes a third of the time of ctypes, and releases Python's lock.

Design: a `BatchProgram` makes many runs of fixed steps side by side, one in each lane of the processor's vectors, and
keeps metrics only. Its source is that of a single run, over a number that holds several doubles. Each lane takes the
operations of a single run, so its results do not depend on the other lanes.
"""

import hashlib
import math
import platform
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from servoctl.engine import cache, compiler
from servoctl.engine.emit import emit, over_numbers
from servoctl.engine.ops import declaration, template
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


KEPT = ("least", "greatest", "last", "area", "span", "count", "first", "late")
"""Figures of a channel, in the order of `c/batch.h`."""


@dataclass(frozen=True)
class MetricChannel:
    """A value of each row from which metrics are computed."""

    entries: tuple[int, ...]  # indices in a row
    signed: bool = False  # whether the value is the first entry itself; else it is the Euclidean norm of the entries
    band: float = math.inf  # magnitude up to which the value counts as settled


@dataclass(frozen=True)
class BatchPlan:
    """What all runs of a batch have in common."""

    times: Array  # [s] times of the steps, shape (steps + 1,)
    every: int  # metrics use every so many rows, and the last one
    status: int  # index of the status in a row
    stops: Sequence[float]  # statuses to stop at
    codes: int  # number of different statuses
    channels: Sequence[MetricChannel]  # values from which metrics are computed

    @cached_property
    def measured(self) -> Array:
        """Times of the rows that metrics use [s]."""
        return np.append(self.times[:-1][:: self.every], self.times[-1])


@dataclass(frozen=True)
class BatchResult:
    """Results of the runs of a batch."""

    # shape (runs, channels, 8): `KEPT` of each channel, over the rows in which it is a number; `area` is the integral
    # of its square by trapezoids, `span` the time [s] that this covers, `late` the time [s] of the last row in which
    # its magnitude was above the band
    metrics: Array
    statuses: Array  # how many rows had each status, shape (runs, codes)
    # steps before the first with a status to stop at or a number that is not finite, shape (runs,); steps + 1 if there
    # is none
    good: Array
    ends: Array  # states after these steps, shape (runs, size)

    def of(self, kept: str) -> Array:
        """The figure of this name in `KEPT`, shape (runs, channels)."""
        values: Array = self.metrics[:, :, KEPT.index(kept)]
        return values


class BatchProgram(CSource):
    """C source of whole runs side by side."""

    def __init__(self, step: StepFunctions, lanes: int | None = None, content: str | None = None) -> None:
        """Writes the source.

        Args:
            lanes: Runs side by side; None: as many doubles as the processor's vectors hold.
            content: As of `CSource`, of the step.
        """
        self._step, self._lanes = step, compiler.lanes() if lanes is None else lanes
        super().__init__(
            lambda: (
                emit([kernel.function for kernel in step.kernels], step.leading) + step.source() + template("batch.h")
            ),
            [declaration("batch.h", "batch")],
            self._lanes,
            None if content is None else f"side by side in {self._lanes} lanes: {content}",
        )

    def load(self) -> "BatchLibrary":
        """The library; compiles it if the cache does not have it.

        Raises:
            CompileError: There is no compiler, it fails or takes too long, or its library cannot be loaded.
        """
        return BatchLibrary(self.opened(), self._step, self._lanes)


class BatchLibrary(CLibrary):
    """A loaded library."""

    def __init__(self, opened: tuple[Any, Any], step: StepFunctions, lanes: int) -> None:
        """Keeps a library; `step` is the step that it repeats."""
        super().__init__(opened)
        # lanes: runs side by side
        self._step, self.lanes = step, lanes

    def run(
        self,
        plan: BatchPlan,
        parameters: Array,
        starts: Array,
        halt: Array | None = None,
        random: Array | None = None,
        which: Array | None = None,
    ) -> BatchResult:
        """Simulates the runs; several threads may call it at the same time.

        Args:
            parameters: `step_parameters` of the loops, shape (runs, count).
            starts: States at the first time, shape (runs, size).
            halt: One integer; if another thread sets it to 1, the work ends soon and its result is invalid. None: the
                work is never interrupted.
            random: Tables of random numbers of each step of realistic runs, shape (tables, steps + 1, width); None:
                there are none.
            which: Table of each run, shape (runs,); None: the first.
        """
        runs, channels = len(starts), len(plan.channels)
        outcome = BatchResult(
            np.empty((runs, channels, len(KEPT))),
            np.empty((runs, plan.codes)),
            np.zeros(runs, dtype=np.int64),
            np.empty((runs, self._step.size)),
        )
        sizes = np.array([0 if channel.signed else len(channel.entries) for channel in plan.channels], dtype=np.int64)
        lengths = [len(channel.entries) for channel in plan.channels]
        firsts = np.array(np.cumsum([0, *lengths])[:-1], dtype=np.int64)
        entries = np.array([place for channel in plan.channels for place in channel.entries], dtype=np.int64)
        bands = np.array([channel.band for channel in plan.channels], dtype=float)
        stops = np.array(sorted(plan.stops), dtype=float)
        noise = np.zeros(0) if random is None else random
        tables = np.zeros(runs, dtype=np.int64) if which is None else which.astype(np.int64)
        flag = np.zeros(1, dtype=np.int64) if halt is None else halt
        times, p, x = (np.asarray(array, dtype=float) for array in (plan.times, parameters, starts))
        self.call(
            "batch", runs, len(times) - 1, times, plan.every, p, x, noise, tables, plan.status,
            len(stops), stops, channels, firsts, sizes, entries, bands, plan.codes, flag, *vars(outcome).values(),
        )  # fmt: skip
        return outcome
