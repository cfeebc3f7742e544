"""A sphere or a capsule: all points within a radius of a segment."""

from dataclasses import dataclass

import numpy as np

from servoctl.errors import PlantError
from servoctl.types import Array

Point = tuple[float, float, float]  # [m] x, y, z


@dataclass(frozen=True)
class SweptSphere:
    """All points within a radius of a segment; a sphere has a segment of length 0.

    Attributes:
        start: First end of the segment, in the axes of its link or of the world [m].
        end: Second end [m].
        radius: At least 0 [m]; 0: the segment or the point itself.
    """

    start: Point
    end: Point
    radius: float

    def __post_init__(self) -> None:
        if not self.radius >= 0.0:
            raise PlantError(f"radius: expected at least 0 m, got {self.radius:g}")

    @classmethod
    def sphere(cls, at: Point, radius: float) -> "SweptSphere":
        """A sphere about a point."""
        return cls(at, at, radius)

    @property
    def axis(self) -> Array:
        """From the first end to the second, shape (3,) [m]."""
        axis: Array = np.array(self.end) - np.array(self.start)
        return axis

    @property
    def length(self) -> float:
        """Length of the segment [m]."""
        return float(np.linalg.norm(self.axis))
