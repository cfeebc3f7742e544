"""The law in C++, compiled from `law.cpp` with the headers and the library of Pinocchio's wheel, and Eigen."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from servoctl.errors import CompileError
from servoctl.types import Array

SOURCE = Path(__file__).with_name("law.cpp")
EIGEN = (Path("/usr/include/eigen3"), Path("/usr/local/include/eigen3"), Path("/opt/homebrew/include/eigen3"))
OPTIONS = (
    "-O3", "-w", "-march=native", "-DNDEBUG", "-std=c++17", "-fPIC", "-shared", "-DBOOST_FUSION_INVOKE_MAX_ARITY=12",
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS", "-DBOOST_MPL_LIMIT_LIST_SIZE=30", "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
)  # fmt: skip
"""Options of the compiler; Pinocchio's own headers need those of Boost."""


class LawInCpp:
    """The control step of the coordinated robots, timed call by call in C++.

    Args:
        t: Times of the states, shape (states,) [s].
        q: Joint angles, shape (states, 5) [rad].
        v: Their rates, shape (states, 5) [rad/s].

    Attributes:
        results: u of the last calls, shape (states, 6) [N m].

    Raises:
        CompileError: There is no compiler, no Eigen or no wheel of Pinocchio, or the compiler fails.
    """

    def __init__(self, t: Array, q: Array, v: Array) -> None:
        import cffi

        self._inputs = [np.ascontiguousarray(array, dtype=float) for array in (t, q, v)]
        self.results = np.zeros((len(t), 6))
        self._ffi = cffi.FFI()
        self._ffi.cdef(
            "void peer_calls(long long, long long, const double*, const double*, const double*, double*, double*);"
        )
        with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
            built = Path(folder) / "law.so"
            subprocess.run(command(built), check=False)
            if not built.exists():
                raise CompileError(f"{SOURCE.name}: the C++ compiler fails")
            self._library = self._ffi.dlopen(str(built))

    def __call__(self, calls: int) -> Array:
        """Time of each call [s], without the median time to read the clock."""
        less: Array = np.maximum(self._run(calls, len(self.results)) - np.median(self._run(1000, 0)), 0.0)
        return less

    def _run(self, calls: int, count: int) -> Array:
        seconds = np.empty(calls)
        pointers = [self._ffi.cast("double*", each.ctypes.data) for each in (*self._inputs, self.results, seconds)]
        self._library.peer_calls(calls, count, *pointers)
        return seconds


def command(built: Path) -> list[str]:
    """The command that compiles the law.

    Raises:
        CompileError: A part of it is missing.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    eigen = next((folder for folder in EIGEN if folder.is_dir()), None)
    try:
        import pinocchio
    except ImportError:
        raise CompileError("the law in C++ needs pinocchio (pip install 'servoctl[bench]')") from None
    prefix = next((p for p in Path(pinocchio.__file__).parents if (p / "include" / "pinocchio").is_dir()), None)
    if compiler is None or eigen is None or prefix is None:
        raise CompileError("the law in C++ needs g++, Eigen (libeigen3-dev) and the wheel of pinocchio")
    headers = [prefix / "include", prefix / "include" / "pinocchio" / "deprecated", eigen]
    library = prefix / "lib"
    return [
        compiler, *OPTIONS, *(f"-I{folder}" for folder in headers), str(SOURCE), "-o", str(built),
        f"-L{library}", "-lpinocchio_default", f"-Wl,-rpath,{library}",
    ]  # fmt: skip
