"""Spheres and capsules, and the clearance of two of them as a constraint: one row.

The points of two segments are `p + s d` and `q + t e` with s, t in [0, 1]. Their squared distance is the least value of

    f(s, t) = |p + s d - q - t e|^2 + mu ( |d|^2 s (s - 1) + |e|^2 t (t - 1) )

with mu = 0, except where the segments are nearly parallel. There the nearest points jump from one end to the other, so
the distance has a kink: its rate drops at once, and its second derivative is not bounded. With mu > 0 the nearest
points slide instead. The added terms are never positive, so the value is never above the true one, and they vanish at
the ends:

    0 <= D_true - D <= SHARE reach     where D = reach, and D = D_true beyond an angle

Design: one formula instead of a switch between cases. f is strictly convex, so its minimum and the derivative of that
are continuous in everything. The second derivative is bounded; it jumps where a nearest point comes to an end.
The idea of an exact lower bound is ours; the minimum over the square is solved as in Ericson 2005, 5.1.9.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.symbol import clip, maximum, minimum, where
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Holonomic
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.shapes.link_poses import LinkPose, link_poses, link_problems, one_body
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint, HasFrames
from servoctl.types import Array

SHARE = 0.01  # largest part of `reach` by which the distance of parallel segments is taken smaller than it is
STRONGEST = 1.0 / 16.0  # largest mu
FADES = 16.0  # mu is 0 where the squared sine of the angle is above this many times its largest value
TOUCH = 0.1  # below this part of `reach` the distance is a parabola, because it has no derivative where axes cross


def axis_distance(p: Array, d: Array, length: float, q: Array, e: Array, other: float, reach: Any) -> Any:
    """D, numbers or symbols; finite and within 6 % of reach about 0 where the segments cross.

    Args:
        p: Start of the first segment [m], shape (3,).
        d: From its start to its end [m], shape (3,).
        length: Length of d [m]; it does not depend on the state.
        q: Start of the second segment.
        e: From its start to its end.
        other: Length of e.
        reach: The distance that matters, above 0 [m]; how near the value is to the true one scales with it.
    """
    return _root(_squared_distance(p - q, d, length, e, other, reach), TOUCH * reach)


def _squared_distance(r: Array, d: Array, length: float, e: Array, other: float, reach: Any) -> Any:
    """The least f; r is p - q."""
    if not length or not other:
        return _to_point(r, d, length) if not other else _to_point(-r, e, other)
    dd, ee, de = length**2, other**2, d @ e
    mu = _mu(dd, ee, de, reach)
    along, across = dd * (1.0 + mu), ee * (1.0 + mu)
    first, second = d @ r - mu * dd / 2.0, e @ r + mu * ee / 2.0
    # the minimum of a convex f over a square: over s with t free, then over t, then over s again
    s = clip((de * second - first * across) / (along * across - de * de), 0.0, 1.0)
    t = clip((de * s + second) / across, 0.0, 1.0)
    s = clip((de * t - first) / along, 0.0, 1.0)
    gap = r + s * d - t * e
    return gap @ gap + mu * (dd * s * (s - 1.0) + ee * t * (t - 1.0))


def _to_point(r: Array, d: Array, length: float) -> Any:
    """Squared distance of a segment from the origin; r is its start."""
    if not length:
        return r @ r
    gap = r + clip(-(d @ r) / length**2, 0.0, 1.0) * d
    return gap @ gap


def _mu(dd: float, ee: float, de: Any, reach: Any) -> Any:
    """mu: largest where the segments are parallel, with two derivatives where it becomes 0."""
    most = minimum(8.0 * SHARE * reach**2 / (dd + ee), STRONGEST)
    sine_squared = 1.0 - de * de / (dd * ee)
    return most * maximum(1.0 - sine_squared / (FADES * most), 0.0) ** 3


def _root(square: Any, least: Any) -> Any:
    """The root of a square above `least`, below it the parabola that continues it."""
    far = square > least**2
    return where(far, np.sqrt(where(far, square, least**2)), (square / least + least) / 2.0)


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
