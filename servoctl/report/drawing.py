"""Data that a run stores for pictures: polylines and surfaces of the plant, its energy, and the path of the task.

Design: pictures are drawn from the run folder alone, so everything that needs the plant is computed at the end of the
run. The path of the task comes from its equations: if a logged pose violates them, the nearest pose that satisfies them
and the passive constraints is drawn instead. Tasks on frames of a robot say themselves where their path is.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.initial import SOLVED, nearest_pose
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, Point, link_poses, polylines
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.pose import Distance, DistanceBound
from servoctl.mechanics.spatial.task.target import numbers
from servoctl.report.surfaces import asked_paths, robot_picture
from servoctl.run_folder.trajectory import traced
from servoctl.types import Array, State

RATE = 50.0  # [Hz] frames per second of the run, within `LEAST` and `MOST` frames
LEAST, MOST = 200, 1000  # smallest and largest number of frames, if the run has as many rows
PATH_POINTS = 150  # largest number of points of a task's path
STILL = 1e-6  # a point is at rest if it moves by less than this share of its polyline's extent
ON_PATH = 1e-6  # [units of the row] a pose with a smaller violation counts as on the path of the task


def drawing(model: Model, t: Array, q: Array, v: Array, task_time: Array | None = None) -> dict[str, Array]:
    """Polylines, energy and the path of the task from the rows of a run.

    Args:
        t: Times [s], shape (rows,).
        q: Coordinates, shape (rows, n).
        v: Their rates, shape (rows, n).
        task_time: Time of the task [s], shape (rows,); None: t.

    Returns:
        Polyline -> points [m], shape (frames, points, 2 or 3); `t` -> times of the frames [s]; `energy` [J], shape
        (frames,), if the plant gives one; `task.<polyline>` -> wanted positions of its end, shape (points, 2 or 3), if
        the task has holonomic rows; of a robot, what `robot_picture` and `asked_paths` return; of bounds, what
        `shape_picture` returns. Empty without rows, or if the plant has neither polylines nor energy.

    Raises:
        PlantError: `links` or `energy` failed, or the polylines are not the same in all frames.
    """
    model = model.plain
    chosen = _chosen(t)
    states = [State(float(t[i]), q[i], v[i]) for i in chosen]
    out = _polylines(model, states)
    if out:
        out |= robot_picture(model.plant, model.task, q[chosen])
        out |= _task_paths(model, t if task_time is None else task_time, q, v, out, chosen)
        out |= shape_picture(model.plant, placed_shapes(model.bounds), q[chosen])
    energies = plant_values.energies(model.plant, states)
    if energies is not None:
        out["energy"] = energies
    return {**out, "t": t[chosen]} if out else {}


def _chosen(t: Array) -> Array:
    if not len(t):
        return np.empty(0, dtype=int)
    count = int(np.clip(np.nan_to_num(RATE * (t[-1] - t[0])), LEAST, MOST))
    return np.unique(np.linspace(0, len(t) - 1, count).round().astype(int))


def _polylines(model: Model, states: Sequence[State]) -> dict[str, Array]:
    """Polyline -> points, shape (frames, points, 2 or 3); NaN for a pose that is not finite."""
    name = type(model.plant).__name__
    frames = [plant_values.links(model.plant, at) if np.isfinite(at.q).all() else None for at in states]
    first = next((frame for frame in frames if frame is not None), {})
    shapes = {line: points.shape for line, points in first.items()}
    for frame, at in zip(frames, states, strict=True):
        here = shapes if frame is None else {line: points.shape for line, points in frame.items()}
        if here != shapes:
            raise PlantError(
                f"{name}.links: at t = {at.t:.6g} s: expected the same polylines as before, {shapes}, got {here}"
            )
    return {
        line: np.array([np.full(shape, np.nan) if frame is None else frame[line] for frame in frames])
        for line, shape in shapes.items()
    }


def _task_paths(
    model: Model, task_time: Array, q: Array, v: Array, lines: dict[str, Array], chosen: Array
) -> dict[str, Array]:
    indices = chosen[np.unique(np.linspace(0, len(chosen) - 1, PATH_POINTS).round().astype(int))]
    if isinstance(model.plant, Robot):
        return asked_paths(model.plant, model.task, task_time[indices], q[indices])
    if not any(row.kind == "holonomic" for row in model.task_rows):
        return {}
    wanted = [State(float(task_time[i]), q[i], v[i]) for i in indices]
    poses = [_on_task(model, state) for state in wanted]
    moving = [name for name, points in lines.items() if _travel(traced(points)) > STILL * _travel(points)]
    frames = _polylines(model, [State(at.t, pose, at.v) for at, pose in zip(wanted, poses, strict=True)])
    return {f"task.{name}": traced(frames[name]) for name in moving if name in frames}


def _travel(points: Array) -> float:
    """Largest extent along an axis [m]."""
    return float(np.max(np.ptp(points.reshape(-1, points.shape[-1]), axis=0), initial=0.0))


def _on_task(model: Model, state: State) -> Array:
    """The nearest pose that satisfies the task, shape (n,); NaN if there is none."""
    if not np.isfinite(np.concatenate([state.q, state.v])).all():
        return np.full(len(state.q), np.nan)
    pose, left = nearest_pose(model, state, good_enough=ON_PATH)
    return pose if left < max(ON_PATH, SOLVED) else np.full(len(pose), np.nan)


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
            largest = isinstance(constraint, DistanceBound) and constraint.most  # so that a frame stays inside
            yield PlacedShape(name, None, point, point, constraint.value, largest)


def _poses(plant: Plant, names: Sequence[str], q: Array) -> tuple[Array, Array]:
    """Rotations, shape (frames, links, 3, 3), and positions, shape (frames, links, 3); NaN where q is not finite."""
    R, p = np.full((len(q), len(names), 3, 3), np.nan), np.full((len(q), len(names), 3), np.nan)
    if isinstance(plant, Robot):
        return plant.frame_poses(names, q)
    for k, at in enumerate(q if names else ()):
        if np.isfinite(at).all():
            poses = link_poses(plant, names, at, partial(polylines, plant))
            for i, name in enumerate(names):
                R[k, i], p[k, i] = poses[name]
    return R, p
