"""Packs the numbers of a run into a page: long columns are thinned, and stored as bytes in base64.

Design: a long column is cut into buckets with equal numbers of rows. Of each bucket the least and the greatest value
are kept, in their order, at the times of its first and last row. So no peak is lost, and all columns share one time
axis. Values are stored in single precision, times in double.
"""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from servoctl.report.scales import histogram_edges, least_and_greatest
from servoctl.types import Array

BINS = 80  # number of bars of a histogram


class Thinner:
    """Thins columns of equal length, one after the other.

    Args:
        points: Largest number of values that are kept of a column.
        wanted: Whether to keep a column, by its name.
        counted: Prefixes of the names of columns that get a histogram.
    """

    def __init__(
        self, points: int, wanted: Callable[[str], bool] = lambda name: True, counted: tuple[str, ...] = ()
    ) -> None:
        self._points, self._wanted, self._counted = points, wanted, counted
        self.rows = 0  # number of rows of the last column
        self.counts: dict[str, tuple[Array, Array]] = {}  # column -> edges and counts of its histogram over all rows

    def __call__(self, name: str, x: Array) -> Array | None:
        """The values to keep of a column, shape (kept,); None: the column is left out."""
        self.rows = len(x)
        if not self._wanted(name):
            return None
        if name.startswith(self._counted) and np.isfinite(x).any():
            known = x[np.isfinite(x)]
            edges = histogram_edges(known, BINS)
            self.counts[name] = edges, np.histogram(known, edges)[0]
        return thinned(x, self._points, ends=name == "t")


def bucket(rows: int, points: int) -> int:
    """Number of rows per bucket; 1: all rows are kept."""
    return 1 if rows <= points else -(-rows // max(points // 2, 1))


def thinned(x: Array, points: int, ends: bool = False) -> Array:
    """The least and the greatest value of every bucket of rows; a short column is returned unchanged.

    Args:
        x: Values, shape (rows,); a bucket without a number stays NaN.
        points: Largest number of values to keep.
        ends: Whether to keep the first and the last value of each bucket instead, as for times.
    """
    size = bucket(len(x), points)
    if size == 1:
        return x
    if not ends:
        return x[least_and_greatest(x, size)]
    first = np.arange(0, len(x), size)
    return x[np.minimum(np.stack([first, first + size - 1], axis=1).ravel(), len(x) - 1)]


class Blob:
    """Arrays in one block of bytes, little-endian, each aligned to 8 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, x: Array, double: bool = False) -> dict[str, Any]:
        """Appends an array.

        Returns:
            Its place, for `decoded` and for the page: `at` [byte], `shape`, `double`.
        """
        array = np.asarray(x)
        with np.errstate(over="ignore"):  # a diverged run: infinite in single precision, which the page shows as a gap
            data = np.ascontiguousarray(array, dtype="<f8" if double else "<f4").tobytes()
        entry = {"at": self.size, "shape": list(array.shape), "double": double}
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self.size += len(data)
        return entry

    def text(self) -> str:
        """All bytes in base64."""
        return base64.b64encode(b"".join(self._parts)).decode("ascii")


def decoded(entry: dict[str, Any], text: str) -> Array:
    """The array at a place in the text of a blob."""
    count = int(np.prod(entry["shape"], dtype=int))
    x = np.frombuffer(base64.b64decode(text), "<f8" if entry["double"] else "<f4", count, entry["at"])
    return x.reshape(entry["shape"])
