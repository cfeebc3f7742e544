"""A curve: piecewise polynomials of time with several columns, which splines and waypoint profiles become.

Design: one form serves every kind of reference, on numbers, on symbols and in C. Two more pieces lie beyond the knots:
constants for `hold`, NaN for `error`. `periodic` shifts the time.

Between waypoints at rest, with s the share of the way:

    quintic      s = 10 r^3 - 15 r^4 + 6 r^5                       C2: velocity and acceleration are 0 at each waypoint
    septic       s = 35 r^4 - 84 r^5 + 70 r^6 - 20 r^7             C3: the jerk as well
    trapezoidal  constant acceleration, velocity, deceleration     C1: the acceleration jumps

r is the time since the waypoint divided by the segment's time, s the share of the way.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from servoctl.engine.ops import LookupTable
from servoctl.engine.symbol import ELEMENTWISE
from servoctl.types import Array

Extrapolation = Literal["hold", "periodic", "error"]
"""What a curve is beyond its knots: its first or last value, itself again, or not a number."""

SLACK = 1e-9
"""Share of its length by which a curve with extrapolation `error` may be passed, for times that were rounded."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Polynomials between knots; equal by content."""

    knots: Array  # [s] strictly increasing times, shape (k + 1,)
    coefficients: Array  # of (t - knot)^j in each piece and column, shape (k, columns, order + 1)
    smoothness: int  # number of continuous derivatives between first and last knot
    extrapolate: Extrapolation = "hold"  # what it is beyond the knots

    @property
    def start(self) -> float:
        """The first knot [s]."""
        return float(self.knots[0])

    @property
    def end(self) -> float:
        """The last knot [s]."""
        return float(self.knots[-1])

    def covers(self, t: float) -> bool:
        """Whether the curve has values at t."""
        slack = SLACK * (self.end - self.start)
        return self.extrapolate != "error" or self.start - slack <= t <= self.end + slack

    @cached_property
    def _key(self) -> tuple[LookupTable, int, Extrapolation]:
        return self.table, self.smoothness, self.extrapolate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def table(self) -> LookupTable:
        """Start and coefficients of the piece at each time, the pieces beyond the knots included."""
        k, columns, size = self.coefficients.shape
        rows = np.zeros((k + 2, 1 + columns * size))
        rows[1:-1, 0], rows[1:-1, 1:] = self.knots[:-1], self.coefficients.reshape(k, -1)
        first, last = self.start, float(np.nextafter(self.end, np.inf))
        if self.extrapolate == "hold":
            rows[[0, -1], 0] = self.start, self.end
            rows[0, 1::size], rows[-1, 1::size] = self.coefficients[0, :, 0], self._last()
        elif self.extrapolate == "periodic":
            rows[[0, -1]] = rows[[1, -2]]  # for shifted times that rounding puts beyond the ends
        else:
            rows[[0, -1]] = np.nan
            slack = SLACK * (self.end - self.start)
            first, last = self.start - slack, self.end + slack
        return LookupTable(np.array([first, *self.knots[1:-1], last]), rows)

    def _last(self) -> Array:
        """Values at the last knot, shape (columns,)."""
        last: Array = _polynomial(np.moveaxis(self.coefficients[-1], -1, 0), self.knots[-1] - self.knots[-2])
        return last

    def value(self, t: Any, column: int, derivative: int = 0) -> Any:
        """A derivative of a column at a time, which is a number, an array or a symbol.

        The first and higher derivatives beyond the knots are 0 with extrapolation `hold`.
        """
        if self.extrapolate == "periodic":
            length = self.end - self.start
            t = t - length * ELEMENTWISE["floor"]((t - self.start) / length)
        size = self.coefficients.shape[2]
        row = self.table.columns(t)
        terms = row[1 + column * size : 1 + (column + 1) * size]
        return _polynomial(_differentiated(terms, derivative), t - row[0])


def _polynomial(terms: Any, s: Any) -> Any:
    """sum(terms[j] s^j), shape of the terms without their first axis."""
    value = terms[-1]
    for term in terms[-2::-1]:
        value = term + s * value
    return value


