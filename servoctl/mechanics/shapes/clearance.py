"""Spheres and capsules, and the clearance of two of them as a constraint: one row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Holonomic
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.shapes.link_poses import LinkPose, link_poses, link_problems, one_body
from servoctl.mechanics.shapes.segments import axis_distance
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint, HasFrames
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


@dataclass(frozen=True)
class Clearance(FrameConstraint):
    """`phi = |axis to axis| - radii - value`: the free distance of two shapes has a value [m]; as a bound, at least it.

    phi is negative inside each other, down to about minus the radii and the value. Where axes are nearly parallel it
    may be smaller than the true distance by 1 % of radii and value; see `segments`.

    Attributes:
        first: A shape.
        second: Another one.
        first_link: Link that carries it; None: it is fixed in the world.
        second_link: Link that carries the other one; None: it is fixed in the world.
        value: The distance of the surfaces [m].
    """

    first: SweptSphere
    second: SweptSphere
    first_link: str | None
    second_link: str | None = None
    value: float = 0.0

    @property
    def frames(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.first_link, self.second_link) if name is not None))

    @property
    def reach(self) -> float:
        """Distance of the axes at which phi is 0 [m]."""
        return self.first.radius + self.second.radius + self.value

    def field_problems(self) -> list[str]:
        if not self.reach > 0.0:
            return ["value: expected a distance above 0, because neither shape has a radius"]
        return []

    def problems(self, plant: Plant) -> list[str]:
        sides = ((self.first, self.first_link), (self.second, self.second_link))
        links = [(shape, link) for shape, link in sides if link is not None]
        found = [each for shape, link in links for each in link_problems(plant, link, (shape.start, shape.end))]
        if not found and one_body(plant, self.first_link, self.second_link):
            found.append(f"{self._words()} never move relative to each other (name shapes of two moving links)")
        return list(dict.fromkeys(found))

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("m",)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if isinstance(plant, HasFrames):
            return super().rows(plant, t, q, v)
        return Holonomic(lambda q, t: self.residual(link_poses(plant, self.frames, q), plant, t)).rows(plant, t, q, v)

    def residual(self, motions: Mapping[str, FrameMotion] | Mapping[str, LinkPose], plant: Plant, t: Any) -> Any:
        p, d = _segment(self.first, None if self.first_link is None else motions[self.first_link])
        q, e = _segment(self.second, None if self.second_link is None else motions[self.second_link])
        return axis_distance(p, d, self.first.length, q, e, self.second.length, self.reach) - self.reach

    def _words(self) -> str:
        names = ["the world" if link is None else f"'{link}'" for link in (self.first_link, self.second_link)]
        return " and ".join(names)


def _segment(shape: SweptSphere, pose: FrameMotion | LinkPose | None) -> tuple[Array, Array]:
    """Start, and from there to the end, in world axes."""
    if pose is None:
        return np.array(shape.start), shape.axis
    return pose.position + pose.rotation @ np.array(shape.start), pose.rotation @ shape.axis
