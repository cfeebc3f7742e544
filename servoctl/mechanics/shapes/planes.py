"""Lines and planes of bounds, for pictures: where `h(q) = n . p(q) + c >= 0` with a point p that the plant draws.

Design: the meaning of an equation is found from its values at random poses: if h is the same linear function of a drawn
point at all of them, h = 0 is a line or a plane that this point must not cross. Other bounds are not drawn, nor are
those that move with time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics import plant_values
from servoctl.mechanics.coordinate_bounds import CoordinateLimits
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

POSES = 12
"""Random poses; a linear function of a point has four unknowns."""

LINEAR = 1e-9
"""h is linear if it differs by less than this, relative to its range."""

DEPTH, MARGIN, FAR = 0.06, 1.1, 2.0
"""Depth of what is drawn in the plane, its half length, and the distance from which on it is left out; all relative to
the radius of the drawing."""


class HalfSpace(NamedTuple):
    """Points with `normal . p >= offset`.

    Attributes:
        name: Of the bound's row.
        normal: Of length 1, shape (3,).
        offset: [m].
    """

    name: str
    normal: Array
    offset: float


def bound_planes(model: Model, around: State, lines: dict[str, Array]) -> dict[str, Array]:
    """`plane.<row>` of each bound with a plane: four corners each [m], shape (planes, 12).

    In the plane it is a wall whose first side is the border; in space it is a square on the border.

    Args:
        model: Plant and bounds.
        around: Poses near this one are looked at.
        lines: Polylines of the plant, shape (frames, points, 2 or 3), which give the size.
    """
    points = [_in_space(each.reshape(-1, each.shape[-1])) for each in lines.values()]
    cloud = np.concatenate(points) if points else np.zeros((0, 3))
    cloud = cloud[np.isfinite(cloud).all(axis=1)]
    if not len(cloud):
        return {}
    low, high = cloud.min(axis=0), cloud.max(axis=0)
    middle, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
    flat = all(each.shape[-1] == 2 for each in lines.values())
    found: dict[str, list[Array]] = {}
    for one in half_spaces(model, around):
        away = one.offset - float(one.normal @ middle)
        if abs(away) <= FAR * radius:
            found.setdefault(one.name, []).append(_corners(one.normal, middle + away * one.normal, radius, flat))
    return {f"plane.{name}": np.array(corners) for name, corners in found.items()}


def planes_near(model: Model, start: State) -> dict[str, Array]:
    """The planes of `bound_planes` under the keys of their rows, in the size of the poses near the start."""
    try:
        poses = [plant_values.links(model.plant, at, at.q) for at in (start, *model.samples(start, POSES))]
    except PlantError:
        return {}
    lines = {name: np.array([pose[name] for pose in poses]) for name in poses[0]}
    return {name.removeprefix("plane."): each for name, each in bound_planes(model, start, lines).items()}


def half_spaces(model: Model, around: State) -> Iterator[HalfSpace]:
    """The half spaces of the rows that have one."""
    rows = [i for i, row in enumerate(model.bound_rows) if row.kind == "holonomic" and row.degree == 2]
    if not rows:
        return
    still = np.zeros(model.n)
    states = [State(around.t, each.q, still) for each in model.samples(around, POSES)]
    try:
        drawn = [plant_values.links(model.plant, state, state.q) for state in states]
    except PlantError:  # such a pose tells nothing
        return
    h = np.array([model.rows_of_bounds(state).violation for state in states])
    later = np.array([model.rows_of_bounds(State(state.t + 1.0, *state[1:])).violation for state in states])
    points = [np.array([each[line][k] for each in drawn]) for line in drawn[0] for k in range(len(drawn[0][line]))]
    for i in rows:
        if np.array_equal(h[:, i], later[:, i]):
            fits = [fit for point in points if (fit := _fitted(_in_space(point), h[:, i])) is not None]
            same = [offset for normal, offset in fits if np.allclose(normal, fits[0][0], atol=1e-6)]
            if same:  # corners of one body move alike: the border is drawn at their middle
                yield HalfSpace(_name(model, i), fits[0][0], float(np.mean(same)))


def _fitted(points: Array, h: Array) -> tuple[Array, float] | None:
    """Normal and offset, if h is a linear function of the points, shape (poses, 3)."""
    if not (np.isfinite(points).all() and np.isfinite(h).all()):
        return None
    centre, mean = points.mean(axis=0), h.mean()
    slope = np.linalg.lstsq(points - centre, h - mean, rcond=LINEAR)[0]
    size, missed = float(np.linalg.norm(slope)), np.abs((points - centre) @ slope - (h - mean)).max()
    if not size > LINEAR or missed > LINEAR * np.ptp(h):
        return None
    return slope / size, float(centre @ slope - mean) / size


def _name(model: Model, index: int) -> str:
    """The name under which a row is reported."""
    row = model.bound_rows[index]
    of = model.bounds[row.group]
    if not isinstance(of, CoordinateLimits):
        return row.name
    return of.reported(row.group, index - [each.group for each in model.bound_rows].index(row.group))


def _corners(normal: Array, foot: Array, radius: float, flat: bool) -> Array:
    """Four corners around a point of the border, one after the other, shape (12,)."""
    if flat:
        along = MARGIN * radius * np.array([-normal[1], normal[0], 0.0])
        depth = DEPTH * radius * normal
        return np.concatenate([foot - along, foot + along, foot + along - depth, foot - along - depth])
    axis = np.eye(3)[int(np.argmin(np.abs(normal)))]
    first = np.cross(normal, axis)
    first *= radius / np.linalg.norm(first)
    second = np.cross(normal, first)
    return np.concatenate([foot + first, foot + second, foot - first, foot - second])


def _in_space(points: Array) -> Array:
    """The points with z = 0 where they have none, shape (points, 3)."""
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