def _differentiated(terms: Any, times: int) -> Any:
    """The terms of a derivative."""
    for _ in range(times):
        terms = [j * term for j, term in enumerate(terms)][1:] or [0.0 * terms[0]]
    return terms


@dataclass(frozen=True)
class Signal:
    """One column of a curve; equal by content."""

    reference: str  # name of the reference
    column: str  # name of the column
    curve: Curve  # the curve with all columns of the reference
    index: int  # index of the column in the curve

    @property
    def name(self) -> str:
        """Its name in equations."""
        return f"{self.reference}_{self.column}"

    def __call__(self, t: Any) -> Any:
        """The value at t [s]: a number, an array or a symbol with exact derivatives."""
        return self.curve.value(t, self.index)

    def rate(self, t: Any, order: int = 1) -> Any:
        """The derivative of this order at t [s], of numbers, arrays or symbols."""
        return self.curve.value(t, self.index, order)

    def beyond(self, t: float) -> str | None:
        """Why there is no value at t [s], one sentence; None if there is one."""
        if self.curve.covers(t):
            return None
        limit = f"starts at t = {self.curve.start:g} s" if t < self.curve.start else f"ends at t = {self.curve.end:g} s"
        return f"reference '{self.reference}' {limit}; give extrapolate: hold, or shorten the run"


def end_of(groups: Iterable[Mapping[str, Any]]) -> float:
    """The time at which the first of some signals ends for good [s]; inf if none does."""
    signals = [signal for group in groups for signal in group.values() if isinstance(signal, Signal)]
    return float(min((x.curve.end for x in signals if x.curve.extrapolate == "error"), default=math.inf))


Profile = Literal["quintic", "septic", "trapezoidal"]

SMOOTHNESS: dict[str, int] = {"quintic": 2, "septic": 3, "trapezoidal": 1}
"""Profile -> number of continuous derivatives."""


def waypoint_curve(
    times: Array,
    values: Array,
    profile: Profile,
    blend: float | None = None,
    extrapolate: Extrapolation = "hold",
) -> Curve:
    """The curve through waypoints, at rest at each of them.

    Args:
        times: Strictly increasing, shape (waypoints,) [s].
        values: Shape (waypoints, columns).
        profile: Share of the way over the share of the time.
        blend: Share of a segment's time, at each end, in which a trapezoidal profile accelerates, at most 0.5; None for
            the other profiles.
        extrapolate: Beyond the first and the last waypoint.
    """
    shares = _shares(profile, blend)
    knots, coefficients = [], []
    for i, duration in enumerate(np.diff(times)):
        way = values[i + 1] - values[i]
        for begin, terms in shares:
            piece = way[:, None] * (terms / duration ** np.arange(len(terms)))
            piece[:, 0] += values[i]
            knots.append(times[i] + begin * duration)
            coefficients.append(piece)
    return Curve(np.array([*knots, times[-1]]), np.array(coefficients), SMOOTHNESS[profile], extrapolate)


def _shares(profile: Profile, blend: float | None) -> list[tuple[float, Array]]:
    """Pieces of s(r): where they begin, coefficients of powers of (r - begin)."""
    if profile == "quintic":
        return [(0.0, np.array([0.0, 0.0, 0.0, 10.0, -15.0, 6.0]))]
    if profile == "septic":
        return [(0.0, np.array([0.0, 0.0, 0.0, 0.0, 35.0, -84.0, 70.0, -20.0]))]
    assert blend is not None
    speed = 1.0 / (1.0 - blend)  # in the middle, so that the area of the trapezium is 1
    bend = speed / (2.0 * blend)
    pieces = [(0.0, np.array([0.0, 0.0, bend]))]
    if blend < 0.5:
        pieces.append((blend, np.array([speed * blend / 2.0, speed, 0.0])))
    return [*pieces, (1.0 - blend, np.array([1.0 - speed * blend / 2.0, speed, -bend]))]


