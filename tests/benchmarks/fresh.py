"""Time of fresh Python processes."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servoctl.engine.background import SWITCH
from servoctl.errors import ServoctlError
from tests.benchmarks.contest import children_time

TIME_LIMIT = 300.0
"""Time limit of a process [s]."""


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
