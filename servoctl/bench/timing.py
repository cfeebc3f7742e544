"""Times of contestants that take turns, so that other load on the machine affects all of them alike.

Design: a call of microseconds is timed by the wall clock, because other processes do not affect its median. A run of
milliseconds is timed by the processor time of the process, because other processes would take a share of it.
"""

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.types import Array

Contestant = Callable[[int], Array]
"""(number of calls) -> time of each call [s]."""

CLOCK_CALLS = 1000


@dataclass(frozen=True)
class Timings:
    """Timings of one contestant [s]."""

    median: float
    p99: float
    p999: float
    calls: int

    @classmethod
    def of(cls, times: Array) -> "Timings":
        """Percentiles of single times."""
        median, p99, p999 = (float(value) for value in np.percentile(times, (50.0, 99.0, 99.9)))
        return cls(median, p99, p999, len(times))


Clock = Callable[[], float]


def clock_cost(clock: Clock = time.perf_counter) -> float:
    """Median time between two readings of a clock [s]."""
    times = []
    for _ in range(CLOCK_CALLS):
        began = clock()
        times.append(clock() - began)
    return float(np.median(times))


def children_time() -> float:
    """Processor time of all child processes that have ended, and of theirs [s]; zero on Windows."""
    times = os.times()
    return times.children_user + times.children_system


def timed(function: Callable[[int], object], clock: Clock = time.perf_counter) -> Contestant:
    """A Python function of a counter as a contestant; the time to read the clock is subtracted.

    Args:
        function: The function to time.
        clock: `time.perf_counter`, or `time.process_time` for long calls.
    """
    at = 0

    def calls(count: int) -> Array:
        nonlocal at
        times = np.empty(count)
        for k in range(count):
            began = clock()
            function(at + k)
            times[k] = clock() - began
        at += count
        less: Array = np.maximum(times - clock_cost(clock), 0.0)
        return less

    return calls


def interleaved(
    contestants: Mapping[str, Contestant],
    rounds: int,
    calls: int = 1,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Timings]:
    """Timings of contestants that take turns, after one turn that does not count.

    Args:
        contestants: Name -> contestant.
        rounds: Turns of each contestant.
        calls: Calls in one turn.
        progress: Called with the share that is done.
    """
    times: dict[str, list[Array]] = {name: [] for name in contestants}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for contestant in contestants.values():
            contestant(min(calls, 50))
        for turn in range(rounds):
            for name, contestant in contestants.items():
                times[name].append(contestant(calls))
            gc.collect(0)
            progress((turn + 1) / rounds)
    finally:
        if collecting:
            gc.enable()
    return {name: Timings.of(np.concatenate(series)) for name, series in times.items()}


def shown(seconds: float) -> str:
    """A time with its unit, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
