"""Tasks of a robot as constraints with closed-form rows: on its frames, its centre of mass and its joints."""

from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.pose import Axis, Distance, DistanceBound, EulerZYZ, Orientation, Pose, Position
from servoctl.mechanics.spatial.task.robot import CentreOfMass, Posture

__all__ = [
    "Axis",
    "CentreOfMass",
    "Distance",
    "DistanceBound",
    "EulerZYZ",
    "FrameConstraint",
    "Orientation",
    "Pose",
    "Position",
    "Posture",
]
