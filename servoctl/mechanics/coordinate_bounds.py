"""Bounds of coordinates and of their speeds, as rows `h >= 0`.

    CoordinateRange    h = q - lower and upper - q
    CoordinateSpeed    h = v - lower and upper - v

Each coordinate has one row per finite limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from servoctl.errors import TaskError, no_such
from servoctl.expression import per_second
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

Limits = Mapping[str, float | Sequence[float]]  # coordinate -> (lower, upper), or one number for both sides


@dataclass(frozen=True)
class CoordinateLimits(Constraint):
    """Limits of some coordinates, or of their speeds."""

    coordinates: tuple[str, ...]  # names
    lower: tuple[float, ...]  # smallest value of each; -inf for none
    upper: tuple[float, ...]  # largest value

    rate: ClassVar[bool]

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """The limits by name.

        Raises:
            TaskError: A lower limit is not below its upper one; the message names the coordinate.
        """
        pairs = {name: limit_pair(limit) for name, limit in limits.items()}
        for name, (lower, upper) in pairs.items():
            if not lower < upper:
                raise TaskError(f"{name}: expected lower < upper, got [{lower:g}, {upper:g}]")
        return cls(tuple(pairs), tuple(a for a, _ in pairs.values()), tuple(b for _, b in pairs.values()))

    def __post_init__(self) -> None:
        # kept in copies whose limits are symbols
        limits = zip(self.lower, self.upper, strict=True)
        found = [(i, side) for i, pair in enumerate(limits) for side in (0, 1) if np.isfinite(pair[side])]
        object.__setattr__(self, "sides", tuple(found))

    @property
    def limits(self) -> Iterator[tuple[str, float, bool]]:
        """Per row: coordinate, limit, and whether it is the upper one."""
        sides: tuple[tuple[int, int], ...] = self.sides  # type: ignore[attr-defined]
        for i, side in sides:
            yield self.coordinates[i], (self.lower, self.upper)[side][i], bool(side)

    def reported(self, group: str, row: int) -> str:
        """The name under which a row is reported; the two sides of a limit have one name."""
        return group if len(self.coordinates) == 1 else f"{group}.{list(self.limits)[row][0]}"

    def problems(self, plant: Plant) -> list[str]:
        known = list(plant.coordinates)
        return [no_such("coordinate", name, known) for name in self.coordinates if name not in known]

    def row_labels(self) -> tuple[str, ...]:
        return tuple(f"{name}.{'upper' if upper else 'lower'}" for name, _, upper in self.limits)

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        units = [plant.coordinates[name] for name, _, _ in self.limits]
        return tuple(per_second(unit) if self.rate else unit for unit in units)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        index = {name: i for i, name in enumerate(plant.coordinates)}
        limits = list(self.limits)
        A, h, rate = np.zeros((len(limits), len(q))), [], []
        x = v if self.rate else q
        for row, (name, limit, upper) in enumerate(limits):
            sign, j = (-1.0 if upper else 1.0), index[name]
            A[row, j] = sign
            h.append(sign * (x[j] - limit))
            rate.append(np.nan if self.rate else sign * v[j])
        return Rows(A, np.zeros(len(limits)), np.array(h), np.array(rate))


@dataclass(frozen=True)
class CoordinateRange(CoordinateLimits):
    """Coordinates stay between their limits [their units]."""

    kind = "holonomic"
    rate = False


@dataclass(frozen=True)
class CoordinateSpeed(CoordinateLimits):
    """Velocities of coordinates stay between their limits [their units per s]."""

    kind = "nonholonomic"
    rate = True


def limit_pair(limit: Any) -> tuple[float, float]:
    """(lower, upper) of a pair, or of one number for both sides."""
    if isinstance(limit, (int, float)):
        return -float(limit), float(limit)
    lower, upper = limit
    return float(lower), float(upper)
