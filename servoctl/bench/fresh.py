"""Time and peak memory of fresh Python processes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servoctl.bench.timing import children_time
from servoctl.engine.detached import SWITCH
from servoctl.errors import ServoctlError

TIME_LIMIT = 300.0
"""Time limit of a process [s]."""

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
"""Code that prints the peak memory of its process [byte]; it stays text because importing servoctl would add to it.

ru_maxrss alone would include the memory of the parent process.
"""


class ProcessError(ServoctlError, RuntimeError):
    """A measured process failed."""


@dataclass(frozen=True)
class ProcessCost:
    """What a process took.

    Attributes:
        wall: Time from start to end [s].
        processor: Processor time, child processes included [s].
        output: What it printed.
    """

    wall: float
    processor: float
    output: str


def cost(words: list[str], cache: Path, finish: bool = False) -> ProcessCost:
    """Cost of `python WORDS` from start to end.

    Args:
        words: Arguments of the interpreter.
        cache: Folder for compiled libraries.
        finish: Whether a compiler may work on when the process has ended.
    """
    environment = {"SERVOCTL_CACHE": str(cache), SWITCH: str(int(finish))}
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        began, before = time.perf_counter(), children_time()
        output = _run(words, folder, environment)
        return ProcessCost(time.perf_counter() - began, children_time() - before, output)


def seconds(words: list[str], cache: Path) -> float:
    """Wall time of `python WORDS` from start to end [s]; arguments as of `cost`."""
    return cost(words, cache).wall


def peak(code: str) -> int:
    """Peak memory of a process that runs this code [byte]."""
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        output = _run(["-c", code + PEAK], folder, {})
    return int(output.rsplit("peak ", 1)[1])


def _run(words: list[str], folder: str, environment: Mapping[str, str]) -> str:
    search = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**own, "PYTHONPATH": search, **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProcessError(f"python {' '.join(words)[:60]}: ends with exit code {done.returncode}: {last}")
    return done.stdout
