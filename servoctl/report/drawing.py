"""Data that a run stores for pictures: polylines and surfaces of the plant, its energy, and the path of the task.

Design: pictures are drawn from the run folder alone, so everything that needs the plant is computed at the end of the
run. The path of the task comes from its equations: if a logged pose violates them, the nearest pose that satisfies them
and the passive constraints is drawn instead. Tasks on frames of a robot say themselves where their path is.

Design: a surface is stored once, in axes of its frame, and a picture moves it by poses; so a run with a thousand frames
costs little more than one picture. Faces have four corners, because most are four-sided; a triangle repeats a corner.
Meshes are binary STL, with few enough faces for a picture.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from servoctl.errors import ConfigError, PlantError
from servoctl.input_file import read_regular
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.initial import SOLVED, nearest_pose
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, Point, link_poses, polylines
from servoctl.mechanics.spatial.description import Shape
from servoctl.mechanics.spatial.model import WORLD, RobotTree
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.pose import Distance, DistanceBound, Pose, Position
from servoctl.mechanics.spatial.task.target import numbers, values_at
from servoctl.run_folder.trajectory import group, traced
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
    if isinstance(plant, Robot):
        return plant.frame_poses(names, q)
    R, p = np.full((len(q), len(names), 3, 3), np.nan), np.full((len(q), len(names), 3), np.nan)
    for k, at in enumerate(q if names else ()):
        if np.isfinite(at).all():
            poses = link_poses(plant, names, at, partial(polylines, plant))
            for i, name in enumerate(names):
                R[k, i], p[k, i] = poses[name]
    return R, p


SIDES = 20  # number of flat sides of a cylinder, and of meridians of a sphere
LONGEST = 6  # largest number of bands of a cylinder
RINGS = 8  # number of bands of a sphere

MOST_FACES = 400  # largest number of faces of a mesh in a picture

MOST_READ = 500_000
"""Largest number of faces of a file that is read; of more, the numbers that name a face would overflow."""

FINEST, COARSEST = 32, 4  # number of cells along the longest side of a mesh, from the first attempt to the last

HEADER = 84
FACE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


class Solid(NamedTuple):
    """A closed surface."""

    points: Array  # [m] its corners, shape (points, 3)
    faces: Array  # indices of four corners, counterclockwise seen from outside, shape (faces, 4)


def solids(tree: RobotTree) -> dict[str, tuple[Solid, int]]:
    """Frame -> its surface in its own axes, and the number of its colour: one for each robot, one for each payload."""
    found: dict[str, tuple[Solid, int]] = {}
    roots = [i for i, joint in enumerate(tree.joints) if joint.parent == WORLD]
    payloads = [link.name for link in tree.links if link.gyration is not None]
    colour = 0
    # backwards: the base of a robot does not move, and the frames behind it are those of the same robot
    for frame in reversed(tree.frames):
        colour = colour if frame.body == WORLD else roots.index(_root(tree, frame.body))
        parts = [part for part in map(solid_of, frame.shapes) if part is not None]
        if parts:
            payload = frame.name in payloads
            found[frame.name] = joined(parts), len(roots) + payloads.index(frame.name) if payload else colour
    return dict(reversed(found.items()))


def solid_of(shape: Shape) -> Solid | None:
    """The surface of a shape in axes of its frame; None for a mesh that cannot be drawn."""
    if shape.kind == "mesh":
        mesh = None if shape.file is None else read_stl(shape.file)
        solid = None if mesh is None else Solid(mesh[0] * shape.size, mesh[1][:, [0, 1, 2, 2]])
    elif shape.kind == "box":
        solid = _box(shape.size)
    elif shape.kind == "cylinder":
        radius, length = shape.size
        # bands about as long as they are wide: pictures put the faces of solids in order by their middles
        bands = int(np.clip(length / (2 * radius), 1, LONGEST)) if radius > 0 else 1
        heights = np.linspace(-length / 2, length / 2, bands + 1)
        solid = _turned([(0.0, heights[0]), *((radius, z) for z in heights), (0.0, heights[-1])])
    else:
        angles = np.linspace(-np.pi / 2, np.pi / 2, RINGS + 1)
        solid = _turned([(shape.size[0] * np.cos(a), shape.size[0] * np.sin(a)) for a in angles])
    return None if solid is None else Solid(solid.points @ shape.placement.R.T + shape.placement.p, solid.faces)


def joined(parts: Sequence[Solid]) -> Solid:
    """Several surfaces as one."""
    offsets = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
    faces = [part.faces + offset for part, offset in zip(parts, offsets, strict=True)]
    return Solid(np.concatenate([part.points for part in parts]), np.concatenate(faces))


def _box(size: Sequence[float]) -> Solid:
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    faces = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    return Solid(corners * size, np.array(faces))


def _turned(profile: Sequence[tuple[float, float]]) -> Solid:
    """The surface that a profile of radii and heights, from bottom to top, makes when it turns about z."""
    angles = 2 * np.pi * np.arange(SIDES) / SIDES
    rings = [np.column_stack([r * np.cos(angles), r * np.sin(angles), np.full(SIDES, z)]) for r, z in profile]
    k, following = np.arange(SIDES), (np.arange(SIDES) + 1) % SIDES
    bands = [
        np.column_stack([i * SIDES + k, i * SIDES + following, (i + 1) * SIDES + following, (i + 1) * SIDES + k])
        for i in range(len(profile) - 1)
    ]
    return Solid(np.concatenate(rings), np.concatenate(bands))


def _root(tree: RobotTree, body: int) -> int:
    while tree.joints[body].parent != WORLD:
        body = tree.joints[body].parent
    return body


def read_stl(path: Path) -> tuple[Array, Array] | None:
    """Points, shape (points, 3), and triangles, shape (faces, 3); None if the file is no binary STL.

    A mesh of many faces is made coarser: corners in one cell of a grid become one point.
    """
    try:
        content = read_regular(path, HEADER + FACE.itemsize * MOST_READ, "a mesh")
    except ConfigError:
        return None
    count = int.from_bytes(content[HEADER - 4 : HEADER], "little")
    if count == 0 or len(content) != HEADER + FACE.itemsize * count:
        return None
    corners = np.frombuffer(content, FACE, count, HEADER)["corners"].reshape(-1, 3).astype(float)
    if not np.isfinite(corners).all():
        return None
    extent = float(np.ptp(corners, axis=0).max()) or 1.0
    points, faces = clustered(corners, 1e-6 * extent)
    cells = FINEST
    while len(faces) > MOST_FACES and cells >= COARSEST:
        points, faces = clustered(points[faces].reshape(-1, 3), extent / cells)
        cells = cells * 4 // 5
    return (points, faces) if len(faces) else None


def clustered(corners: Array, cell: float) -> tuple[Array, Array]:
    """Points and triangles after corners in one cell have become their mean; triangles without area are gone.

    Args:
        corners: Three for each triangle, shape (3 faces, 3) [m].
        cell: Side of a cell [m].
    """
    places = np.floor((corners - corners.min(axis=0)) / cell).astype(np.int64)
    across = int(places.max()) + 1
    _, index, counts = np.unique(places @ [across * across, across, 1], return_inverse=True, return_counts=True)
    points = np.column_stack([np.bincount(index, corners[:, k]) for k in range(3)]) / counts[:, None]
    faces = index.reshape(-1, 3)
    distinct = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    faces = faces[distinct]
    _, first = np.unique(np.sort(faces, axis=1) @ [len(points) ** 2, len(points), 1], return_index=True)
    return points, faces[np.sort(first)]


def surfaces(plant: Plant) -> dict[str, Array]:
    """Surfaces of a robot's links; empty for other plants.

    Returns:
        `solid.<frame>` -> corners in the frame's axes [m], shape (points, 3); `faces.<frame>` -> indices of four
        corners and the number of the face's colour, shape (faces, 5).
    """
    arrays: dict[str, Array] = {}
    for name, (solid, colour) in solids(plant.tree).items() if isinstance(plant, Robot) else ():
        arrays[f"solid.{name}"] = solid.points
        arrays[f"faces.{name}"] = np.column_stack([solid.faces, np.full(len(solid.faces), colour)]).astype(np.int32)
    return arrays


def poses(plant: Plant, names: list[str], q: Array) -> dict[str, Array]:
    """Frame of a robot -> rotation by rows, then position [m], in world axes; shape (frames, 12).

    Args:
        q: Coordinates, shape (frames, n).
    """
    if not isinstance(plant, Robot):
        return {}
    R, p = plant.frame_poses(names, q)
    return {name: np.column_stack([R[:, i].reshape(-1, 9), p[:, i]]) for i, name in enumerate(names)}


def robot_picture(plant: Plant, task: Mapping[str, Constraint], q: Array) -> dict[str, Array]:
    """The surfaces of a robot and their poses `pose.<frame>`; `axes.<frame>` -> poses of frames of the task.

    Args:
        plant: Any plant; what is no robot has none.
        q: Coordinates, shape (frames, n).
    """
    drawn = surfaces(plant)
    for prefix, names in (("pose", list(group(drawn, "solid"))), ("axes", task_frames(task))):
        drawn |= {f"{prefix}.{name}": pose for name, pose in poses(plant, names, q).items()}
    return drawn


def asked_paths(plant: Robot, task: Mapping[str, Constraint], t: Array, q: Array) -> dict[str, Array]:
    """`task.<frame>` -> positions that the task asks of a frame [m], shape (times, 3).

    Args:
        t: Times of the task [s], shape (times,).
        q: Coordinates, shape (times, n): where frames are that others follow.
    """
    paths: dict[str, Array] = {}
    for constraint in task.values():
        if isinstance(constraint, Position | Pose):
            xyz = np.array([values_at(constraint.xyz, 3, plant, now) for now in t.tolist()], dtype=float)
            base = constraint.relative_to or "world"
            R, p = (each[:, 0] for each in plant.frame_poses([base], q))
            paths[f"task.{constraint.frame}"] = p + (R @ xyz[..., None])[..., 0]
    return paths


def task_frames(task: Mapping[str, Constraint]) -> list[str]:
    """Names of the frames of robots that the constraints of a task are on, each once, without the world."""
    names = [name for each in task.values() if isinstance(each, FrameConstraint) for name in each.frames]
    return [name for name in dict.fromkeys(names) if name != "world"]
