"""A curve: piecewise polynomials of time with several columns, which splines and waypoint profiles become.

Design: one form serves every kind of reference, on numbers, on symbols and in C. Two more pieces lie beyond the knots:
constants for `hold`, NaN for `error`. `periodic` shifts the time.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from servoctl.engine.lookup import LookupTable
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
