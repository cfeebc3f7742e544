"""Where links are, for shapes on them: frames of robots, bodies of planar linkages, polylines of other plants.

A plant in Python that is no linkage shows its links by `links(q)`. Point i of the polyline `arm` is the origin of the
frame `arm_i`, whose x axis points to the next point (that of the last point from the one before); `arm` is short for
`arm_0`. In the plane y is to the left of x. A polyline in space has no y, so points of shapes on it are on its x axis.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.symbol import where
from servoctl.errors import PlantError
from servoctl.expression.suggest import suggestion
from servoctl.mechanics import plant_values
from servoctl.mechanics.planar.linkage import GROUND
from servoctl.mechanics.planar.parts import ORIGIN
from servoctl.mechanics.planar.plant import PlanarLinkage
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.model import WORLD
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.frame_constraint import HasFrames
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
            poses.append(_plane((points[i][0], points[i][1]), unit[0], unit[1]))
        else:
            poses.append(LinkPose(np.column_stack([unit, np.zeros((3, 2))]), points[i]))
    return poses


def _plane(origin: tuple[Any, Any], cosine: Any, sine: Any) -> LinkPose:
    rotation = [[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]]
    return LinkPose(np.array(rotation), np.array([*origin, 0.0]))


def _known(plant: Plant, name: str, known: Mapping[str, LinkPose]) -> str:
    if name not in known:
        raise PlantError(_unknown(name, list(known)))
    return name


def _unknown(name: str, known: Sequence[str]) -> str:
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    listed = f"links: {', '.join(known[:LISTED])}{more}" if known else "this plant has none: give it links(q)"
    near = suggestion(name, known) if more else ""
    return f"there is no link '{name}' ({near + ' ' if near else ''}{listed})"
