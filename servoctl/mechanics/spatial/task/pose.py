"""Tasks on the pose of a frame: position, orientation, and both.

    Position      y - xyz(t),   y = R_a^T (p - p_a)       a is the frame `relative_to`, or the world
    Orientation   rotation vector of R_ref(t)^T R_a^T R

Design: A and b are in closed form and exact, so a violation obeys the polynomial of its correction from any start below
half a turn. Only targets are differentiated, with respect to time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.rotation import far_turn, relative_motion, rotation_vector
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.target import Course, RotationCourse, TargetValues, numbers, rotation_course
from servoctl.mechanics.spatial.task.targeted import naming
from servoctl.types import Array


class OneFrame(FrameConstraint):
    """A task on one frame, seen from the world or from another frame."""

    frame: str  # its name
    relative_to: str | None  # the frame in whose axes the targets are; None: the world

    @property
    def frames(self) -> tuple[str, ...]:
        return (self.frame,) if self.relative_to is None else (self.frame, self.relative_to)

    def motion(self, motions: Mapping[str, FrameMotion]) -> FrameMotion:
        """The motion of the frame in the axes of `relative_to`."""
        own = motions[self.frame]
        return own if self.relative_to is None else relative_motion(own, motions[self.relative_to])

    def field_problems(self) -> list[str]:
        if self.relative_to == self.frame:
            return [f"relative_to: '{self.frame}' is the frame itself (name another)"]
        return []


@dataclass(frozen=True)
class Position(OneFrame):
    """The origin of a frame follows a point: three rows [m].

    Attributes:
        frame: Its name.
        xyz: The point [m].
        relative_to: The frame in whose axes `xyz` is; None: the world.
    """

    frame: str
    xyz: TargetValues
    relative_to: str | None = None

    target_fields: ClassVar = {"xyz": 3}

    def row_labels(self) -> tuple[str, ...]:
        return ("x", "y", "z")

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("m",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        return _position_rows(self.motion(motions), self.course("xyz", plant, t))


class Turned(OneFrame):
    """A task whose reference is a rotation, given by one of two fields."""

    # roll, pitch, yaw [rad]: turns about the fixed axes x, y, z in this order; None: see `quaternion`
    rpy: TargetValues | None
    quaternion: TargetValues | None  # (x, y, z, w), of any size but 0; None: see `rpy`

    singularity = "half a turn from its reference"

    def reference(self, plant: Plant, t: Any) -> RotationCourse:
        """The rotation of the reference and its derivatives."""
        field, angles = ("rpy", self.rpy) if self.rpy is not None else ("quaternion", self.quaternion)
        assert angles is not None  # `field_problems` says otherwise
        with naming(field):
            return rotation_course(angles, field, plant, t, self._time(t))

    def warnings(self, violation: Array) -> list[str]:
        return far_turn(violation[-3:])

    def field_problems(self) -> list[str]:
        found = super().field_problems()
        if self.rpy is None and self.quaternion is None:
            found.append("rpy: missing (give rpy or quaternion)")
        if self.rpy is not None and self.quaternion is not None:
            found.append("quaternion: given together with rpy (give one of them)")
        components = numbers(self.quaternion)
        if components is not None and not any(components):
            found.append("quaternion: all four components are 0 (0, 0, 0, 1 is no rotation)")
        return found


@dataclass(frozen=True)
class Orientation(Turned):
    """A frame is turned like a reference: three rows, the rotation vector of the error in the frame's axes [rad].

    Attributes:
        frame: Its name.
        rpy: Roll, pitch, yaw of the reference [rad]: turns about the fixed axes x, y, z in this order.
        quaternion: (x, y, z, w) of the reference, of any size but 0; give this or `rpy`.
        relative_to: The frame in whose axes the reference is; None: the world.
    """

    frame: str
    rpy: TargetValues | None = None
    quaternion: TargetValues | None = None
    relative_to: str | None = None

    target_fields: ClassVar = {"rpy": 3, "quaternion": 4}

    def row_labels(self) -> tuple[str, ...]:
        return ("rx", "ry", "rz")

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("rad",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        return _orientation_rows(self.motion(motions), self.reference(plant, t))


@dataclass(frozen=True)
class Pose(Turned):
    """A frame follows a position and an orientation: six rows [m, rad].

    Attributes:
        frame: Its name.
        xyz: Position of its origin [m].
        rpy: Roll, pitch, yaw of the reference [rad]: turns about the fixed axes x, y, z in this order.
        quaternion: (x, y, z, w) of the reference, of any size but 0; give this or `rpy`.
        relative_to: The frame in whose axes the targets are; None: the world.
    """

    frame: str
    xyz: TargetValues
    rpy: TargetValues | None = None
    quaternion: TargetValues | None = None
    relative_to: str | None = None

    target_fields: ClassVar = {"xyz": 3, "rpy": 3, "quaternion": 4}

    def row_labels(self) -> tuple[str, ...]:
        return ("x", "y", "z", "rx", "ry", "rz")

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("m", "m", "m", "rad", "rad", "rad")

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        motion = self.motion(motions)
        position = _position_rows(motion, self.course("xyz", plant, t))
        return Rows.stack([position, _orientation_rows(motion, self.reference(plant, t))], motion.linear.shape[1])


def _position_rows(motion: FrameMotion, wanted: Course) -> Rows:
    return Rows(
        motion.linear,
        wanted.acceleration - motion.drift,
        motion.position - wanted.value,
        motion.velocity - wanted.rate,
    )


def _orientation_rows(motion: FrameMotion, wanted: RotationCourse) -> Rows:
    Rt, w_ref = motion.rotation.T, wanted.angular_velocity
    w = motion.angular_velocity - w_ref
    error = rotation_vector(wanted.rotation.T @ motion.rotation, Rt @ w)
    # R^T (w - w_ref) changes by R^T (w' - w_ref' + w x w_ref)
    slope = error.slope @ Rt
    drift = motion.angular_drift - wanted.angular_acceleration + np.cross(motion.angular_velocity, w_ref)
    return Rows(slope @ motion.angular, -(slope @ drift + error.drift), error.value, slope @ w)
