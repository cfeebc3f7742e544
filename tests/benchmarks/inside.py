"""A compiled function timed inside C, call by call, with no Python between the clock and the function."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.engine import compiler
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import Kernel
from servoctl.types import Array
from tests.benchmarks.contest import children_time

DRIVER = """
struct timespec {{ long tv_sec, tv_nsec; }};
int clock_gettime(int, struct timespec*);
static double bench_between(const struct timespec* a, const struct timespec* b) {{
  return (double) (b->tv_sec - a->tv_sec) + 1e-9 * (double) (b->tv_nsec - a->tv_nsec);
}}
/* `calls` calls of the function at the states 0 .. count - 1 in turn, or of the clock alone where `count` is 0 */
void bench_calls(long long calls, long long count, const double* t, const double* x,
    const double* p, double* out, double* seconds, const double** arg, double** res) {{
  struct timespec before, after;
  for (long long k = 0; k < calls; ++k) {{
    const long long j = count ? k % count : 0;
    arg[0] = t + j;
    arg[1] = x + j * {size};
    arg[2] = p;
{results}
    clock_gettime({clock}, &before);
    if (count) servoctl_{name}(arg, res);
    clock_gettime({clock}, &after);
    seconds[k] = bench_between(&before, &after);
  }}
}}
"""
DECLARATION = """void bench_calls(long long, long long, const double*, const double*, const double*, double*, double*,
    const double**, double**);"""


class Inside:
    """A kernel (t, x, p) -> results, compiled and called in C.

    Args:
        kernel: The kernel.
        times: Times of the states, shape (states,) [s].
        states: Shape (states, size).
        parameters: Parameters of the kernel.

    Attributes:
        states: Time and state of each call in turn.
        results: Results of the last calls, shape (states, outputs).
        compiling: Processor time of the compiler [s].

    Raises:
        CompileError: There is no compiler, or it fails.
    """

    def __init__(self, kernel: Kernel, times: Array, states: Array, parameters: Array) -> None:
        import cffi

        sizes = kernel.sizes()[1]
        starts = np.cumsum([0, *sizes])
        results = "\n".join(f"    res[{i}] = out + j * {starts[-1]} + {start};" for i, start in enumerate(starts[:-1]))
        clock = time.CLOCK_MONOTONIC
        driver = DRIVER.format(size=states.shape[1], results=results, name=kernel.name, clock=clock)
        with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
            built = Path(folder) / "inside.so"
            source, before = Program([kernel]).source + driver, children_time()
            compiler.build(source, built)
            self.compiling = children_time() - before
            self._ffi = cffi.FFI()
            self._ffi.cdef(DECLARATION)
            self._library = self._ffi.dlopen(str(built))
        self._inputs = [np.ascontiguousarray(array, dtype=float) for array in (times, states, parameters)]
        self.states = list(zip(*self._inputs[:2], strict=True))
        self.results = np.zeros((len(states), int(starts[-1])))
        new = self._ffi.new
        self._work = (
            new("const double*[]", 3),
            new("double*[]", len(sizes)),
        )

    def __call__(self, calls: int) -> Array:
        """Time of each call [s], without the median time to read the clock."""
        less: Array = np.maximum(self._run(calls, len(self.results)) - np.median(self._run(1000, 0)), 0.0)
        return less

    def _run(self, calls: int, count: int) -> Array:
        seconds = np.empty(calls)
        pointers = [self._pointer(array) for array in (*self._inputs, self.results, seconds)]
        self._library.bench_calls(calls, count, *pointers, *self._work)
        return seconds

    def _pointer(self, array: Array) -> Any:
        return self._ffi.cast("double*", array.ctypes.data)
