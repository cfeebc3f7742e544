"""The fastest way in which somebody reaches an accuracy."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.bench.report import Progress
from servoctl.bench.standing import Competitor
from servoctl.bench.timing import interleaved, timed
from servoctl.types import Array

Motion = tuple[Array, Array]
"""Times, shape (rows,), and angles, shape (rows, angles)."""


@dataclass(frozen=True)
class Way:
    """One configuration.

    Attributes:
        name: Of the program.
        how: Step, gains and the like.
        run: Runs.
        series: Of ways of the program that differ in their accuracy only, the coarse ones first.
    """

    name: str
    how: str
    run: Callable[[], Motion]
    series: str = ""


@dataclass(frozen=True)
class SearchResult:
    """What a way gave.

    Attributes:
        way: The way.
        error: Largest error of an angle [rad]; infinite where the motion is lost.
        seconds: One run, once [s].
    """

    way: Way
    error: float
    seconds: float


def attempt(way: Way, exact: Callable[[Array], Array]) -> SearchResult:
    """Runs once and compares.

    Args:
        way: What to run.
        exact: Times -> angles, shape (rows, angles).
    """
    began = time.process_time()
    with np.errstate(all="ignore"):
        t, angles = way.run()
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(angles - exact(t)))) if len(t) else np.inf
    return SearchResult(way, error if np.isfinite(error) else np.inf, seconds)


def fastest(
    ways: Iterable[Way], exact: Callable[[Array], Array], tolerance: float, worth: float = 2.0
) -> tuple[dict[str, SearchResult], list[SearchResult]]:
    """Tries all, and finds for each name the fastest that is accurate enough; else the most accurate.

    Args:
        ways: What to try.
        exact: Times -> angles.
        tolerance: Largest error [rad].
        worth: A series ends when it takes this many times as long as the best of its name.

    Returns:
        Name -> trial, and all trials.
    """
    tried: list[SearchResult] = []
    found: dict[str, SearchResult] = {}
    for way in ways:
        best = found.get(way.name)
        last = [t.seconds for t in tried if (t.way.name, t.way.series) == (way.name, way.series)][-1:]
        if best is not None and best.error <= tolerance and last and last[0] > worth * best.seconds:
            continue
        trial = attempt(way, exact)
        if trial.error <= tolerance:  # the least of some, because the first finds the caches full of other things
            again = [attempt(way, exact).seconds for _ in range(int(min(AGAIN, SHORT / trial.seconds)))]
            trial = SearchResult(way, trial.error, min([trial.seconds, *again]))
        tried.append(trial)
        if best is None or _rank(trial, tolerance) < _rank(best, tolerance):
            found[way.name] = trial
    return found, tried


def _rank(trial: SearchResult, tolerance: float) -> tuple[bool, float]:
    enough = trial.error <= tolerance
    return not enough, trial.seconds if enough else trial.error


SHORT, AGAIN = 0.5, 10
"""To choose a way, an accurate one is run again until it took so long [s], at most so many times."""

ROUNDS = (3, 25)
"""Fewest and most turns of a race."""

SEVERAL = 5
"""Short runs of one turn: the first of them finds the caches full of what others have done."""

RACE = 10.0
"""What a race should take [s]."""


def race(best: Mapping[str, SearchResult], tolerance: float, progress: Progress) -> list[Competitor]:
    """Times the best ways in turn."""
    once = sum(trial.seconds for trial in best.values())
    rounds = int(np.clip(RACE / once, *ROUNDS))
    contestants = {
        f"{name}, {trial.way.how}": timed(lambda _, trial=trial: trial.way.run(), time.process_time)  # type: ignore[misc]
        for name, trial in best.items()
    }
    with np.errstate(all="ignore"):
        times = interleaved(contestants, rounds, SEVERAL if once < RACE / 100 else 1, progress)
    return [
        Competitor(label, times[label], trial.error, tolerance)
        for label, trial in zip(contestants, best.values(), strict=True)
    ]


def said(trials: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """Everything that was tried, for a program."""
    return [{"name": t.way.name, "how": t.way.how, "error": t.error, "seconds": t.seconds} for t in trials]
