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


class Distribution:
    """Distribution of durations of one kind [ns]; negative ones count as zero.

    `counts`: the numbers that C counts in (`log_count` in `hil/core/c/tick.c`), shape (`COUNTS`,), zero at first.
    """

    def __init__(self, counts: Array) -> None:
        self.counts = counts

    @property
    def n(self) -> int:
        """Number of durations."""
        return int(self.counts[0])

    @property
    def most(self) -> int:
        """The largest [ns]; 0 if there is none."""
        return int(self.counts[2])

    @property
    def _sum(self) -> int:
        return int(self.counts[3])

    @property
    def _squares(self) -> int:
        return int(self.counts[4]) + (int(self.counts[5]) << 64)

    @property
    def mean(self) -> float:
        """Mean [ns]; NaN if there is no duration."""
        return self._sum / self.n if self.n else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the sample [ns]; NaN if there are fewer than two durations."""
        if self.n < 2:
            return math.nan
        return math.sqrt((self.n * self._squares - self._sum**2) / (self.n * (self.n - 1)))

    def percentile(self, percent: float) -> int:
        """Smallest duration [ns] that `percent` percent do not exceed, rounded up to the end of its bin; or 0."""
        if not self.n:
            return 0
        wanted = max(1, math.ceil(self.n * percent / 100.0 - 1e-9))
        return min(_upper(int(np.searchsorted(np.cumsum(self.counts[HEAD:]), np.uint64(wanted)))), self.most)

    def as_dict(self) -> dict[str, float | int]:
        """Count and figures in seconds: mean, std, p50, p99, p99_9, max; only n = 0 if there is no duration."""
        if not self.n:
            return {"n": 0}
        std = {"std": self.std / SECOND} if self.n > 1 else {}
        percentiles = {name: self.percentile(percent) / SECOND for name, percent in _PERCENTILES.items()}
        return {"n": self.n, "mean": self.mean / SECOND, **std, **percentiles, "max": self.most / SECOND}


class TickStatistics:
    """How punctual the ticks of a loop were, as C counts them.

    Args:
        period: Nominal period of the loop [ns].
        names: Names of the nodes whose samples have ages.
    """

    def __init__(self, period: int, names: Sequence[str]) -> None:
        self.counts: Array = np.zeros((len(PARTS) + len(names), COUNTS), dtype=np.uint64)
        # of each of `PARTS`; name -> ages of the samples when they were used
        self.parts = {name: Distribution(counts) for name, counts in zip(PARTS, self.counts, strict=False)}
        self.ages = {name: Distribution(counts) for name, counts in zip(names, self.counts[len(PARTS) :], strict=True)}
        self.nominal = period  # [ns] nominal period
        # beginning of the last tick, negative before the first; least slack; late ticks in a row, up to now and at
        # most; number of late ticks, before which periods were skipped; number of these periods
        self.marks = array("q", (-1, _UNKNOWN, 0, 0, 0, 0))

    @property
    def least_slack(self) -> int:
        """Shortest time from the end of a tick to the next deadline [ns]; negative if a tick overran it."""
        least = self.marks[1]
        return self.nominal if least == _UNKNOWN else least

    def as_dict(self) -> dict[str, Any]:
        """All figures, for `summary.json`; durations are in seconds, and their keys end in `_s`."""
        *_, longest_late, late, skipped = self.marks
        return {
            "nominal_period_s": self.nominal / SECOND,
            "ticks": self.parts["lateness"].n,
            "skipped_periods": skipped,
            "late_ticks": late,
            "longest_late_run": longest_late,
            "least_slack_s": self.least_slack / SECOND,
            **{f"{name}_s": part.as_dict() for name, part in self.parts.items()},
            "age_s": {name: each.as_dict() for name, each in self.ages.items()},
        }


def _upper(index: int) -> int:
    """Largest duration in a bin [ns]."""
    if index < _LINEAR:
        return index
    shift = (index >> BITS) - 1
    return ((index - (shift << BITS) + 1) << shift) - 1
