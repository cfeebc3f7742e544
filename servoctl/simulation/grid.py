"""The times of equal steps, computed on demand, so that memory depends on the rows of a run, not on its steps."""

import math
from typing import SupportsIndex, overload

import numpy as np

from servoctl.types import Array

MOST_STEPS = 1e10  # largest number of steps of a run: at a million a second they take three hours
MOST_ROWS = 1e8  # largest number of rows of a run: more do not fit into memory
STEPS_PER_SECOND = 1e6  # steps per second of generated C for a small plant, in order of magnitude

_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0))


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


def too_many(duration: float, step: float | None, row_step: float | None, columns: int) -> str | None:
    """Why a run has too many steps or rows to start; None if it has not.

    Args:
        duration: Length of the run [s].
        step: Step of the integration [s]; None: the method chooses.
        row_step: Spacing of the rows [s]; None: the method chooses.
        columns: Numbers in a row.
    """
    if step is not None and duration / step > MOST_STEPS:
        steps = duration / step
        return (
            f"{steps:.3g} steps of {step:.3g} s in {duration:.6g} s would take about "
            f"{_in_words(steps / STEPS_PER_SECOND)} at a million steps a second "
            f"(at most {MOST_STEPS:.0e}; take a longer step or a shorter run)"
        )
    if row_step is not None and duration / row_step > MOST_ROWS:
        rows = duration / row_step
        return (
            f"{rows:.3g} rows in {duration:.6g} s, {rows * columns * 8e-9:.3g} GB (at most {MOST_ROWS:.0e} rows; "
            "give a longer run.output_step)"
        )
    return None


def _in_words(seconds: float) -> str:
    """A long time in hours, days or years."""
    name, size = next(((name, size) for name, size in _UNITS if seconds >= 2 * size), _UNITS[-1])
    return f"{seconds / size:.2g} {name}"
