"""Where the shapes of bounds are, for pictures."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, Point, link_poses, polylines
from servoctl.mechanics.spatial.kinematics import frame_poses
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.pose import Distance, DistanceBound
from servoctl.mechanics.spatial.task.target import numbers
from servoctl.types import Array


class PlacedShape(NamedTuple):
    """A sphere or a capsule of a bound."""

    name: str  # of its link or of the bound
    link: str | None  # that carries it; None: it is fixed in the world
    start: Point  # see `SweptSphere`
    end: Point  # see `SweptSphere`
    radius: float  # [m]
    encloses: bool = False  # whether the machine stays inside of it


def placed_shapes(bounds: Mapping[str, Constraint]) -> list[PlacedShape]:
    """The shapes of clearances, and a sphere around the point of each distance from a point.

    Each shape of a link once; what is fixed once for each bound, under the name of that bound.
    """
    found = [shape for name, constraint in bounds.items() for shape in _shapes(name, constraint)]
    once: dict[tuple[object, ...], PlacedShape] = {}
    for shape in found:
        once.setdefault(shape[1:] if shape.link is not None else tuple(shape), shape)
    return list(once.values())


def shape_picture(plant: Plant, shapes: Sequence[PlacedShape], q: Array) -> dict[str, Array]:
    """`shape.<name>` of what moves: start, end and radius [m], shape (frames, 7); `obstacle.<name>`, shape (7,),
    and `enclosure.<name>`, what the machine stays inside of.

    Args:
        shapes: Result of `placed_shapes`.
        q: Coordinates, shape (frames, n).
    """
    names = list(dict.fromkeys(shape.link for shape in shapes if shape.link is not None))
    R, p = _poses(plant, names, q)
    drawn: dict[str, Array] = {}
    for shape in shapes:
        if shape.link is None:
            drawn[f"{'enclosure' if shape.encloses else 'obstacle'}.{shape.name}"] = np.array(
                [*shape.start, *shape.end, shape.radius]
            )
            continue
        i = names.index(shape.link)
        ends = [p[:, i] + R[:, i] @ np.array(end) for end in (shape.start, shape.end)]
        drawn[f"shape.{shape.name}"] = np.column_stack([*ends, np.full(len(q), shape.radius)])
    return drawn


def _shapes(name: str, constraint: Constraint) -> Iterator[PlacedShape]:
    if isinstance(constraint, Clearance):
        sides = ((constraint.first, constraint.first_link), (constraint.second, constraint.second_link))
        for shape, link in sides:
            yield PlacedShape(link or name, link, shape.start, shape.end, shape.radius)
    elif isinstance(constraint, Distance) and isinstance(constraint.value, float):
        centre = numbers(constraint.second)
        if centre is not None:
            point = (centre[0], centre[1], centre[2])
            yield PlacedShape(name, None, point, point, constraint.value, _is_most(constraint))


def _is_most(constraint: Distance) -> bool:
    """Whether the distance is the largest one, so that a frame stays inside the sphere."""
    return isinstance(constraint, DistanceBound) and constraint.most


def _poses(plant: Plant, names: Sequence[str], q: Array) -> tuple[Array, Array]:
    """Rotations, shape (frames, links, 3, 3), and positions, shape (frames, links, 3); NaN where q is not finite."""
    R, p = np.full((len(q), len(names), 3, 3), np.nan), np.full((len(q), len(names), 3), np.nan)
    if not names:
        return R, p
    if isinstance(plant, Robot):
        with np.errstate(all="ignore"):  # a run that diverges has gaps
            moved = frame_poses(plant.tree, names, q)
        return np.stack([moved[name][0] for name in names], 1), np.stack([moved[name][1] for name in names], 1)
    for k, at in enumerate(q):
        if np.isfinite(at).all():
            poses = link_poses(plant, names, at, partial(polylines, plant))
            for i, name in enumerate(names):
                R[k, i], p[k, i] = poses[name]
    return R, p
