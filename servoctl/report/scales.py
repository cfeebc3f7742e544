"""Chooses the range of an axis, so that a few extreme values do not hide all others.

Design: a logarithmic axis begins where most values are, not at a single value that happens to be almost zero. A linear
axis leaves out the last rows of a run that diverges there, and the picture says so. `web/scales.js` has the same rules.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from servoctl.types import Array

FLOOR = 1e-17  # least value on a logarithmic axis: below the rounding error of numbers near 1
LOW = 0.05  # share of a line's values that may lie below a logarithmic axis
LAST = 0.02  # share of the rows, at the end, in which a run may diverge
FLAT = 50.0  # a run diverges if its last rows make the other values take less than one part in this of the axis
STILL = 1e-9  # variation below this, relative to the values or to 1, is rounding and sets no scale
EMPTY = 3.0  # least number of decades of a line; a run diverges on a log axis if it ends twice as many decades higher
WIDE = 1.5  # values over more powers of ten than this get a logarithmic scale
SPREAD = 1e-5  # [s] half width of a histogram if all values are equal


class Calm(NamedTuple):
    """The range of lines without the last rows, in which some of them diverge."""

    low: float  # least value
    high: float  # greatest value
    row: int  # row of the value farthest outside the range
    value: float  # that value


def log_floor(lines: Iterable[Array]) -> float:
    """The power of ten at which a logarithmic axis begins, at least `FLOOR`.

    Of each line, all nonzero values except the share `LOW` lie above it. Lines of zeros do not count.

    Args:
        lines: Values; their absolute values count.
    """
    sizes = [np.abs(x[np.isfinite(x) & (x != 0.0)]) for x in map(np.asarray, lines)]
    low = [float(np.quantile(size, LOW, method="lower")) for size in sizes if len(size)]
    return max(10.0 ** float(np.floor(np.log10(min(low)) + 1e-9)), FLOOR) if low else FLOOR


def log_top(least: float, runs: Iterable[Iterable[Array]]) -> float | None:
    """The greatest value to show on a logarithmic axis, if lines diverge in their last rows; else None.

    Args:
        least: Lower end of the axis.
        runs: Lines of each run, with equal numbers of rows.
    """
    before, total = least, least
    for x in (np.abs(np.asarray(x, dtype=float)) for lines in runs for x in lines):
        last = max(1, int(LAST * len(x)))
        before = max(before, float(np.max(_finite(x[:-last]), initial=0.0)))
        total = max(total, float(np.max(_finite(x), initial=0.0)))
    decades = max(np.log10(before / least), EMPTY)
    return before if before > least and np.log10(total / before) > 2.0 * decades else None


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
