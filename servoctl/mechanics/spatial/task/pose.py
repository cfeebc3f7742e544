"""Tasks on frames: position, orientation, both, the direction of an axis, a distance.

    Position      y - xyz(t),   y = R_a^T (p - p_a)       a is the frame `relative_to`, or the world
    Orientation   rotation vector of R_ref(t)^T R_a^T R

Design: A and b are exact, so a violation obeys the polynomial of its correction from any start below half a turn. A
distance is differentiated, which costs 0.98 to 1.01 times its closed form; rotations and axes are in closed form, which
saves a fifth to a half of their operations (instructions of the rows, `n_instructions`, of four shipped robots).

Of an `Axis`, with unit vectors a of the axis and d of the direction, `c = R^T d` in the frame's axes and
`k = a.c = cos(angle)`:

    phi = f(k) (c x a),   f = angle/sin(angle)

Its two components at right angles to a are the rows: the rotation vector of the shortest turn from d to a.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.symbol import where
from servoctl.errors import TaskError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.mechanics.spatial.placement import rotation_to
from servoctl.mechanics.spatial.rotation import (
    HALF_TURN,
    far_turn,
    half_angle_ratio,
    relative_motion,
    rotation_vector,
    skew,
)
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.target import (
    TargetValue,
    TargetValues,
    direction_course,
    naming,
    numbers,
    read,
    rotation_course,
    values_at,
)
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
    labels_of_rows = ("x", "y", "z")
    units_of_rows = ("m",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        return self.motion(motions).minus(self.course("xyz", plant, t)).rows


class Turned(OneFrame):
    """A task whose reference is a rotation, given by one of two fields."""

    # roll, pitch, yaw [rad]: turns about the fixed axes x, y, z in this order; None: see `quaternion`
    rpy: TargetValues | None
    quaternion: TargetValues | None  # (x, y, z, w), of any size but 0; None: see `rpy`

    singularity = "half a turn from its reference"

    def turn(self, motion: FrameMotion, plant: Plant, t: Any) -> PointMotion:
        """The rotation vector of the error [rad], from the motion of the frame."""
        field, angles = ("rpy", self.rpy) if self.rpy is not None else ("quaternion", self.quaternion)
        assert angles is not None  # `field_problems` says otherwise
        with naming(field):
            R_ref, w_ref, acceleration = rotation_course(angles, field, plant, t, self._time(t))
        w, Rt = motion.angular_velocity, motion.rotation.T
        # in the frame's axes w - w_ref changes by R^T (w' - w_ref' + w x w_ref)
        drift = motion.angular_drift - acceleration + np.cross(w, w_ref)
        return rotation_vector(R_ref.T @ motion.rotation, Rt, motion.angular, w - w_ref, drift)

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
    labels_of_rows = ("rx", "ry", "rz")
    units_of_rows = ("rad",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        return self.turn(self.motion(motions), plant, t).rows


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
    labels_of_rows = ("x", "y", "z", "rx", "ry", "rz")
    units_of_rows = ("m", "m", "m", "rad", "rad", "rad")

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        motion = self.motion(motions)
        position = motion.minus(self.course("xyz", plant, t))
        return Rows.stack([position.rows, self.turn(motion, plant, t).rows], motion.linear.shape[1])


@dataclass(frozen=True)
class EulerZYZ(OneFrame):
    """The ZYZ Euler angles of a frame follow values: three rows [rad], each difference between -pi and pi.

    R = Rz(phi) Ry(psi) Rz(gamma). Source: Xu, Liu 2017, (41)-(45). Its (45) picks phi = 0 at psi = 0, which has no
    derivative, so here that is refused.
    """

    frame: str
    angles: TargetValues  # phi, psi, gamma [rad], psi between 0 and pi
    relative_to: str | None = None  # the frame in which the angles are; None: the world

    target_fields: ClassVar = {"angles": 3}
    singularity = "at sin(psi) = 0, where ZYZ angles are undefined"

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Array:
        R = motions[self.frame].rotation
        if self.relative_to is not None:
            R = motions[self.relative_to].rotation.T @ R
        square = R[0, 2] ** 2 + R[1, 2] ** 2
        sine = np.sqrt(where(square > 1e-6, square, np.nan))  # undefined below 0.06 deg
        found = [np.arctan2(R[1, 2], R[0, 2]), np.arctan2(sine, R[2, 2]), np.arctan2(R[2, 1], -R[2, 0])]
        off = np.array(found) - np.array(values_at(self.angles, 3, plant, t))
        rows: Array = np.arctan2(np.sin(off), np.cos(off))
        return rows


LETTERS = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
LETTERS |= {f"-{name}": (-x, -y, -z) for name, (x, y, z) in LETTERS.items()}


@dataclass(frozen=True)
class Axis(OneFrame):
    """An axis of a frame points in a direction: two rows [rad].

    Attributes:
        frame: Its name.
        axis: `x`, `y`, `z`, `-x`, `-y`, `-z`, or three numbers: a direction in the frame's axes.
        along: The direction to hold, of any length but 0.
        relative_to: The frame in whose axes `along` is; None: the world.
    """

    frame: str
    axis: str | Sequence[float]
    along: TargetValues
    relative_to: str | None = None

    target_fields: ClassVar = {"along": 3}
    singularity = "its axis points opposite to its direction, or the direction passes through zero"
    units_of_rows = ("rad",)

    def warnings(self, violation: Array) -> list[str]:
        return far_turn(violation)

    def field_problems(self) -> list[str]:
        found = super().field_problems()
        along = numbers(self.along)
        if along is not None and not any(along):
            found.append("along: all three components are 0 (give a direction)")
        try:
            object.__setattr__(self, "axis", _direction(self.axis))
        except TaskError as error:
            found.append(f"axis: {error}")
        return found

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        motion = self.motion(motions)
        with naming("along"):
            d = direction_course(self.along, plant, t, self._time(t))
        axis = LETTERS[self.axis] if isinstance(self.axis, str) else self.axis
        w, seen = motion.angular_velocity, rotation_to(axis).T @ motion.rotation.T
        # c = R^T d, so c' = R^T (d' - w x d) and c'' = R^T (d'' + d x w' - w x d' - w x (d' - w x d))
        rate = d.velocity - np.cross(w, d.position)
        drift = d.drift + np.cross(d.position, motion.angular_drift) - np.cross(w, d.velocity) - np.cross(w, rate)
        toward = seen @ d.position
        known = np.array([where(1.0 + toward[2] > 2.0 * HALF_TURN**2, part, np.nan) for part in toward])
        c = PointMotion(known, seen @ skew(d.position) @ motion.angular, seen @ rate, seen @ drift)
        return c.mapped(_turn).rows


def _direction(axis: Any) -> str | tuple[float, ...]:
    """A letter, or three numbers."""
    if isinstance(axis, str):
        if axis not in LETTERS:
            raise TaskError(f"expected one of {', '.join(LETTERS)} or three numbers, got {axis!r}")
        return axis
    components = numbers(read(axis, 3))
    if components is None:
        raise TaskError(f"expected one of {', '.join(LETTERS)} or three numbers, got {axis!r}")
    if not any(components):
        raise TaskError("all three components are 0 (give a direction)")
    return tuple(components)


def _turn(c: Array) -> Array:
    """The two rows from the direction c in axes whose third one is to point along it."""
    s = (1.0 - c[2]) / 2.0
    turn: Array = half_angle_ratio(s) / np.sqrt(1.0 - s) * np.array([c[1], -c[0]])
    return turn


NEAREST = 1e-9  # [m] points closer than this have no direction from one to the other


@dataclass(frozen=True)
class Distance(FrameConstraint):
    """The distance of the origin of a frame to another frame's or to a point has a value: one row [m].

    Attributes:
        first: Name of a frame.
        second: Name of another one, or three targets: a point in world axes [m].
        value: The distance [m], above 0.
    """

    first: str
    second: str | TargetValues
    value: TargetValue

    target_fields: ClassVar = {"second": 3, "value": None}
    above: ClassVar[float] = 0.0  # the value stays above this
    singularity = "its value is not above 0, or its two points are in one place, so that it has no direction"
    units_of_rows = ("m",)

    @property
    def frames(self) -> tuple[str, ...]:
        return (self.first, self.second) if isinstance(self.second, str) else (self.first,)

    def is_target(self, field: str) -> bool:
        return field == "value" or not isinstance(self.second, str)

    def field_problems(self) -> list[str]:
        found = [] if self.first != self.second else [f"second: '{self.first}' is the first frame (name another)"]
        if isinstance(self.value, float) and not self.value > 0.0:
            hint = "to bring two points together use Position" if self.value == 0.0 else "in metres"
            found.append(f"value: expected a distance above 0, got {self.value:g} ({hint})")
        return found

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Array:
        second = self.second
        gap = motions[self.first].position
        gap = gap - (motions[second].position if isinstance(second, str) else self.values("second", plant, t))
        value = self.values("value", plant, t)
        known = where(gap @ gap > NEAREST**2, where(value[0] > self.above, 1.0, np.nan), np.nan)
        rows: Array = np.sqrt(gap @ gap) * known - value  # a factor, so that the derivatives are NaN too
        return rows


@dataclass(frozen=True)
class DistanceBound(Distance):
    """The distance of a frame to another frame or to a point stays at or above a value, or below: one row [m].

    Attributes:
        most: Whether the value is the largest distance; else the smallest.
    """

    most: bool = False

    above: ClassVar[float] = -np.inf

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Array:
        rows = super().residual(motions, plant, t)
        return -rows if self.most else rows
