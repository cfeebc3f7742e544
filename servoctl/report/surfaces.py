"""What a picture of robots shows besides lines: surfaces of links, axes of the task's frames, and paths asked for.

Design: a surface is stored once, in axes of its frame, and a picture moves it by poses; so a run with a thousand frames
costs little more than one picture. Faces have four corners, because most are four-sided; a triangle repeats a corner.
Meshes are binary STL, with few enough faces for a picture.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from servoctl.errors import ConfigError
from servoctl.input_file import read_regular
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import Shape
from servoctl.mechanics.spatial.model import WORLD, RobotTree
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.pose import Pose, Position
from servoctl.mechanics.spatial.task.target import values_at
from servoctl.run_folder.trajectory import group
from servoctl.types import Array

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
