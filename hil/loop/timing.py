"""How punctual a loop was: lateness, period, execution time and ages of samples, as distributions.

Design: durations are whole nanoseconds, counted in 64 bins per octave. A percentile is never too small and at most 1/64
too large; count, mean, standard deviation and extremes are exact. Keeping all durations for numpy.percentile would be
no slower per tick, but memory would grow with the run (2.8 GB for twelve durations per tick in 8 h at 1 kHz), and
growing an array of that size would stop the tick.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from hil.loop.clock import SECOND
from servoctl.types import Array

BITS = 6
_LINEAR = 2 << BITS  # below this, a bin is one nanosecond wide
_BINS = _LINEAR + (63 - BITS - 1 << BITS)
HEAD = 6
COUNTS = HEAD + _BINS
"""Whole numbers of a block that C counts durations in: number, least, most, sum, squares in two words, and bins."""

_UNKNOWN = (1 << 63) - 1

PARTS = ("lateness", "period", "execution", "read", "law", "write")
"""Durations of a tick: from its deadline to its beginning, from there to the next one's and to its end, and those of
its parts."""

_PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}


def percentile(counts: Array, percent: float) -> int:
    """Smallest duration [ns] that `percent` percent do not exceed, rounded up to the end of its bin; 0 without any."""
    if not counts[0]:
        return 0
    wanted = max(1, math.ceil(int(counts[0]) * percent / 100.0 - 1e-9))
    return min(_upper(int(np.searchsorted(np.cumsum(counts[HEAD:]), np.uint64(wanted)))), int(counts[2]))


def figures(counts: Array) -> dict[str, float | int]:
    """Number of durations, and in seconds: mean, std of the sample, p50, p99, p99_9, max; only n = 0 without any.

    `counts`: the numbers that C counts in (`log_count` in `hil/core/c/tick.c`), shape (`COUNTS`,).
    """
    n, _, most, total, low, high = map(int, counts[:HEAD])
    if not n:
        return {"n": 0}
    squares = low + (high << 64)
    std = {"std": math.sqrt((n * squares - total**2) / (n * (n - 1))) / SECOND} if n > 1 else {}
    percentiles = {name: percentile(counts, percent) / SECOND for name, percent in _PERCENTILES.items()}
    return {"n": n, "mean": total / n / SECOND, **std, **percentiles, "max": most / SECOND}


class TickStatistics:
    """How punctual the ticks of a loop were, as C counts them.

    Args:
        period: Nominal period of the loop [ns].
        names: Names of the nodes whose samples have ages.
    """

    def __init__(self, period: int, names: Sequence[str]) -> None:
        self._names, self.nominal = names, period  # nominal: [ns] period
        # of each of `PARTS`, then ages of each node's samples when they were used
        self.counts: Array = np.zeros((len(PARTS) + len(names), COUNTS), dtype=np.uint64)
        # beginning of the last tick, negative before the first; shortest time from the end of a tick to the next
        # deadline; late ticks in a row, up to now and at most; number of late ticks, before which periods were skipped;
        # number of these periods
        self.marks = array("q", (-1, _UNKNOWN, 0, 0, 0, 0))

    def as_dict(self) -> dict[str, Any]:
        """All figures, for `summary.json`; durations are in seconds, and their keys end in `_s`."""
        _, slack, _, longest_late, late, skipped = self.marks
        parts, ages = self.counts[: len(PARTS)], self.counts[len(PARTS) :]
        return {
            "nominal_period_s": self.nominal / SECOND,
            "ticks": int(self.counts[0, 0]),
            "skipped_periods": skipped,
            "late_ticks": late,
            "longest_late_run": longest_late,
            "least_slack_s": (self.nominal if slack == _UNKNOWN else slack) / SECOND,  # negative: a tick overran
            **{f"{name}_s": figures(counts) for name, counts in zip(PARTS, parts, strict=True)},
            "age_s": {name: figures(counts) for name, counts in zip(self._names, ages, strict=True)},
        }


def _upper(index: int) -> int:
    """Largest duration in a bin [ns]."""
    if index < _LINEAR:
        return index
    shift = (index >> BITS) - 1
    return ((index - (shift << BITS) + 1) << shift) - 1
