"""A funnel: a correction whose gain grows as a violation nears the edge of a corridor that narrows with time.

    beta = phi' + rate phi (holonomic), psi (nonholonomic),    kappa = 1 / P
    rho(t) = (start - end) e^(-shrink t) + end,    xi = beta / rho
    beta' = -F,   F = kappa beta / (1 - xi^2) up to |xi| = x,   beyond it the tangent, of slope G
    slope of F:   kappa (1 + xi^2) / (1 - xi^2)^2, which is G at xi = x

With |beta| < rho and |phi| < start / rate at the start, every sample of |beta| stays below rho while the model misses
at most D of the row's acceleration (d: delay, h: period, G h <= 1):

    (1 + s + r) D = (1 - s - r) rho f - s shrink rho - r rate (rho + start) - |rho'|
    f = kappa x / (1 - x^2) + G (1 - x),   s = G d,   r = rate (d + h / 2)

Design: the gain of the textbook form has no limit at the edge, and a sampled loop becomes unstable there. So the slope
has a cap G. Beyond |xi| = x the tangent holds the violation better than a clipped gain, and nothing divides by zero
outside the funnel.

Source: the idea of prescribed performance is of Bechlioulis, Rovithakis 2008, that of a funnel of Ilchmann, Ryan,
Sangwin 2002. The cap, the tangent, and D for a command that is held and late, are ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from servoctl.engine.parameters import Part
from servoctl.engine.symbol import clip
from servoctl.errors import TaskError
from servoctl.laws.corrections import (
    PER_ROW,
    RATE,
    TIME,
    Correction,
    Gain,
    PFeedback,
    assigned,
    per_row,
    sliding_error,
)
from servoctl.laws.hold import RowFeedback, growth, stable_range
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.tree.fields import AutoPositive, NumberField, PerRow, described
from servoctl.types import Array

WIDTH = NumberField("a positive half-width", above=0)
MARGIN = 2.0  # the default slope is stable up to this many times the period


@dataclass(frozen=True)
class RowFunnel(Part):
    """The funnel of one row; the unit of beta is that of the violation per s."""

    label: str  # type: ignore[misc]  # name of the row
    has_rate: bool  # whether beta is made of the violation rate; else it is the violation
    rate: float  # [1/s] lambda in beta = phi' + lambda phi
    kappa: float  # [1/s] gain in the middle
    start: float  # half-width at t = 0
    end: float  # half-width that remains
    shrink: float  # [1/s] rate from one to the other
    slope: float  # [1/s] G, the largest slope of F

    def width(self, t: Any) -> Any:
        """rho at a time."""
        return (self.start - self.end) * np.exp(-self.shrink * t) + self.end

    @property
    def edge(self) -> Any:
        """x: |xi| at which the slope is G."""
        # G y^2 + kappa y - 2 kappa = 0 with y = 1 - x^2
        y = (np.sqrt(self.kappa * self.kappa + 8.0 * self.kappa * self.slope) - self.kappa) / (2.0 * self.slope)
        return np.sqrt(1.0 - y)

    def force(self, beta: Any, t: Any) -> Any:
        """F."""
        rho, x = self.width(t), self.edge
        xi = beta / rho
        inner = clip(xi, -x, x)
        return rho * (self.kappa * inner / (1.0 - inner * inner) + self.slope * (xi - inner))

    def tolerated(self, timing: Timing) -> float:
        """D: the largest error of the model's acceleration that leaves beta inside, for all times."""
        delay = timing.lateness
        x, s, r = self.edge, self.slope * delay, self.rate * (delay + (timing.period or 0.0) / 2.0)
        f = self.kappa * x / (1.0 - x * x) + self.slope * (1.0 - x)
        # linear in rho, so the least is at one of the two ends
        least = min(
            rho * ((1.0 - s - r) * f - s * self.shrink)
            - r * self.rate * (rho + self.start)
            - self.shrink * (rho - self.end)
            for rho in (self.start, self.end)
        )
        return float(least / (1.0 + s + r))

    def until_first_command(self, disturbance: float, delay: float) -> float:
        """The most by which |beta| nears the edge before the first command acts, under a disturbance of the row."""
        return float(delay * (disturbance + 2.0 * self.rate * self.start + self.shrink * (self.start - self.end)))


