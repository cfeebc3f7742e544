"""The times and the rows of a run: collected into chunks, with the reason why a run ends."""

import math
import time
from dataclasses import dataclass
from typing import SupportsIndex, overload

import numpy as np

from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, Status

CHUNK_TIME = 0.2  # [s] longest wall time between two chunks, if single steps are shorter


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a run."""

    t: Array  # times [s], shape (rows,)
    x: Array  # states, shape (rows, size)
    rows: Array  # logged rows, as `Layout` orders them, shape (rows, layout.size)
    stopped: str | None = None  # why the run ends here early; None if it does not
    # time and state at which the motion was not finite; None: at the last row, or nowhere
    at: tuple[float, Array] | None = None


def stops_of(loop: Loop) -> set[float]:
    """Codes of the statuses that end a run."""
    return {Status.NOT_POSITIVE.code, Status.NON_FINITE.code, *loop.system.acting.stops_on}


class RunEndedError(Exception):
    """A run ends at its last row, before its time."""

    def __init__(self, reason: str, at: tuple[float, Array] | None = None) -> None:
        """Says why.

        Args:
            at: As of `Chunk`.
        """
        super().__init__(reason)
        self.at = at


class RowCollector:
    """Collects rows into chunks by wall time, and detects statuses that end a run."""

    def __init__(self, loop: Loop) -> None:
        self.status = loop.layout.slices["status"].start
        self.stops = stops_of(loop)
        self._empty = (loop.size + loop.carried, loop.layout.size)
        self._rows: list[tuple[float, Array, Array]] = []
        self._since = time.monotonic()

    def add(self, t: float, x: Array, row: Array) -> None:
        """Adds a row."""
        self._rows.append((t, x, row))

    def judge(self, t: float, x: Array, row: Array, written: bool = True) -> None:
        """Adds a row, if it is to be written or is the last one.

        Raises:
            RunEndedError: The run must stop at it.
        """
        stops = row[self.status] in self.stops
        if written or stops:
            self.add(t, x, row)
        if stops:
            raise RunEndedError(f"t = {t:.6g} s: {Status.from_code(row[self.status]).value}")

    @property
    def filled(self) -> bool:
        """Whether there are rows for a chunk."""
        return bool(self._rows)

    def due(self) -> bool:
        """Whether it is time for a chunk."""
        return time.monotonic() - self._since > CHUNK_TIME

    def chunk(self, stopped: str | None = None, at: tuple[float, Array] | None = None) -> Chunk:
        """The rows so far; the collector is empty afterwards."""
        rows, self._rows, self._since = self._rows, [], time.monotonic()
        size, width = self._empty
        return Chunk(
            np.array([t for t, _, _ in rows]),
            np.array([x for _, x, _ in rows]).reshape(len(rows), size),
            np.array([row for _, _, row in rows]).reshape(len(rows), width),
            stopped,
            at,
        )


class Grid:
    """Times from start to end in equal steps, the last one shorter; a last step below 1e-9 of a step is merged."""

    def __init__(self, start: float, end: float, step: float) -> None:
        self._start, self._end, self._step = start, end, step
        self._last = max(1, math.ceil((end - start) / step - 1e-9))

    def __len__(self) -> int:
        return self._last + 1

    @overload
    def __getitem__(self, k: SupportsIndex) -> float: ...

    @overload
    def __getitem__(self, k: slice) -> Array: ...

    def __getitem__(self, k: SupportsIndex | slice) -> float | Array:
        """One time, or the times of a slice (its step is ignored), shape (times,) [s]."""
        if isinstance(k, slice):
            first, last, _ = k.indices(len(self))
            times = self._start + self._step * np.arange(first, max(first, last))
            if last > self._last and len(times):
                times[-1] = self._end
            return times
        i = k.__index__() + (len(self) if k.__index__() < 0 else 0)
        if not 0 <= i <= self._last:
            raise IndexError(i)
        return self._end if i == self._last else self._start + self._step * i
