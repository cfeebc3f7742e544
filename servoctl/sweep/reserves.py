"""Selects the best runs of a sweep that keep a distance from the edge of stability."""

from collections.abc import Mapping, Sequence
from typing import Any

from servoctl.assembly.run import Run
from servoctl.linear.reserve import bounds_of, reserve
from servoctl.sweep.metrics import GREATEST
from servoctl.sweep.series import Series

MOST = 200  # number of runs of a ranking that are examined


def within(
    run: Run, ranking: Sequence[int], points: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[int], dict[int, dict[str, float]]]:
    """The best runs within the bounds of `tune:`, and the stability figures of all runs that were examined for it.

    Args:
        run: The config.
        ranking: Numbers of runs, best first.
        points: Path -> value, by number of run.
        count: Number of runs to select.

    Returns:
        Numbers of the selected runs, best first; and number of an examined run -> its stability figures.
    """
    assert run.loaded is not None
    bounds, series = bounds_of(run.loaded.config.tune), Series(run.loaded, "vm", "vm", run)
    best: list[int] = []
    examined: dict[int, dict[str, float]] = {}
    for number in ranking[:MOST]:
        if len(best) == count:
            break
        made = series.make(points[number])
        figures = reserve(made).to_dict() if isinstance(made, Run) and made.system.law is not None else {}
        examined[number] = figures
        if not any((figures[name] < bounds[name]) == (name in GREATEST) and figures[name] != bounds[name]
                   for name in figures if name in bounds):  # fmt: skip
            best.append(number)
    return best, examined
