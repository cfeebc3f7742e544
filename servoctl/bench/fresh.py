"""Python processes that start from nothing: how long until something is there, and how much memory it takes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from servoctl.errors import ServoctlError

TIME_LIMIT = 300.0
"""Longest that one may take [s]."""

PEAK = """
def peak():
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource, sys
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most * (1 if sys.platform == "darwin" else 1024)
print("peak", peak())
"""
"""Prints the most memory that the process has held [byte]; ru_maxrss alone would count that of the parent too."""


class ProcessError(ServoctlError, RuntimeError):
    """A process that was to be measured has failed."""


def seconds(words: list[str], cache: Path) -> float:
    """Wall time of `python WORDS`, from its start to its end [s].

    Args:
        words: Arguments of the interpreter.
        cache: Folder of compiled libraries.
    """
    with tempfile.TemporaryDirectory(prefix="servoctl-") as place:
        began = time.perf_counter()
        _run(words, place, {"SERVOCTL_CACHE": str(cache)})
        return time.perf_counter() - began


def peak(code: str) -> int:
    """Most memory that a process which runs this code holds [byte]."""
    with tempfile.TemporaryDirectory(prefix="servoctl-") as place:
        output = _run(["-c", code + PEAK], place, {})
    return int(output.rsplit("peak ", 1)[1])


def printed(code: str) -> str:
    """What a process that runs this code prints."""
    with tempfile.TemporaryDirectory(prefix="servoctl-") as place:
        return _run(["-c", code], place, {})


def _run(words: list[str], place: str, environment: Mapping[str, str]) -> str:
    search = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": search, **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ProcessError(f"python {' '.join(words)[:60]}: ends with exit code {done.returncode}: {last}")
    return done.stdout
