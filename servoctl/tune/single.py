"""Measures the time of `servoctl run` as a process of its own, for comparison with a search."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from servoctl.config.overrides import Override, setting
from servoctl.tune.problem import Point

TIMES = 3
"""Number of processes that are timed."""


def seconds_of_a_process(config: Path, overrides: Sequence[Override], points: Sequence[Point]) -> float | None:
    """The median time of a `servoctl run` process [s]; None if a process fails.

    Args:
        config: The config file.
        overrides: Arguments of `--set` and `--set-file`.
        points: Path -> value: further changes, used in turn by the processes.
    """
    times = []
    with tempfile.TemporaryDirectory(prefix="servoctl-tune-") as folder:
        for number in range(TIMES):
            point = points[number % len(points)]
            command = [sys.executable, "-m", "servoctl", "run", str(config), "--out", f"{folder}/{number}", "--json"]
            for override in [*overrides, *(setting(path, value) for path, value in point.items())]:
                command += ["--set-file" if isinstance(override, Path) else "--set", str(override)]
            began = time.perf_counter()
            ended = subprocess.run(command, capture_output=True, check=False)
            if ended.returncode != 0:
                return None
            times.append(time.perf_counter() - began)
    return median(times)
