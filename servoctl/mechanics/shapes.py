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

Shapes are on links: frames of robots, bodies of planar linkages, polylines of other plants. A plant in Python that is
no linkage shows its links by `links(q)`. Point i of the polyline `arm` is the origin of the frame `arm_i`, whose x axis
points to the next point (that of the last point from the one before); `arm` is short for `arm_0`. In the plane y is to
the left of x. A polyline in space has no y, so points of shapes on it are on its x axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.symbol import clip, maximum, minimum, where
from servoctl.errors import PlantError, listed, suggestion
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Holonomic, Rows
from servoctl.mechanics.planar.linkage import GROUND
from servoctl.mechanics.planar.parts import ORIGIN
from servoctl.mechanics.planar.plant import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.model import WORLD
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint, HasFrames
from servoctl.types import Array, State

FIXED = "world"  # the frame of a robot that no link has
LISTED = 12  # largest number of links that an error lists


class LinkPose(NamedTuple):
    """The axes of a link in the world, numbers or symbols."""

    rotation: Array  # shape (3, 3): columns are the axes; those that a picture does not give are 0
    position: Array  # [m] of the origin, shape (3,)


def link_poses(
    plant: Plant, names: Sequence[str], q: Array, links: Callable[[Array], Mapping[str, Array]] | None = None
) -> dict[str, LinkPose]:
    """Name -> pose of each of the links, on numbers or symbols; not for robots, whose frames have closed forms.

    Args:
        links: q -> polylines; None: the plant's own, as they are.

    Raises:
        PlantError: There is no link of a name.
    """
    if isinstance(plant, PlanarLinkage):
        frames = plant.linkage().frames(q)
        known = {name: _plane(frame.position(ORIGIN), frame.cosine, frame.sine) for name, frame in frames.items()}
        del known[GROUND]
    else:
        known = _of_polylines((links or plant.links)(q))
    return {name: known[_known(plant, name, known)] for name in names}


def link_names(plant: Plant) -> list[str]:
    """Links that may have a shape."""
    if isinstance(plant, Robot):
        return [frame.name for frame in plant.tree.frames if frame.name != FIXED]
    if isinstance(plant, PlanarLinkage):
        return [name for name in plant.linkage().bodies if name != GROUND]
    return list(_of_polylines(polylines(plant, np.ones(len(plant.coordinates)))))


def link_problems(plant: Plant, name: str, points: Sequence[Sequence[float]]) -> list[str]:
    """Why points in the axes of a link are not there, one sentence each."""
    if name == FIXED:
        return ["the world is no link (write what does not move under plant.obstacles)"]
    if isinstance(plant, Robot):
        return [] if name in link_names(plant) else [_unknown(name, link_names(plant))]
    anywhere = np.ones(len(plant.coordinates))
    try:
        if isinstance(plant, HasFrames):
            plant.frame_motions([name], anywhere, anywhere)
            return []
        pose = link_poses(plant, [name], anywhere, partial(polylines, plant))[name]
    except PlantError as error:
        return [str(error)]
    lacking = [axis for axis, column in zip("xyz", pose.rotation.T, strict=True) if not np.any(column)]
    if any(point["xyz".index(axis)] for point in points for axis in lacking):
        return [f"the picture of link '{name}' does not say where {' and '.join(lacking)} point (expected 0 there)"]
    return []


def one_body(plant: Plant, first: str | None, second: str | None) -> bool:
    """Whether two links, None for the world, are known never to move relative to each other."""
    if isinstance(plant, Robot):
        bodies = [WORLD if name is None else plant.tree.frame(name).body for name in (first, second)]
        return bodies[0] == bodies[1]
    return first == second


def polylines(plant: Plant, q: Array) -> dict[str, Array]:
    """The polylines, on numbers; raises PlantError that says where the plant's own code fails."""
    return plant_values.links(plant, State(0.0, q, np.zeros(len(q))))


def _of_polylines(lines: Mapping[str, Array]) -> dict[str, LinkPose]:
    poses = {f"{name}_{i}": pose for name, points in lines.items() for i, pose in enumerate(_along(np.asarray(points)))}
    return poses | {name: poses[f"{name}_0"] for name in lines if f"{name}_0" in poses}


def _along(points: Array) -> list[LinkPose]:
    """The frames of a polyline, shape (points, 2 or 3)."""
    count = len(points)
    poses = []
    for i in range(count):
        step = points[min(i + 1, count - 1)] - points[max(min(i, count - 2), 0)]
        square = step @ step
        apart = square > 0.0
        # two equal points have no direction; the inner `where` keeps derivatives finite
        unit = where(apart, step / np.sqrt(where(apart, square, 1.0)), 0.0 * step)
        if points.shape[1] == 2:
            poses.append(_plane(points[i], unit[0], unit[1]))
        else:
            poses.append(LinkPose(np.column_stack([unit, np.zeros((3, 2))]), points[i]))
    return poses


def _plane(origin: Array, cosine: Any, sine: Any) -> LinkPose:
    rotation = [[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]]
    return LinkPose(np.array(rotation), np.array([*origin, 0.0]))


def _known(plant: Plant, name: str, known: Mapping[str, LinkPose]) -> str:
    if name not in known:
        raise PlantError(_unknown(name, list(known)))
    return name


def _unknown(name: str, known: Sequence[str]) -> str:
    there = f"links: {listed(known, LISTED)}" if known else "this plant has none: give it links(q)"
    near = suggestion(name, known) if len(known) > LISTED else ""
    return f"there is no link '{name}' ({near + ' ' if near else ''}{there})"


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
    may be smaller than the true distance by 1 % of radii and value.

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

    units_of_rows = ("m",)

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