SAMPLES = 16  # times in each piece of a curve at which its rate is taken
STILL = 1e-3  # rates below this share of the largest one count as rest
ROUNDING = 1e-12  # so do rates by which a value changes from row to row by less than this share of it


class PeakRate(NamedTuple):
    """The largest rate of a signal."""

    rate: float  # [unit/s] its magnitude
    t: float  # [s] when


def peak_rate(signal: Signal) -> PeakRate:
    """The largest rate between the first and the last knot, from samples of each piece."""
    knots = signal.curve.knots
    times = np.append((knots[:-1, None] + np.diff(knots)[:, None] * np.arange(SAMPLES) / SAMPLES).ravel(), knots[-1])
    rates = np.abs(signal.rate(times))
    fastest = int(np.argmax(rates))
    return PeakRate(float(rates[fastest]), float(times[fastest]))


def too_fast(signals: Mapping[str, Signal], limits: Mapping[str, float]) -> list[str]:
    """Sentences about signals that are faster than their limits.

    Args:
        signals: Name of a joint -> the signal that it follows.
        limits: Name of a joint -> its speed limit [unit/s]; joints without one are skipped.
    """
    sentences = []
    for joint, signal in signals.items():
        peak = peak_rate(signal)
        if joint in limits and peak.rate > limits[joint]:
            asked = f"reference '{signal.reference}' asks for {peak.rate:.4g} of {joint} at t = {peak.t:.4g} s"
            sentences.append(f"{asked}, its speed limit is {limits[joint]:.4g} (slow the reference down)")
    return sentences


def jumps(signal: Signal, start: float) -> list[str]:
    """Sentences about a velocity that begins or ends at once because the signal holds its end values.

    Args:
        start: Time at which the run starts [s].
    """
    curve = signal.curve
    # a column that does not change has the rates of its rounding
    rounding = ROUNDING * np.abs(curve.coefficients[:, signal.index, 0]).max() / np.diff(curve.knots).min()
    still = max(STILL * peak_rate(signal).rate, rounding)
    if curve.extrapolate != "hold":
        return []
    sentences = []
    for t, what in ((curve.start, "starts"), (curve.end, "ends")):
        rate = float(signal.rate(t))
        if abs(rate) > still and t > start:
            then = "it holds its value before" if what == "starts" else "it holds its value from then on"
            sentences.append(f"{signal.name} {what} at t = {t:.6g} s with the rate {rate:.4g}, but {then}")
    return sentences


TURNS = (2.0 * math.pi, 360.0)  # [rad], [deg]
MANY_ROWS = 8  # fewer are waypoints, between which a joint may turn round


def wraps(signal: Signal) -> list[str]:
    """A sentence about an angle that a file writes within one turn: it jumps by a turn between two rows."""
    curve = signal.curve
    values = np.append(curve.coefficients[:, signal.index, 0], curve.value(curve.end, signal.index))
    steps = np.abs(np.diff(values))
    for turn in TURNS if len(steps) >= MANY_ROWS else ():
        around = np.abs(steps - turn) < turn / 6.0
        if around.any() and (steps[~around] < turn / 6.0).all():
            i = int(np.argmax(around))
            moves = f"moves from {values[i]:.6g} to {values[i + 1]:.6g} between t = {curve.knots[i]:.6g} s and "
            remedy = "an angle that jumps by a turn: unwrap it, so that it goes on beyond half a turn"
            return [f"{signal.name} {moves}{curve.knots[i + 1]:.6g} s ({remedy})"]
    return []


def abrupt(signals: Mapping[str, Any], used: Collection[str], start: float) -> Iterator[tuple[str, str]]:
    """Reference and sentence for each velocity that begins or ends at once, and each jump by a turn.

    Args:
        signals: Name -> signal of a reference, or anything else, which is skipped.
        used: Names of those that matter.
        start: Time at which the run starts [s].
    """
    for name, signal in signals.items():
        if name in used and isinstance(signal, Signal):
            for sentence in (*jumps(signal, start), *wraps(signal)):
                yield signal.reference, sentence
