"""Bodies, joints and forces of a planar mechanism, as functions of positions; `plant` differentiates them.

Design: the position of a body is that of one of its points, the hub: the centre of mass of a free body, the pivot of a
pinned one. The point p of the body is at `base + R(phi) (p - hub)`. One formula therefore serves bodies with three
coordinates, one, or none (the ground).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from servoctl.types import Array

ORIGIN: Array = np.zeros(2)
ORIGIN.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Body:
    """A rigid body; its own axes begin at its centre of mass."""

    name: str  # prefix of its coordinates
    m: Any  # [kg] mass
    J: Any  # [kg m^2] moment of inertia about the centre of mass
    first: int  # index of its first coordinate
    size: int  # number of its coordinates: 3 (x, y, phi), 1 (phi, of a pinned body), 0 (the ground)
    hub: Array = field(default_factory=lambda: ORIGIN)  # [m] the body's reference point in its own axes
    pivot: Array = field(default_factory=lambda: ORIGIN)  # [m] position of the hub of a pinned body
    # corners of its picture in the body's axes [m]; (): its joints and points are the corners
    outline: tuple[Array, ...] = ()

    @property
    def coordinates(self) -> dict[str, str]:
        """Name -> unit."""
        angle = {f"{self.name}_phi": "rad"} if self.size else {}
        return {f"{self.name}_x": "m", f"{self.name}_y": "m"} | angle if self.size == 3 else angle

    @property
    def masses(self) -> list[Any]:
        """Its entries on the diagonal of the mass matrix."""
        if self.size == 3:
            return [self.m, self.m, self.J]
        # about the pivot: J + m |hub|^2 (Steiner)
        return [self.J + self.m * (self.hub @ self.hub)] if self.size else []

    def frame(self, q: Array) -> "BodyFrame":
        """The body at the coordinates q of the mechanism."""
        if not self.size:
            return BodyFrame(self, ORIGIN, 0.0, 1.0, 0.0)
        phi = q[self.first + self.size - 1]
        base = q[self.first : self.first + 2] if self.size == 3 else self.pivot
        return BodyFrame(self, base, phi, np.cos(phi), np.sin(phi))


@dataclass(frozen=True, eq=False)
class BodyFrame:
    """A body in a pose."""

    body: Body
    base: Array  # [m] position of its hub
    phi: Any  # [rad] angle to the x axis
    cosine: Any  # cos(phi)
    sine: Any  # sin(phi)

    def turn(self, vector: Array) -> Array:
        """A vector from the body's axes to those of the ground."""
        x, y = vector
        return np.array([self.cosine * x - self.sine * y, self.sine * x + self.cosine * y])

    def position(self, point: Array) -> Array:
        """Position of a point of the body [m], shape (2,)."""
        return self.base + self.turn(point - self.body.hub)


Frames = dict[str, BodyFrame]  # name of a body, or of the ground -> the body in its pose


@dataclass(frozen=True, eq=False)
class Connection(ABC):
    """A passive constraint between two bodies."""

    name: str  # name of the constraint group
    a: str  # name of the first body
    b: str  # name of the second body
    level: int  # level of the constraint, see `mechanics.hierarchy`

    @abstractmethod
    def violation(self, frames: Frames) -> Array:
        """phi of the constraint, shape (rows,): zero while the connection holds."""


@dataclass(frozen=True, eq=False)
class Joint(Connection):
    """A connection of two points with one free coordinate; a motor acts on that coordinate."""

    point_a: Array  # [m] in the axes of the first body
    point_b: Array  # [m] in the axes of the second body
    effort_unit: ClassVar[str]

    @abstractmethod
    def coordinate(self, frames: Frames) -> Any:
        """The second body's angle [rad] or path [m] relative to the first."""

    def gap(self, frames: Frames) -> Array:
        """From the point of the first body to that of the second [m], shape (2,)."""
        return frames[self.b].position(self.point_b) - frames[self.a].position(self.point_a)


@dataclass(frozen=True, eq=False)
class Revolute(Joint):
    """A hinge: `r_b - r_a = 0` for the points r, two rows [m]; its coordinate is `phi_b - phi_a`."""

    effort_unit: ClassVar = "N m"

    def violation(self, frames: Frames) -> Array:
        return self.gap(frames)

    def coordinate(self, frames: Frames) -> Any:
        return frames[self.b].phi - frames[self.a].phi


@dataclass(frozen=True, eq=False)
class Prismatic(Joint):
    """A slide along the unit vector e of the first body, with n normal to it.

    Its rows are `n (r_b - r_a) = 0` [m] and `phi_b - phi_a - angle = 0` [rad]; its coordinate is `s = e (r_b - r_a)`.
    """

    axis: Array  # a unit vector in the axes of the first body
    angle: Any  # [rad] the second body's relative to the first
    effort_unit: ClassVar = "N"

    def violation(self, frames: Frames) -> Array:
        x, y = self.axis
        across = frames[self.a].turn(np.array([-y, x])) @ self.gap(frames)
        return np.array([across, frames[self.b].phi - frames[self.a].phi - self.angle])

    def coordinate(self, frames: Frames) -> Any:
        return frames[self.a].turn(self.axis) @ self.gap(frames)


@dataclass(frozen=True, eq=False)
class Gear(Connection):
    """A transmission: `phi_b - ratio phi_a - offset = 0`, one row [rad]."""

    ratio: Any
    offset: Any

    def violation(self, frames: Frames) -> Array:
        return np.array([frames[self.b].phi - self.ratio * frames[self.a].phi - self.offset])


class Force:
    """A force that has a potential or dissipates."""

    def potential(self, frames: Frames) -> Any:
        """Potential energy [J]; 0 if the force dissipates."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Load(Force):
    """A force at a point of a body, and a torque, constant in the axes of the ground."""

    body: str
    point: Array  # [m]
    force: Array  # [N]
    torque: Any = 0.0  # [N m]

    def potential(self, frames: Frames) -> Any:
        frame = frames[self.body]
        return -(self.force @ frame.position(self.point)) - self.torque * frame.phi


@dataclass(frozen=True, eq=False)
class Line(Force):
    """A force along the line between a point of the body a and a point of the body b."""

    a: str
    point_a: Array
    b: str
    point_b: Array

    def ends(self, frames: Frames) -> tuple[Array, Array]:
        """Positions of both ends [m]."""
        return frames[self.a].position(self.point_a), frames[self.b].position(self.point_b)

    def square(self, frames: Frames) -> Any:
        """The square of the distance d of the ends [m^2]."""
        first, second = self.ends(frames)
        return (first - second) @ (first - second)


@dataclass(frozen=True, eq=False)
class Spring(Line):
    """A spring that pulls with `stiffness (d - length)` at the distance d."""

    stiffness: Any  # [N/m]
    length: Any  # [m] relaxed; None: 0, without a root of d^2, so that the ends may meet

    def potential(self, frames: Frames) -> Any:
        square = self.square(frames)
        return self.stiffness * (square if self.length is None else (np.sqrt(square) - self.length) ** 2) / 2


@dataclass(frozen=True, eq=False)
class Damper(Line):
    """A damper that pulls with `damping d'` at the distance d > 0."""

    damping: Any  # [N s/m]
