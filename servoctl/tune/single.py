"""What a run costs as a process of its own: `servoctl run`, started as a person would, timed."""

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
"""Processes that are timed."""


def seconds_of_a_process(config: Path, overrides: Sequence[Override], points: Sequence[Point]) -> float | None:
    """The median time of `servoctl run`, from start to end [s]; None where one of them fails.

    Args:
        config: The file.
        overrides: As after `--set` and `--set-file`.
        points: What each of them changes besides, in turn.
    """
    times = []
    with tempfile.TemporaryDirectory(prefix="servoctl-tune-") as folder:
        for number in range(TIMES):
            point = points[number % len(points)]
            given = [*overrides, *(setting(path, value) for path, value in point.items())]
            command = [sys.executable, "-m", "servoctl", "run", str(config), "--out", f"{folder}/{number}", "--json"]
            for override in given:
                command += ["--set-file" if isinstance(override, Path) else "--set", str(override)]
            began = time.perf_counter()
            ended = subprocess.run(command, capture_output=True, check=False)
            if ended.returncode != 0:
                return None
            times.append(time.perf_counter() - began)
    return median(times)