@dataclass(frozen=True)
class FunnelCentre(PFeedback):
    """The gains in the middle of a funnel."""

    label = "funnel"


@dataclass(frozen=True)
class Funnel(Correction):
    """`beta' = -F(beta)`, where F grows towards the edge of a corridor |beta| < rho(t) that narrows with time.

    beta is the error of a nonholonomic row, `phi' + rate phi` of a holonomic one, and
    `rho(t) = (start - end) exp(-shrink t) + end`.
    """

    P: Annotated[Gain, PerRow(TIME), Field(description=f"time constant in the middle of the funnel [s]{PER_ROW}")]
    start: Annotated[Gain, PerRow(WIDTH), Field(description=f"half-width at t = 0 [unit of beta]{PER_ROW}")]
    end: Annotated[
        Gain, PerRow(WIDTH), Field(description=f"half-width that remains, at most start [unit of beta]{PER_ROW}")
    ]
    shrink: Annotated[Gain, PerRow(RATE)] = described(0.0, f"rate from start to end [1/s]{PER_ROW}")
    rate: Annotated[Gain, PerRow(RATE)] = described(
        0.0, f"decay of a holonomic error [1/s]; 0 corrects its rate alone{PER_ROW}"
    )
    slope: AutoPositive = described(
        None, "largest gain, at the edge [1/s]; auto, or left out: half of what the timing allows"
    )
    label = "funnel"

    def gains(self, rows: Sequence[Row]) -> Sequence[tuple[float, ...]]:
        """Those in the middle of the funnel."""
        return self.ready(rows).gains(rows)

    def ready(self, rows: Sequence[Row]) -> Correction:
        self._fits(rows)
        return FunnelCentre(self.P, self.rate).ready(rows)

    def of_rows(self, rows: Sequence[Row], timing: Timing) -> list[RowFunnel]:
        """The funnel of each row.

        Args:
            timing: Of the loop; without a period `slope` has to be given.

        Raises:
            TaskError: A number is out of its range, or the period leaves too little gain; the message names the row.
        """
        self._fits(rows)
        values = [per_row(getattr(self, name), rows, name) for name in ("rate", "P", "start", "end", "shrink")]
        found = []
        for row, rate, P, start, end, shrink in zip(rows, *values, strict=True):
            if not 0.0 < end <= start < math.inf:
                raise TaskError(
                    f"{row.name}: funnel: expected 0 < end <= start, got end {end:g} and start {start:g} "
                    "(half-widths of the corridor)"
                )
            rate = rate if row.has_rate else 0.0
            slope = self.slope if self.slope is not None else self.default_slope(row, rate, timing)
            found.append(RowFunnel(row.name, row.has_rate, rate, 1.0 / P, start, end, shrink, slope))
            self._enough(row, found[-1], timing)
        return found

    def default_slope(self, row: Row, rate: float, timing: Timing) -> float:
        """The largest slope that is stable up to `MARGIN` periods [1/s].

        Raises:
            TaskError: The law is not sampled.
        """
        if timing.period is None:
            raise TaskError(f"{row.name}: funnel.slope: needs a number, or a sampled law (give run.period)")
        period = MARGIN * timing.period

        def stable(slope: float) -> bool:
            return growth(_at_slope(slope, rate, row.has_rate), timing, period) < 1.0

        return stable_range(stable, (0.0, 4.0 / period), 50)[0]

    def _fits(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.degree > 2:
                raise TaskError(f"{row.name}: a funnel does not fit a row of relative degree {row.degree} (use poles)")

    def _enough(self, row: Row, of: RowFunnel, timing: Timing) -> None:
        """Raises if the slope leaves the funnel nothing to hold the violation with."""
        kappa, slope = of.kappa, of.slope
        if not kappa <= slope < math.inf:
            cap = "what the period, delay and lag allow" if self.slope is None else "funnel.slope"
            raise TaskError(
                f"{row.name}: funnel.P: its gain 1/P = {kappa:.4g} 1/s is above {cap}, {slope:.4g} 1/s "
                "(raise P, or shorten period or delay)"
            )
        if not of.tolerated(timing) > 0.0:
            raise TaskError(
                f"{row.name}: funnel: with a slope of at most {slope:.4g} 1/s it cannot hold the task error inside "
                "even for an exact model (make shrink smaller, end larger, or shorten period or delay)"
            )


def _at_slope(slope: float, rate: float, has_rate: bool) -> RowFeedback:
    """The feedback of a row with this gain on beta."""
    return RowFeedback(rate + slope, rate * slope) if has_rate else RowFeedback(0.0, slope, has_rate=False)


@dataclass(frozen=True)
class FunnelTerm(AttachedTerm):
    """The funnels of an attached law, beside the gains that they have in the middle."""

    members: tuple[int, ...]  # indices of the rows with a funnel
    funnels: tuple[RowFunnel, ...]  # of each of these rows

    label = "funnel"

    @property
    def facts(self) -> dict[str, dict[str, float]]:
        """Row -> rate, start, end and shrink of its funnel, and `by_rate`, for the run folder."""
        keys = ("rate", "start", "end", "shrink")
        return {
            of.label: {key: float(getattr(of, key)) for key in keys} | {"by_rate": float(of.has_rate)}
            for of in self.funnels
        }

    @property
    def steepest(self) -> dict[int, RowFeedback]:
        """Member -> its feedback at the edge of its funnel."""
        pairs = zip(self.members, self.funnels, strict=True)
        return {i: _at_slope(of.slope, of.rate, of.has_rate) for i, of in pairs}

    def acceleration(self, at: Terms, memory: Array) -> Array:
        # kappa beta is part of the correction's gains
        added = list[Any]([0.0] * len(at.rhs))
        for i, beta, of in zip(self.members, self.beta(at.task), self.funnels, strict=True):
            added[i] = of.kappa * beta - of.force(beta, at.state.t)
        return np.array(added)

    def beta(self, task: Rows) -> list[Any]:
        """beta of each member."""
        pairs = zip(self.members, self.funnels, strict=True)
        return [sliding_error(task, i, of.has_rate, of.rate) for i, of in pairs]

    def outside(self, task: Rows, t: float) -> list[str]:
        """One sentence for each row that is not inside its funnel."""
        return [
            f"the start is outside the funnel of task.{of.label}: |beta| = {abs(beta):.4g}, half-width "
            f"{of.width(t):.4g} (raise funnel.start, or start nearer to the task)"
            for beta, of in zip(self.beta(task), self.funnels, strict=True)
            if not abs(beta) < of.width(t)
        ]


def funnels(
    rows: Sequence[Row], common: Correction | None, own: Mapping[str, Correction], timing: Timing
) -> FunnelTerm | None:
    """The funnels of the rows; None without any.

    Args:
        common: Correction of every row whose group has none of its own.
        own: Group -> its own correction.
        timing: Of the loop.

    Raises:
        TaskError: A funnel does not fit; the message has a line for each.
    """
    found: dict[int, RowFunnel] = {}
    problems: list[str] = []
    for where, correction, members in assigned(rows, common, own):
        try:
            if isinstance(correction, Funnel):
                found |= zip(members, correction.of_rows([rows[i] for i in members], timing), strict=True)
        except TaskError as error:
            problems.append(f"{where}: {error}")
    if problems:
        raise TaskError("\n".join(problems))
    order = tuple(sorted(found))
    return FunnelTerm(order, tuple(found[i] for i in order), timing=timing) if order else None
