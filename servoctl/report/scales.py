"""Chooses the range of an axis, so that a few extreme values do not hide all others.

Design: an axis leaves out the last rows of a run that diverges there, and the picture says so. `web/scales.js` has the
same rule, and those of the logarithmic axes that only the page has.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from servoctl.types import Array

LOW = 0.05  # share of unordered values that a scale may leave out at each end
LAST = 0.02  # share of the rows, at the end, in which a run may diverge
FLAT = 50.0  # a run diverges if its last rows make the other values take less than one part in this of the axis
STILL = 1e-9  # variation below this, relative to the values or to 1, is rounding and sets no scale
EMPTY = 3.0  # values on a log scale are far from the rest beyond twice its decades, or twice as many as this
WIDE = 1.5  # values over more powers of ten than this get a logarithmic scale
SPREAD = 1e-5  # [s] half width of a histogram if all values are equal


class Calm(NamedTuple):
    """The range of lines without the last rows, in which some of them diverge."""

    low: float  # least value
    high: float  # greatest value
    row: int  # row of the value farthest outside the range
    value: float  # that value


def calm_range(lines: Iterable[Array]) -> Calm | None:
    """The range to show, if lines diverge in their last rows so far that earlier values would look flat; else None.

    Args:
        lines: Lines with equal numbers of rows.
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
    """The scale of an axis or a colour bar."""

    kind: Literal["linear", "log"]  # `linear` or `log`
    low: float  # lower end
    high: float  # upper end
    below: int = 0  # number of values below it, including zeros on a logarithmic scale
    above: int = 0  # number of values above it


def scale_of(values: Array) -> Scale:
    """The scale for unordered values; a few values far from all others are left out.

    Logarithmic if no value is negative and the remaining ones span more than `WIDE` powers of ten.
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
    """First and last index of the sorted values, without up to `few` at each end that a gap separates from the rest."""
    first, last = 0, len(ordered) - 1
    for n in range(1, min(few, len(ordered) - 3) + 1):
        if ordered[-n] - ordered[-n - 1] > gap(float(ordered[-n - 1] - ordered[min(few, len(ordered) - n - 2)])):
            last = len(ordered) - 1 - n
    for n in range(1, min(few, last - 1) + 1):
        if ordered[n] - ordered[n - 1] > gap(float(ordered[last] - ordered[n])):
            first = n
    return first, last


def histogram_edges(values: Array, bins: int, spread: float = SPREAD) -> Array:
    """Edges of equal bars over finite values; if all are equal, `spread` on both sides."""
    low, high = float(np.min(values)), float(np.max(values))
    if high - low <= STILL * max(abs(low), abs(high), spread):
        bar = 2.0 * spread / bins  # puts the value into the middle of a bar
        low, high = low - spread - bar / 2, high + spread - bar / 2
    return np.linspace(low, high, bins + 1)


def least_and_greatest(x: Array, size: int) -> Array:
    """Rows of the least and of the greatest value of every bucket of `size` rows, in order, two per bucket.

    Of a bucket without a number these are rows without a number; the last bucket may be shorter.
    """
    blocks = np.pad(x, (0, -len(x) % size), mode="edge").reshape(-1, size)
    gap = np.isnan(blocks)
    ends = (np.argmin(np.where(gap, np.inf, blocks), axis=1), np.argmax(np.where(gap, -np.inf, blocks), axis=1))
    rows = np.sort(np.stack(ends, axis=1), axis=1) + size * np.arange(len(blocks))[:, None]
    return np.minimum(rows.ravel(), len(x) - 1)


def _finite(x: Array) -> Array:
    return x[np.isfinite(x)]
