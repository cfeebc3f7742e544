"""What an axis shows: the part of the values that a reader can read something from.

Design: a few values must not decide the scale of all others. A logarithmic axis begins where the lines are, not at the
one value that happened to be exact; a linear axis leaves out the last rows of a run that ran away in them, and says so.
`web/scales.js` has the same rules for pages.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from servoctl.types import Array

FLOOR = 1e-17
"""Least size on a logarithmic axis: a tenth of the rounding of numbers near 1."""

LOW = 0.05
"""Share of a line's values that may lie below a logarithmic axis."""

LAST = 0.02
"""Share of the rows, the last ones, in which a run may run away."""

FLAT = 50.0
"""A line is flat where all of it takes less than one part in so many of an axis."""

STILL = 1e-9
"""Motion below this, relative to the values or to 1, is rounding, and no scale for anything."""

EMPTY = 3.0
"""Lines run away on a logarithmic axis that go up, at last, by twice the decades that they took before, or these."""

WIDE = 1.5
"""Values that span more powers of ten are drawn on a logarithmic scale."""

SPREAD = 1e-5
"""Half of the width of a histogram of equal values [s]."""


class Calm(NamedTuple):
    """The range of lines without the last rows in which some of them run away.

    Attributes:
        low: Least value.
        high: Greatest value.
        row: Row of the value that is farthest beyond.
        value: That value.
    """

    low: float
    high: float
    row: int
    value: float


def log_floor(lines: Iterable[Array]) -> float:
    """The power of ten at which a logarithmic axis begins, at least `FLOOR`.

    All but `LOW` of the values of each line, zeros apart, lie above it. Lines without a positive number have no say.

    Args:
        lines: Values, of which the sizes count.
    """
    sizes = [np.abs(x[np.isfinite(x) & (x != 0.0)]) for x in map(np.asarray, lines)]
    low = [float(np.quantile(size, LOW, method="lower")) for size in sizes if len(size)]
    return max(10.0 ** float(np.floor(np.log10(min(low)) + 1e-9)), FLOOR) if low else FLOOR


def log_top(least: float, runs: Iterable[Iterable[Array]]) -> float | None:
    """The greatest size to show on a logarithmic axis, where lines run away in their last rows; else None.

    Args:
        least: Where the axis begins.
        runs: Lines of equally many rows, of each run.
    """
    before, whole = least, least
    for x in (np.abs(np.asarray(x, dtype=float)) for lines in runs for x in lines):
        last = max(1, int(LAST * len(x)))
        before = max(before, float(np.max(_finite(x[:-last]), initial=0.0)))
        whole = max(whole, float(np.max(_finite(x), initial=0.0)))
    decades = max(np.log10(before / least), EMPTY)
    return before if before > least and np.log10(whole / before) > 2.0 * decades else None


def calm_range(lines: Iterable[Array]) -> Calm | None:
    """The range to show where lines run away in their last rows, such that all before would be flat; else None.

    Args:
        lines: Values of equally many rows.
    """
    lines = [np.asarray(x, dtype=float) for x in lines]
    rows = max(map(len, lines), default=0)
    last = max(1, int(LAST * rows))
    before = [part for x in lines if len(part := _finite(x[:-last]))]
    if not before:
        return None
    low, high = min(map(np.min, before)), max(map(np.max, before))
    if not high - low > STILL * max(1.0, abs(low), abs(high)):
        return None
    room = FLAT * (high - low)
    beyond = [x for x in lines if len(y := _finite(x)) and (y.max() > high + room or y.min() < low - room)]
    if not beyond:
        return None
    rest = [y for x in lines if len(y := _finite(x)) and not any(x is other for other in beyond)]
    distance = np.max(
        [np.nan_to_num(np.maximum(x - high, low - x), nan=-np.inf, posinf=-np.inf) for x in beyond], axis=0
    )
    row = int(np.argmax(distance))
    value = max((float(x[row]) for x in beyond if np.isfinite(x[row])), key=abs)
    return Calm(float(min([low, *map(np.min, rest)])), float(max([high, *map(np.max, rest)])), row, value)


class Scale(NamedTuple):
    """How an axis or a colour shows values of many runs.

    Attributes:
        kind: `linear` or `log`.
        low: Where it begins.
        high: Where it ends.
        below: How many values are below it, zeros on a logarithmic one too.
        above: How many are above it.
    """

    kind: Literal["linear", "log"]
    low: float
    high: float
    below: int = 0
    above: int = 0


def scale_of(values: Array) -> Scale:
    """The scale for values of which no order is known; a few that stand far apart from all others do not decide it.

    Logarithmic where none is negative and those that count span more than `WIDE` powers of ten.
    """
    known = np.sort(_finite(np.asarray(values, dtype=float)))
    positive = known[known > 0.0]
    if not len(known):
        return Scale("linear", 0.0, 1.0)
    few = max(1, int(LOW * len(known)))
    if len(positive) > 1 and known[0] >= 0.0:
        powers = np.log10(positive)
        first, last = _together(powers, few, lambda span: 2.0 * max(span, EMPTY))
        if powers[last] - powers[first] > WIDE:
            low, high = float(positive[first]), float(positive[last])
            return Scale("log", low, high, int(np.sum(known < low)), int(np.sum(known > high)))
    first, last = _together(known, few, lambda span: FLAT * span if span > 0.0 else np.inf)
    low, high = float(known[first]), float(known[last])
    return Scale("linear", low, high, first, len(known) - 1 - last)


def _together(ordered: Array, few: int, gap: Callable[[float], float]) -> tuple[int, int]:
    """First and last of the values without at most `few` at each end that stand a gap apart from the rest."""
    first, last = 0, len(ordered) - 1
    for n in range(1, min(few, len(ordered) - 3) + 1):
        if ordered[-n] - ordered[-n - 1] > gap(float(ordered[-n - 1] - ordered[min(few, len(ordered) - n - 2)])):
            last = len(ordered) - 1 - n
    for n in range(1, min(few, last - 1) + 1):
        if ordered[n] - ordered[n - 1] > gap(float(ordered[last] - ordered[n])):
            first = n
    return first, last


def histogram_edges(values: Array, bins: int, spread: float = SPREAD) -> Array:
    """Edges of equal bars over finite times; where all are equal, `spread` to both sides."""
    low, high = float(np.min(values)), float(np.max(values))
    if high - low <= STILL * max(abs(low), abs(high), spread):
        bar = 2.0 * spread / bins  # the value in the middle of a bar, not at an edge
        low, high = low - spread - bar / 2, high + spread - bar / 2
    return np.linspace(low, high, bins + 1)


def _finite(x: Array) -> Array:
    return x[np.isfinite(x)]
