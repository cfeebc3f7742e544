"""A run's numbers, small enough to travel inside a page: thinned where it is long, as bytes in base64.

Design: a long column is cut into buckets of equally many rows, and each is kept by its least and its greatest value, in
the order in which they occurred, at the times of its first and last row: no peak is lost, and all columns share one
time. Values travel in single precision, times in double.
"""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.report.scales import histogram_edges
from servoctl.types import Array

BINS = 80
"""Bars of a histogram."""


class Thinner:
    """Thins columns of equal length, one after the other.

    Attributes:
        rows: Rows of the last column.
        counts: Column -> edges and counts of its histogram, of all rows.
    """

    def __init__(
        self, points: int, wanted: Callable[[str], bool] = lambda name: True, counted: tuple[str, ...] = ()
    ) -> None:
        """Says how.

        Args:
            points: Most values that are kept of a column.
            wanted: Which columns are kept at all.
            counted: Beginnings of the names of columns that get a histogram.
        """
        self._points, self._wanted, self._counted = points, wanted, counted
        self.rows = 0
        self.counts: dict[str, tuple[Array, Array]] = {}

    def __call__(self, name: str, x: Array) -> Array | None:
        """What is kept of a column, shape (kept,); None where it is not wanted."""
        self.rows = len(x)
        if not self._wanted(name):
            return None
        if name.startswith(self._counted) and np.isfinite(x).any():
            known = x[np.isfinite(x)]
            edges = histogram_edges(known, BINS)
            self.counts[name] = edges, np.histogram(known, edges)[0]
        return thinned(x, self._points, ends=name == "t")


def bucket(rows: int, points: int) -> int:
    """Rows of one bucket; 1 where all rows are kept."""
    return 1 if rows <= points else -(-rows // max(points // 2, 1))


def thinned(x: Array, points: int, ends: bool = False) -> Array:
    """A column by the least and the greatest value of every bucket of rows, whole where it has few.

    Args:
        x: Values, shape (rows,); a bucket without a number stays NaN.
        points: Most values that are kept.
        ends: Keep the first and the last of each bucket instead, as for times.
    """
    size = bucket(len(x), points)
    if size == 1:
        return x
    blocks = np.pad(x, (0, -len(x) % size), mode="edge").reshape(-1, size)
    if ends:
        return blocks[:, [0, -1]].ravel()
    gap = np.isnan(blocks)
    pair = np.stack(
        [np.argmin(np.where(gap, np.inf, blocks), axis=1), np.argmax(np.where(gap, -np.inf, blocks), axis=1)], axis=1
    )
    pair.sort(axis=1)
    kept: Array = np.take_along_axis(blocks, pair, axis=1).ravel()
    return kept


class Blob:
    """Arrays one after the other, each on a multiple of 8 bytes, little-endian."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, x: Array, double: bool = False) -> dict[str, Any]:
        """Takes an array over.

        Returns:
            Where it stands, for `decoded` and for the page: `at` [bytes], `shape`, `double`.
        """
        array = np.asarray(x)
        with np.errstate(over="ignore"):  # a run that ran away: infinite in single precision, a gap in the page
            data = np.ascontiguousarray(array, dtype="<f8" if double else "<f4").tobytes()
        place = {"at": self.size, "shape": list(array.shape), "double": double}
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self.size += len(data)
        return place

    def text(self) -> str:
        """All of it in base64."""
        return base64.b64encode(b"".join(self._parts)).decode("ascii")


def decoded(place: dict[str, Any], text: str) -> Array:
    """The array that stands there in the text of a blob."""
    count = int(np.prod(place["shape"], dtype=int))
    x = np.frombuffer(base64.b64decode(text), "<f8" if place["double"] else "<f4", count, place["at"])
    return x.reshape(place["shape"])
