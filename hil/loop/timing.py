"""How punctual a loop was: distributions of a run of any length, in memory of fixed size.

Design: times are whole nanoseconds. They are counted in bins of 64 to the octave, so that a percentile is never too
small and at most 1/64 too large; count, mean, standard deviation and extremes are exact.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hil.loop.clock import SECOND

_BITS = 6
_LINEAR = 2 << _BITS  # below this a bin is one nanosecond
_BINS = _LINEAR + (63 - _BITS - 1 << _BITS)
_PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}


class Distribution:
    """Durations of one kind [ns]; negative ones count as zero.

    Attributes:
        n: How many.
        least: The smallest; 0 where there is none.
        most: The largest; 0 where there is none.
    """

    def __init__(self) -> None:
        self.n = 0
        self.least = 0
        self.most = 0
        self._sum = 0
        self._squares = 0
        self._bins = [0] * _BINS

    def add(self, duration: int) -> None:
        """Counts one duration [ns]."""
        if duration < _LINEAR:
            index = duration = max(0, duration)
        else:
            shift = duration.bit_length() - _BITS - 1
            index = (shift << _BITS) + (duration >> shift)
        self._bins[index] += 1
        if duration > self.most:
            self.most = duration
        if duration < self.least or not self.n:
            self.least = duration
        self.n += 1
        self._sum += duration
        self._squares += duration * duration

    @property
    def mean(self) -> float:
        """[ns]; NaN where there is none."""
        return self._sum / self.n if self.n else math.nan

    @property
    def std(self) -> float:
        """Of the sample [ns]; NaN where there are fewer than two."""
        if self.n < 2:
            return math.nan
        return math.sqrt((self.n * self._squares - self._sum**2) / (self.n * (self.n - 1)))

    def percentile(self, percent: float) -> int:
        """Smallest duration [ns] that so many percent do not exceed, rounded up to the edge of its bin; 0 of none."""
        wanted = max(1, math.ceil(self.n * percent / 100.0 - 1e-9))
        seen = 0
        for index, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                return min(_upper(index), self.most)
        return 0

    def as_dict(self) -> dict[str, float | int]:
        """Figures in seconds: mean, std, p50, p99, p99_9, max; only n where there is none."""
        if not self.n:
            return {"n": 0}
        std = {"std": self.std / SECOND} if self.n > 1 else {}
        percentiles = {name: self.percentile(percent) / SECOND for name, percent in _PERCENTILES.items()}
        return {"n": self.n, "mean": self.mean / SECOND, **std, **percentiles, "max": self.most / SECOND}


class Timing:
    """How punctual the ticks of a loop were.

    Attributes:
        lateness: Begin of a tick after its deadline.
        period: From the begin of a tick to that of the next.
        execution: From the begin of a tick to its end.
        ages: By name, the ages of samples when they were used.
        skipped: Periods that went by without a tick.
        late: Ticks before which periods were skipped.
        longest_late: Most such ticks in a row.
    """

    def __init__(self, period: int, names: Sequence[str] = ()) -> None:
        """Starts empty.

        Args:
            period: That the loop should have [ns].
            names: Of those whose samples have ages.
        """
        self.lateness = Distribution()
        self.period = Distribution()
        self.execution = Distribution()
        self.ages = {name: Distribution() for name in names}
        self.skipped = 0
        self.late = 0
        self.longest_late = 0
        self._nominal = period
        self._least_slack: int | None = None
        self._run = 0
        self._begin: int | None = None
        self._adders = [each.add for each in self.ages.values()]

    def tick(self, deadline: int, begin: int, end: int, skipped: int) -> None:
        """Counts one tick.

        Args:
            deadline: When it should have begun [ns].
            begin: When it did [ns].
            end: When it was done [ns].
            skipped: Periods that went by without a tick before it.
        """
        self.lateness.add(begin - deadline)
        self.execution.add(end - begin)
        if self._begin is not None:
            self.period.add(begin - self._begin)
        self._begin = begin
        slack = deadline + self._nominal - end
        if self._least_slack is None or slack < self._least_slack:
            self._least_slack = slack
        if skipped:
            self.skipped += skipped
            self.late += 1
            self._run += 1
            if self._run > self.longest_late:
                self.longest_late = self._run
        else:
            self._run = 0

    def sample_ages(self, ages: Iterable[int]) -> None:
        """Counts the ages [ns] of one tick's samples, in the order of `names`."""
        for add, age in zip(self._adders, ages, strict=True):
            add(age)

    @property
    def least_slack(self) -> int:
        """Shortest time from the end of a tick to the next deadline [ns]: negative where one was overrun."""
        return self._nominal if self._least_slack is None else self._least_slack

    def as_dict(self) -> dict[str, Any]:
        """Everything, for `summary.json`: durations in seconds, keys that end in `_s`."""
        return {
            "nominal_period_s": self._nominal / SECOND,
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
    """Largest duration [ns] of a bin."""
    if index < _LINEAR:
        return index
    shift = (index >> _BITS) - 1
    return ((index - (shift << _BITS) + 1) << shift) - 1
