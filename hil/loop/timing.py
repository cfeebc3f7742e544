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

from hil.loop.clock import SECOND
from servoctl.types import Array

BITS = 6
_LINEAR = 2 << BITS  # below this, a bin is one nanosecond wide
_BINS = _LINEAR + (63 - BITS - 1 << BITS)
HEAD = 6
COUNTS = HEAD + _BINS
"""Whole numbers of a block that C counts durations in: number, least, most, sum, squares in two words, and bins."""

_UNKNOWN = (1 << 63) - 1

_PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}


class Distribution:
    """Distribution of durations of one kind [ns]; negative ones count as zero."""

    def __init__(self) -> None:
        self.n = 0  # number of durations
        self.least = 0  # the smallest [ns]; 0 if there is none
        self.most = 0  # the largest [ns]; 0 if there is none
        self._sum = 0
        self._squares = 0
        self._bins = [0] * _BINS

    def add(self, duration: int) -> None:
        """Counts one duration [ns]."""
        if duration < _LINEAR:
            index = duration = max(0, duration)
        else:
            shift = duration.bit_length() - BITS - 1
            index = (shift << BITS) + (duration >> shift)
        self._bins[index] += 1
        if duration > self.most:
            self.most = duration
        if duration < self.least or not self.n:
            self.least = duration
        self.n += 1
        self._sum += duration
        self._squares += duration * duration

    def take(self, counts: Array) -> None:
        """Adds the durations that C has counted, shape (`COUNTS`,), and sets its counts to zero."""
        number, least, most, total, low, high = counts[:HEAD].tolist()
        if number:
            self.least, self.most = min(least, self.least) if self.n else least, max(most, self.most)
            self.n, self._sum, self._squares = self.n + number, self._sum + total, self._squares + (high << 64) + low
            for index in counts[HEAD:].nonzero()[0].tolist():
                self._bins[index] += int(counts[HEAD + index])
            counts[:] = 0

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
        wanted = max(1, math.ceil(self.n * percent / 100.0 - 1e-9))
        seen = 0
        for index, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                return min(_upper(index), self.most)
        return 0

    def as_dict(self) -> dict[str, float | int]:
        """Count and figures in seconds: mean, std, p50, p99, p99_9, max; only n = 0 if there is no duration."""
        if not self.n:
            return {"n": 0}
        std = {"std": self.std / SECOND} if self.n > 1 else {}
        percentiles = {name: self.percentile(percent) / SECOND for name, percent in _PERCENTILES.items()}
        return {"n": self.n, "mean": self.mean / SECOND, **std, **percentiles, "max": self.most / SECOND}


class TickStatistics:
    """How punctual the ticks of a loop were.

    Args:
        period: Nominal period of the loop [ns].
        names: Names of the drives whose samples have ages.
    """

    def __init__(self, period: int, names: Sequence[str] = ()) -> None:
        self.lateness = Distribution()  # time from the deadline of a tick to its beginning
        self.period = Distribution()  # time from the beginning of a tick to that of the next
        self.execution = Distribution()  # time from the beginning of a tick to its end
        self.ages = {name: Distribution() for name in names}  # name -> ages of the samples when they were used
        self.skipped = 0  # number of periods without a tick
        self.late = 0  # number of ticks before which periods were skipped
        self.longest_late = 0  # largest number of such ticks in a row
        self.nominal = period  # [ns] nominal period
        # beginning of the last tick, negative before the first; least slack; late ticks in a row, up to now. The tick
        # in C keeps them up to date too
        self.marks = array("q", (-1, _UNKNOWN, 0))

    def tick(self, deadline: int, begin: int, end: int, skipped: int) -> None:
        """Counts one tick.

        Args:
            deadline: When it should have begun [ns].
            begin: When it did [ns].
            end: When it was done [ns].
            skipped: Number of periods without a tick before it.
        """
        self.lateness.add(begin - deadline)
        self.execution.add(end - begin)
        before, least, late = self.marks
        if before >= 0:
            self.period.add(begin - before)
        late = late + 1 if skipped else 0
        self.marks[:] = array("q", (begin, min(least, deadline + self.nominal - end), late))
        self.skip(skipped)

    def skip(self, skipped: int) -> None:
        """Takes note of the periods without a tick before the last one that was counted."""
        if skipped:
            self.skipped += skipped
            self.late += 1
            self.longest_late = max(self.longest_late, self.marks[2])

    @property
    def least_slack(self) -> int:
        """Shortest time from the end of a tick to the next deadline [ns]; negative if a tick overran it."""
        least = self.marks[1]
        return self.nominal if least == _UNKNOWN else least

    def as_dict(self) -> dict[str, Any]:
        """All figures, for `summary.json`; durations are in seconds, and their keys end in `_s`."""
        return {
            "nominal_period_s": self.nominal / SECOND,
            "ticks": self.lateness.n,
            "skipped_periods": self.skipped,
            "late_ticks": self.late,
            "longest_late_run": self.longest_late,
            "least_slack_s": self.least_slack / SECOND,
            "lateness_s": self.lateness.as_dict(),
            "period_s": self.period.as_dict(),
            "execution_s": self.execution.as_dict(),
            "age_s": {name: each.as_dict() for name, each in self.ages.items()},
        }


def _upper(index: int) -> int:
    """Largest duration in a bin [ns]."""
    if index < _LINEAR:
        return index
    shift = (index >> BITS) - 1
    return ((index - (shift << BITS) + 1) << shift) - 1
