"""Connections of two bodies of a planar mechanism: hinges, slides, gears.

Design: a hinge or a slide has a coordinate s, the angle or the path of the second body relative to the first. Motors,
springs and dampers at a joint use the same two methods: `coordinate`, and `push`, the force conjugate to it. The power
of an effort u is therefore `u s'` by construction. A gear only ties two angles.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.mechanics.planar.frames import Frames, Point, dot, minus
from servoctl.types import Array


@dataclass(frozen=True, eq=False)
class Connection(ABC):
    """A passive constraint between two bodies."""

    name: str  # name of the constraint group
    a: str  # name of the first body
    b: str  # name of the second body
    level: int  # level of the constraint, see `mechanics.passive_levels`

    @abstractmethod
    def violation(self, frames: Frames) -> Array:
        """phi of the constraint, shape (rows,): zero while the connection holds."""


class Joint(Connection):
    """A connection with one free coordinate."""

    effort_unit: ClassVar[str]

    @abstractmethod
    def coordinate(self, frames: Frames) -> Any:
        """The second body's angle [rad] or path [m] relative to the first."""

    @abstractmethod
    def rate(self, frames: Frames) -> Any:
        """The coordinate's time derivative."""

    @abstractmethod
    def push(self, Q: Array, frames: Frames, effort: Any) -> None:
        """Adds the force conjugate to the coordinate to Q: on the second body, and its reaction on the first."""

    @abstractmethod
    def points(self) -> tuple[Point, Point]:
        """The points of the first and of the second body, each in its own axes [m]."""


@dataclass(frozen=True, eq=False)
class Revolute(Joint):
    """A hinge: `r_b - r_a = 0` for the points r, two rows [m]; its coordinate is `phi_b - phi_a`."""

    point_a: Point
    point_b: Point
    effort_unit: ClassVar = "N m"

    def violation(self, frames: Frames) -> Array:
        return np.array(minus(frames[self.b].position(self.point_b), frames[self.a].position(self.point_a)))

    def coordinate(self, frames: Frames) -> Any:
        return frames[self.b].phi - frames[self.a].phi

    def rate(self, frames: Frames) -> Any:
        return frames[self.b].spin - frames[self.a].spin

    def push(self, Q: Array, frames: Frames, effort: Any) -> None:
        frames[self.b].twist(Q, effort)
        frames[self.a].twist(Q, -effort)

    def points(self) -> tuple[Point, Point]:
        return self.point_a, self.point_b


@dataclass(frozen=True, eq=False)
class Prismatic(Joint):
    """A slide along the unit vector e of the first body, with n normal to it.

    Its rows are `n (r_b - r_a) = 0` [m] and `phi_b - phi_a - angle = 0` [rad]; its coordinate is `s = e (r_b - r_a)`.
    """

    point_a: Point
    point_b: Point
    axis: Point  # a unit vector in the axes of the first body
    angle: Any  # [rad] the second body's relative to the first
    effort_unit: ClassVar = "N"

    def violation(self, frames: Frames) -> Array:
        x, y = self.axis
        across = dot(frames[self.a].turn((-y, x)), self._gap(frames))
        return np.array([across, frames[self.b].phi - frames[self.a].phi - self.angle])

    def coordinate(self, frames: Frames) -> Any:
        return dot(frames[self.a].turn(self.axis), self._gap(frames))

    def rate(self, frames: Frames) -> Any:
        # s' = e (v_b - v_a) with both velocities at the position of r_b, because the axis e turns with the first body
        position = frames[self.b].position(self.point_b)
        relative = minus(frames[self.b].velocity(position), frames[self.a].velocity(position))
        return dot(frames[self.a].turn(self.axis), relative)

    def push(self, Q: Array, frames: Frames, effort: Any) -> None:
        x, y = frames[self.a].turn(self.axis)
        position = frames[self.b].position(self.point_b)
        frames[self.b].push(Q, (effort * x, effort * y), position)
        frames[self.a].push(Q, (-effort * x, -effort * y), position)

    def points(self) -> tuple[Point, Point]:
        return self.point_a, self.point_b

    def _gap(self, frames: Frames) -> Point:
        return minus(frames[self.b].position(self.point_b), frames[self.a].position(self.point_a))


@dataclass(frozen=True, eq=False)
class Gear(Connection):
    """A transmission: `phi_b - ratio phi_a - offset = 0`, one row [rad]."""

    ratio: Any
    offset: Any

    def violation(self, frames: Frames) -> Array:
        return np.array([frames[self.b].phi - self.ratio * frames[self.a].phi - self.offset])
