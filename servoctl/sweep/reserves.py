"""Which of the best runs of a sweep keep away from the edge of stability."""

from collections.abc import Mapping, Sequence
from typing import Any

from servoctl.assembly.run import Run
from servoctl.linear.reserve import bounds_of, reserve
from servoctl.sweep.batch import Series
from servoctl.sweep.metrics import GREATEST

MOST = 200
"""Runs of a ranking that are looked at."""


def within(
    run: Run, ranking: Sequence[int], points: Sequence[Mapping[str, Any]], count: int
) -> tuple[dict[int, dict[str, float]], int]:
    """The best runs that keep the bounds, with their figures, and how many better ones do not.

    Args:
        run: The config.
        ranking: Numbers of runs, the best first.
        points: Path -> value, by number of run.
        count: How many are wanted.
    """
    assert run.loaded is not None
    bounds, series = bounds_of(run.loaded.config.tune), Series(run.loaded, "vm", "vm", run)
    found: dict[int, dict[str, float]] = {}
    beyond = 0
    for number in ranking[:MOST]:
        if len(found) == count:
            break
        made = series.make(points[number])
        figures = reserve(made).to_dict() if isinstance(made, Run) and made.system.law is not None else {}
        if any((figures[name] < bounds[name]) == (name in GREATEST) and figures[name] != bounds[name]
               for name in figures if name in bounds):  # fmt: skip
            beyond += 1
        else:
            found[number] = figures
    return found, beyond
