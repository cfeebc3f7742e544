"""The system's C compiler: which it is, and C source in, shared library out.

Design: a compiler is a convenience. Whatever is wrong with it ends in one `CompileError` of one line within a time
limit, and the caller goes on without C.
"""

import math
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from servoctl.errors import CompileError

FLAGS = (
    "-O3", "-fschedule-insns", "-fsched-pressure", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-Wno-psabi", "-fPIC", "-shared",
)  # fmt: skip
"""No contraction, so that the numbers are the virtual machine's to rounding, and alike scalar and side by side; no
errno: sqrt is one instruction; no traps: choices need no branches. With gcc 12, -O2 leaves the loops of a decomposition
as they are, and takes half as long again; scheduling before registers are given saves 5 %."""

TIME_LIMIT = 300.0
"""Longest compilation [s]; SERVOCTL_COMPILE_LIMIT overrides."""

QUESTION_LIMIT = 10.0
"""Longest time that a compiler may take to say its version [s]."""


def compiler() -> list[str] | None:
    """The command of the C compiler: $CC, or the first of cc, gcc, clang on the path; None where there is none."""
    text = os.environ.get("CC", "").strip()
    try:
        named = shlex.split(text)
    except ValueError:  # a quotation that does not end
        named = [text]
    if named:
        return named if shutil.which(named[0]) else None
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


def identity() -> str:
    """What the compiler calls itself.

    Raises:
        CompileError: There is no compiler, or it does not say.
    """
    found = _identity(tuple(_command()))
    if isinstance(found, CompileError):
        raise found
    return found


@lru_cache
def processor() -> str:
    """What tells processors apart whose code is not interchangeable: the features that Linux lists; else empty."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("flags")), "")


def flags() -> tuple[str, ...]:
    """The compiler's flags; for this very processor where its features are known, since they are part of the key."""
    return (*FLAGS, "-march=native") if "avx" in processor().split() else FLAGS


def lanes() -> int:
    """Doubles that the processor computes side by side."""
    features = processor().split()
    return 8 if "avx512f" in features else 4 if "avx" in features else 2


def build(source: str, target: Path) -> None:
    """Compiles C source into a shared library.

    Raises:
        CompileError: There is no compiler, it fails, or it takes too long.
    """
    code = target.with_suffix(".c")
    code.write_text(source)
    _call([*_command(), *flags(), "-o", str(target), str(code), "-lm"], time_limit())


def time_limit() -> float:
    """Longest compilation [s]; what is no positive number counts as not given."""
    try:
        limit = float(os.environ.get("SERVOCTL_COMPILE_LIMIT", TIME_LIMIT))
    except ValueError:
        return TIME_LIMIT
    return limit if 0.0 < limit < math.inf else TIME_LIMIT


def _command() -> list[str]:
    command = compiler()
    if command is None:
        named = os.environ.get("CC", "").strip()
        raise CompileError(f"no C compiler: CC={named} is not found" if named else "no C compiler on the path")
    return command


@lru_cache
def _identity(command: tuple[str, ...]) -> str | CompileError:
    """The answer, or why there is none: a compiler that hangs is not asked again."""
    try:
        return _call([*command, "--version"], QUESTION_LIMIT)
    except CompileError as error:
        return error


def _call(command: Sequence[str], limit: float) -> str:
    """Output of a command, which is ended with all that it has started when it takes too long."""
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise CompileError(f"the C compiler {name} does not start: {error.strerror}") from error
    try:
        output, errors = process.communicate(timeout=limit)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise CompileError(f"the C compiler {name} takes longer than {limit:g} s") from error
        raise
    if process.returncode != 0:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        why = next((line for line in lines if "error" in line), lines[-1] if lines else "it says nothing")
        raise CompileError(f"the C compiler {name} fails with exit code {process.returncode}: {why}")
    return output


def _end(process: "subprocess.Popen[str]") -> None:
    """Ends a compiler and its own children, which share its session."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
