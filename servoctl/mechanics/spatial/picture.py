"""What a picture of robots shows besides lines: surfaces of links, axes of the task's frames, and paths asked for."""

from collections.abc import Mapping

import numpy as np

from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import frame_poses
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.solid import solids
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.pose import Pose, Position
from servoctl.mechanics.spatial.task.target import values_at
from servoctl.types import Array


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
        plant: The robots.
        names: Names of frames.
        q: Coordinates, shape (frames, n).
    """
    if not isinstance(plant, Robot):
        return {}
    with np.errstate(all="ignore"):  # a run that diverges has gaps
        moved = frame_poses(plant.tree, names, q)
    return {name: np.column_stack([R.reshape(-1, 9), p]) for name, (R, p) in moved.items()}


def robot_picture(plant: Plant, task: Mapping[str, Constraint], q: Array) -> dict[str, Array]:
    """The surfaces of a robot and their poses `pose.<frame>`; `axes.<frame>` -> poses of frames of the task.

    Args:
        plant: Any plant; what is no robot has none.
        q: Coordinates, shape (frames, n).
    """
    drawn = surfaces(plant)
    solid = [name.removeprefix("solid.") for name in drawn if name.startswith("solid.")]
    for prefix, names in (("pose", solid), ("axes", task_frames(task))):
        drawn |= {f"{prefix}.{name}": pose for name, pose in poses(plant, names, q).items()}
    return drawn


def asked_paths(plant: Robot, task: Mapping[str, Constraint], t: Array, q: Array) -> dict[str, Array]:
    """`task.<frame>` -> positions that the task asks of a frame [m], shape (times, 3).

    Args:
        plant: The robots.
        t: Times of the task [s], shape (times,).
        q: Coordinates, shape (times, n): where frames are that others follow.
    """
    paths: dict[str, Array] = {}
    for constraint in task.values():
        if isinstance(constraint, Position | Pose):
            xyz = np.array([values_at(constraint.xyz, 3, plant, now) for now in t.tolist()], dtype=float)
            base = constraint.relative_to or "world"
            R, p = frame_poses(plant.tree, [base], q)[base]
            paths[f"task.{constraint.frame}"] = p + (R @ xyz[..., None])[..., 0]
    return paths


def task_frames(task: Mapping[str, Constraint]) -> list[str]:
    """Names of the frames of robots that the constraints of a task are on, each once, without the world."""
    names = [name for each in task.values() if isinstance(each, FrameConstraint) for name in each.frames]
    return [name for name in dict.fromkeys(names) if name != "world"]
