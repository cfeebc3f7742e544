"""Forces on the bodies of a planar mechanism: gravity, loads, springs, dampers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.mechanics.planar.frames import ORIGIN, Frames, Point, dot, minus
from servoctl.mechanics.planar.joints import Joint
from servoctl.types import Array


@dataclass(frozen=True, eq=False)
class Action(ABC):
    """A force that either has a potential or dissipates."""

    name: str  # name in errors and pictures
    dissipates: ClassVar[bool] = False

    @abstractmethod
    def push(self, Q: Array, frames: Frames) -> None:
        """Adds the force to the generalized force Q."""

    def potential(self, frames: Frames) -> Any:
        """Potential energy [J]; 0 if the force dissipates."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Weight(Action):
    """Gravity on the body called `name`."""

    m: Any  # [kg]
    field: Point  # [m/s^2]

    def push(self, Q: Array, frames: Frames) -> None:
        x, y = self.field
        frames[self.name].push(Q, (self.m * x, self.m * y), frames[self.name].position(ORIGIN))

    def potential(self, frames: Frames) -> Any:
        return -self.m * dot(self.field, frames[self.name].position(ORIGIN))


@dataclass(frozen=True, eq=False)
class Load(Action):
    """A force at a point, and a torque, constant in the axes of the ground."""

    body: str
    point: Point
    force: Point  # [N]
    torque: Any  # [N m]

    def push(self, Q: Array, frames: Frames) -> None:
        frames[self.body].push(Q, self.force, frames[self.body].position(self.point))
        frames[self.body].twist(Q, self.torque)

    def potential(self, frames: Frames) -> Any:
        frame = frames[self.body]
        return -dot(self.force, frame.position(self.point)) - self.torque * frame.phi


@dataclass(frozen=True, eq=False)
class LineForce(Action):
    """A force along the line between a point of the body a and a point of the body b."""

    a: str
    point_a: Point
    b: str
    point_b: Point

    def ends(self, frames: Frames) -> tuple[Point, Point]:
        """Positions of both ends [m]."""
        return frames[self.a].position(self.point_a), frames[self.b].position(self.point_b)

    def _pull(self, Q: Array, frames: Frames, density: Any) -> None:
        """Pulls both ends together with a force of density [N/m] times their distance."""
        start, end = self.ends(frames)
        x, y = minus(end, start)
        frames[self.a].push(Q, (density * x, density * y), start)
        frames[self.b].push(Q, (-density * x, -density * y), end)


@dataclass(frozen=True, eq=False)
class Spring(LineForce):
    """A spring that pulls with `stiffness (d - length)` at the distance d."""

    stiffness: Any  # [N/m]
    length: Any  # [m] relaxed; None: 0, without a division by d, so that the ends may meet

    def push(self, Q: Array, frames: Frames) -> None:
        slack = 0.0 if self.length is None else self.length / self._distance(frames)
        self._pull(Q, frames, self.stiffness * (1.0 - slack))

    def potential(self, frames: Frames) -> Any:
        if self.length is None:
            gap = minus(*self.ends(frames))
            return self.stiffness * dot(gap, gap) / 2
        return self.stiffness * (self._distance(frames) - self.length) ** 2 / 2

    def _distance(self, frames: Frames) -> Any:
        gap = minus(*self.ends(frames))
        return np.sqrt(dot(gap, gap))


@dataclass(frozen=True, eq=False)
class Damper(LineForce):
    """A damper that pulls with `damping d'` at the distance d > 0."""

    damping: Any  # [N s/m]
    dissipates: ClassVar = True

    def push(self, Q: Array, frames: Frames) -> None:
        start, end = self.ends(frames)
        gap = minus(end, start)
        rate = minus(frames[self.b].velocity(end), frames[self.a].velocity(start))
        self._pull(Q, frames, self.damping * dot(gap, rate) / dot(gap, gap))


@dataclass(frozen=True, eq=False)
class JointSpring(Action):
    """A spring on a joint: `-stiffness (s - rest)`, where s is the joint's coordinate."""

    joint: Joint
    stiffness: Any  # [N m/rad] or [N/m]
    rest: Any  # [rad] or [m]

    def push(self, Q: Array, frames: Frames) -> None:
        self.joint.push(Q, frames, -self.stiffness * (self.joint.coordinate(frames) - self.rest))

    def potential(self, frames: Frames) -> Any:
        return self.stiffness * (self.joint.coordinate(frames) - self.rest) ** 2 / 2


@dataclass(frozen=True, eq=False)
class JointDamper(Action):
    """A damper on a joint: `-damping s'`, where s is the joint's coordinate."""

    joint: Joint
    damping: Any  # [N m s/rad] or [N s/m]
    dissipates: ClassVar = True

    def push(self, Q: Array, frames: Frames) -> None:
        self.joint.push(Q, frames, -self.damping * self.joint.rate(frames))
