"""The fastest setting with which a program reaches a given accuracy."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.bench.comparison import Competitor
from servoctl.bench.report import Progress
from servoctl.bench.timing import interleaved, timed
from servoctl.types import Array

WORTH = 2.0
"""A series ends when it takes this many times as long as the best candidate of its program."""

Motion = tuple[Array, Array]
"""Times, shape (rows,), and angles, shape (rows, angles)."""


@dataclass(frozen=True)
class Candidate:
    """One program with one setting.

    Attributes:
        name: Name of the program.
        how: Its method, step and gains, as text.
        run: Runs it once.
        series: Name that is common to candidates of the program which differ only in accuracy, the coarse ones first.
    """

    name: str
    how: str
    run: Callable[[], Motion]
    series: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Result of one candidate.

    Attributes:
        candidate: The candidate.
        error: Largest error of an angle [rad]; infinite where the motion is lost.
        seconds: Time of one run [s].
    """

    candidate: Candidate
    error: float
    seconds: float


def attempt(candidate: Candidate, exact: Callable[[Array], Array]) -> SearchResult:
    """Runs a candidate once and compares it with the exact motion.

    Args:
        candidate: What to run.
        exact: Times -> angles, shape (rows, angles).
    """
    began = time.process_time()
    with np.errstate(all="ignore"):
        t, angles = candidate.run()
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(angles - exact(t)))) if len(t) else np.inf
    return SearchResult(candidate, error if np.isfinite(error) else np.inf, seconds)


def fastest(
    candidates: Iterable[Candidate], exact: Callable[[Array], Array], tolerance: float
) -> tuple[dict[str, SearchResult], list[SearchResult]]:
    """For each program the fastest candidate that is accurate enough; if none is, the most accurate.

    Args:
        candidates: What to try.
        exact: Times -> angles.
        tolerance: Largest error [rad].

    Returns:
        Program -> its best trial, and all trials.
    """
    tried: list[SearchResult] = []
    best_of: dict[str, SearchResult] = {}
    for candidate in candidates:
        best, series = best_of.get(candidate.name), (candidate.name, candidate.series)
        last = [t.seconds for t in tried if (t.candidate.name, t.candidate.series) == series][-1:]
        if best is not None and best.error <= tolerance and last and last[0] > WORTH * best.seconds:
            continue
        trial = attempt(candidate, exact)
        if trial.error <= tolerance:  # the least of several runs: the first one starts with cold caches
            again = [attempt(candidate, exact).seconds for _ in range(int(min(AGAIN, SHORT / trial.seconds)))]
            trial = SearchResult(candidate, trial.error, min([trial.seconds, *again]))
        tried.append(trial)
        if best is None or _rank(trial, tolerance) < _rank(best, tolerance):
            best_of[candidate.name] = trial
    return best_of, tried


def _rank(trial: SearchResult, tolerance: float) -> tuple[bool, float]:
    enough = trial.error <= tolerance
    return not enough, trial.seconds if enough else trial.error


SHORT, AGAIN = 0.5, 10
"""An accurate candidate runs again until `SHORT` [s] have passed, at most `AGAIN` times."""

ROUNDS = (3, 25)
"""Fewest and most turns of a race."""

SEVERAL = 5
"""Short runs in one turn; the first of them starts with cold caches."""

RACE = 10.0
"""Intended time of a race [s]."""


def race(best: Mapping[str, SearchResult], tolerance: float, progress: Progress, quick: bool) -> list[Competitor]:
    """Times the best candidate of each program, in turns; a quick race has the fewest."""
    once = sum(trial.seconds for trial in best.values())
    rounds = ROUNDS[0] if quick else int(np.clip(RACE / once, *ROUNDS))
    contestants = {
        f"{name}, {trial.candidate.how}": timed(lambda _, trial=trial: trial.candidate.run(), time.process_time)  # type: ignore[misc]
        for name, trial in best.items()
    }
    with np.errstate(all="ignore"):
        times = interleaved(contestants, rounds, SEVERAL if once < RACE / 100 else 1, progress)
    return [
        Competitor(label, times[label], trial.error, tolerance)
        for label, trial in zip(contestants, best.values(), strict=True)
    ]


def named(best: Mapping[str, SearchResult], entries: Sequence[Competitor]) -> list[Competitor]:
    """The entries of a race under the names of their programs alone."""
    return [replace(entry, name=name) for name, entry in zip(best, entries, strict=True)]


def trial_values(trials: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """All trials as plain values."""
    return [{"name": t.candidate.name, "how": t.candidate.how, "error": t.error, "seconds": t.seconds} for t in trials]
