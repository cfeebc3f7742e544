"""Where a robot starts: coordinates that a config leaves out, and poses of frames that it asks for."""

from collections.abc import Mapping

from servoctl.assembly.problems import Problems
from servoctl.config.initial import PoseConfig
from servoctl.errors import PlantError, ServoctlError
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits, solve_poses
from servoctl.mechanics.spatial.task import Orientation, Pose, Position
from servoctl.types import State


def complete_start(plant: Robot, given: Mapping[str, float]) -> dict[str, float]:
    """Coordinate -> start, with those that are left out: 0 inside the joint's limits, and 1 for qw of a free base."""
    defaults = {name: 1.0 if name.endswith("_qw") else 0.0 for name in plant.coordinates}
    for name, lower, upper in zip(plant.coordinates, *joint_limits(plant.tree), strict=True):
        defaults[name] = float(max(lower, min(upper, defaults[name])))
    return {**defaults, **given}


def solved_start(plant: Robot, start: State, solve: Mapping[str, PoseConfig], problems: Problems) -> State:
    """The state nearest to the start at which frames have their poses and loops are closed; the start if it fails."""
    poses = {frame: _pose(frame, pose) for frame, pose in solve.items() if pose.xyz or pose.rpy}
    wrong = {frame: constraint.problems(plant) for frame, constraint in poses.items()}
    for frame, sentences in wrong.items():
        for sentence in sentences:
            problems.add(sentence, "initial", "solve", frame)
    if any(wrong.values()) or problems.touch("initial.q", "initial.solve"):
        return start
    try:
        return solve_poses(plant, start, poses)
    except ServoctlError as error:
        problems.add(error, *(("plant",) if isinstance(error, PlantError) else ("initial", "solve")))
        return start


def _pose(frame: str, pose: PoseConfig) -> Constraint:
    if pose.xyz is None:
        return Orientation(frame, rpy=pose.rpy)
    return Position(frame, pose.xyz) if pose.rpy is None else Pose(frame, pose.xyz, rpy=pose.rpy)
