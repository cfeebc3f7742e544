"""Bursts of readings that an estimator left out, because they were far from their prediction.

Design: an event per reading would flood a log, so outliers that lie less than `APART` from each other are one burst,
which is reported once, when it is over. It has the figures of every coordinate and is named after the worst one. A
reading counts if the estimator left it out: its rule is followed here, reading by reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from servoctl.estimation.attached import OUTLIER, PATIENCE, after_fitting, is_left_out, outliers_in_row
from servoctl.types import Array

APART = 1.0  # [s] outliers with less time between them are one burst


@dataclass
class OutlierCount:
    """Outliers of one coordinate in a burst."""

    sigmas: float = 0.0  # [standard deviations] largest innovation
    count: int = 0  # number of outliers
    in_row: int = 0  # largest number of them in consecutive ticks
    running: int = 0  # number in consecutive ticks up to now; 0 if the last reading was none
    believed: bool = False  # whether so many came in a row that the reading was believed then, and not the model

    def add(self, sigmas: float) -> None:
        """Adds the outlier of a tick."""
        self.count, self.running = self.count + 1, self.running + 1
        self.sigmas, self.in_row = max(self.sigmas, sigmas), max(self.in_row, self.running)


@dataclass
class Burst:
    """Outliers of a machine."""

    first: float  # [s] time of the first one
    last: float  # [s] time of the last one
    counts: dict[str, OutlierCount] = field(default_factory=dict)  # coordinate -> its outliers

    @property
    def worst(self) -> str:
        """The coordinate with the largest innovation."""
        return max(self.counts, key=lambda name: self.counts[name].sigmas)

    @property
    def text(self) -> str:
        """The burst in words, without the name of its worst coordinate."""
        worst = self.counts[self.worst]
        when = f"at {self.first:.4g} s" if self.last == self.first else f"{self.first:.4g} to {self.last:.4g} s"
        many = "1 reading" if worst.count == 1 else f"{worst.count} readings, {worst.in_row} in a row"
        others = [f"{name} {each.sigmas:.3g}" for name, each in self.counts.items() if each is not worst]
        also = f"; also {', '.join(others)}" if others else ""
        lasting = any(each.believed for each in self.counts.values())
        wrong = f"; after {PATIENCE} in a row the reading is believed, not the model" if lasting else ""
        return f"{when}: {many}, up to {worst.sigmas:.3g} standard deviations{also}{wrong}"


class OutlierBursts:
    """Collects the outliers of a run, tick by tick.

    Args:
        coordinates: Names, in the order of the innovations.
    """

    def __init__(self, coordinates: Sequence[str]) -> None:
        self._coordinates = list(coordinates)
        self._open: Burst | None = None
        self._in_row = [0.0] * len(self._coordinates)
        self._fitting = 0  # ticks since then whose readings all fit

    def tick(self, t: float, innovation: Array, counts: bool = True) -> list[Burst]:
        """The burst that is over, if any.

        Args:
            innovation: Distance of each reading from its prediction [standard deviations]; NaN: no reading.
            counts: Whether outliers of this tick count.
        """
        if True not in (innovation > OUTLIER).tolist():
            self.met(1)
            return self._over(t)
        fitting, self._fitting = self._fitting, 0
        before = [after_fitting(number, fitting) for number in self._in_row] if fitting else self._in_row
        in_row = outliers_in_row(innovation, np.array(before))
        self._in_row = in_row.tolist()
        outliers = is_left_out(in_row).nonzero()[0].tolist() if counts else []
        over = self._over(t)
        if self._open is not None:
            for name, each in self._open.counts.items():
                i = self._coordinates.index(name)
                each.running = each.running if i in outliers else 0
                each.believed |= before[i] == PATIENCE and self._in_row[i] > PATIENCE
        if outliers:
            self._open = self._open or Burst(t, t)
            self._open.last = t
        for i in outliers:
            assert self._open is not None
            self._open.counts.setdefault(self._coordinates[i], OutlierCount()).add(float(innovation[i]))
        return over

    def met(self, ticks: int) -> None:
        """Counts consecutive ticks without outliers."""
        self._fitting += ticks
        if ticks and self._open is not None:
            for each in self._open.counts.values():
                each.running = 0

    def _over(self, t: float) -> list[Burst]:
        return self.close() if self._open is not None and t - self._open.last > APART else []

    @property
    def going(self) -> bool:
        """Whether a burst is not over yet."""
        return self._open is not None

    def close(self) -> list[Burst]:
        """The burst that the end of the run cuts off, if any."""
        burst, self._open = self._open, None
        return [] if burst is None else [burst]
