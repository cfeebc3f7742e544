"""Fresh processes of `servoctl run`, from start to end."""

import tempfile
import time
from pathlib import Path

import numpy as np

from servoctl.engine import compiler
from tests.benchmarks.contest import Entry, Line, Results
from tests.benchmarks.fresh import cost

SMALLEST, LARGER = "two_mass_spring", "two_arms_box"
LONGEST_COMPILATION = 120.0
"""Longest wait for a compiler that outlives its run [s]."""


def startup(quick: bool) -> Results:
    """Wall time of `servoctl run` in fresh processes: nothing cached, and a larger config once more."""
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        times = [
            cost(["-m", "servoctl", "run", SMALLEST], Path(folder) / f"empty{turn}").wall
            for turn in range(1 if quick else 7)
        ]
        yield Line(f"`servoctl run {SMALLEST}`, nothing cached", (Entry("servoctl", float(np.median(times))),))
        if quick:
            return
        cache = Path(folder) / "larger"
        first = cost(["-m", "servoctl", "run", LARGER], cache, finish=compiler.compiler() is not None)
        end = time.monotonic() + LONGEST_COMPILATION
        while any(cache.glob("*-lock.tmp")) and time.monotonic() < end:  # the compiler works on
            time.sleep(0.1)
        again = cost(["-m", "servoctl", "run", LARGER], cache)
        entries = Entry("servoctl", again.wall), Entry("nothing cached", first.wall)
        yield Line(f"`servoctl run {LARGER}` again, from start to end", entries)
