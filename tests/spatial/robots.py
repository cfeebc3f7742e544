"""Robots that several tests of pictures draw."""

from pathlib import Path

import numpy as np

from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.mechanics.spatial.task import Pose, Position
from servoctl.mechanics.spatial.urdf import read_urdf
from servoctl.report.drawing import drawing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import State

FOLDER = Path(__file__).parents[2] / "configs" / "robots"
QUARTER = np.pi / 2

TASK = {
    "box": Pose("box", ("0.5 + 0.1*cos(t)", "0.1*sin(t)", 0.4), rpy=(0, 0, 0)),
    "beside": Position("right_tool", (0, 0, "0.3 + 0.1*t"), relative_to="box"),
}


def two_arms() -> Robot:
    """Two arms of seven joints, and a box in the left one's hand."""
    builder, arm = RobotBuilder(), read_urdf(FOLDER / "arm7.urdf")
    builder.add(arm, "left", Placement.at((0, 0.5, 0)))
    builder.add(arm, "right", Placement.at((0, -0.5, 0)))
    builder.body("box", "left_tool", Placement.at((0, 0, 0.2), (-QUARTER, 0, 0)), 5, size=(0.3, 0.4, 0.2))
    return builder.plant()


def quadruped() -> Robot:
    """The quadruped on a free base."""
    builder = RobotBuilder()
    builder.add(read_urdf(FOLDER / "quadruped.urdf"), base="free")
    return builder.plant()


def moving_arms(frames: int = 21) -> Trajectory:
    """Two seconds of the two arms on a motion of their joints, with its drawing."""
    plant, t = two_arms(), np.linspace(0.0, 2.0, frames)
    start = np.array([0.3, 0.4, -0.5, -2.0, 0.2, 1.9, 0.4, -0.5, 0.5, 0.4, -1.8, -0.3, 2.0, 0.2])
    swing = 0.1 * np.arange(1, 15) / 14
    q, v = start + np.outer(np.sin(t), swing), np.outer(np.cos(t), swing)
    names = list(plant.coordinates)
    columns = {"t": t} | {f"q.{name}": q[:, i] for i, name in enumerate(names)}
    columns |= {f"v.{name}": v[:, i] for i, name in enumerate(names)}
    units = {f"q.{name}": unit for name, unit in plant.coordinates.items()}
    drawn = drawing(Model(plant, TASK, State(0.0, q[0], v[0])), t, q, v)
    return Trajectory(columns, units, {"config": "two arms", "tasks": {}, "status": "completed"}, drawn)
