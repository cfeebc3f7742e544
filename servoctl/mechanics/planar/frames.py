"""Bodies of a planar mechanism, and their positions and velocities at a state.

Design: the position of a body is that of one of its points, the hub: the centre of mass of a free body, the pivot of a
pinned one. The point p of the body is at `base + R(phi) (p - hub)`. One formula therefore serves bodies with three
coordinates, one, or none (the ground). Points are pairs of scalars, not arrays: a zero in one component stays a plain
zero when the other is a symbol.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.types import Array

Point = tuple[Any, Any]  # coordinates of a point or components of a vector [m], numbers or symbols

ORIGIN: Point = (0.0, 0.0)


def cross(a: Point, b: Point) -> Any:
    """The moment `a x b` about the normal of the plane."""
    return a[0] * b[1] - a[1] * b[0]


def minus(a: Point, b: Point) -> Point:
    """a - b."""
    return a[0] - b[0], a[1] - b[1]


def dot(a: Point, b: Point) -> Any:
    """The scalar product."""
    return a[0] * b[0] + a[1] * b[1]


@dataclass(frozen=True, eq=False)
class Body:
    """A rigid body; its own axes begin at its centre of mass."""

    name: str  # prefix of its coordinates
    m: Any  # [kg] mass
    J: Any  # [kg m^2] moment of inertia about the centre of mass
    first: int  # index of its first coordinate
    size: int  # number of its coordinates: 3 (x, y, phi), 1 (phi, of a pinned body), 0 (the ground)
    hub: Point = ORIGIN  # [m] the body's reference point in its own axes
    pivot: Point = ORIGIN  # [m] position of the hub of a pinned body
    # corners of its picture in the body's axes [m]; (): its joints and points are the corners
    outline: tuple[Point, ...] = ()

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
        return [self.J + self.m * dot(self.hub, self.hub)] if self.size else []

    def frame(self, q: Array, v: Array | None) -> "BodyFrame":
        """The body at a state; v None: at rest."""
        if not self.size:
            return BodyFrame(self, ORIGIN, ORIGIN, 0.0, 0.0, 1.0, 0.0)
        i = self.first + self.size - 1
        free = self.size == 3
        base = (q[self.first], q[self.first + 1]) if free else self.pivot
        rate = ORIGIN if v is None or not free else (v[self.first], v[self.first + 1])
        return BodyFrame(self, base, rate, q[i], 0.0 if v is None else v[i], np.cos(q[i]), np.sin(q[i]))


@dataclass(frozen=True, eq=False)
class BodyFrame:
    """A body at a state."""

    body: Body
    base: Point  # [m] position of its hub
    base_rate: Point  # [m/s] velocity of its hub
    phi: Any  # [rad] angle to the x axis
    spin: Any  # [rad/s] angular velocity
    cosine: Any  # cos(phi)
    sine: Any  # sin(phi)

    def turn(self, vector: Point) -> Point:
        """A vector from the body's axes to those of the ground."""
        x, y = vector
        return self.cosine * x - self.sine * y, self.sine * x + self.cosine * y

    def position(self, point: Point) -> Point:
        """Position of a point of the body [m]."""
        x, y = self.turn(minus(point, self.body.hub))
        return self.base[0] + x, self.base[1] + y

    def velocity(self, position: Point) -> Point:
        """Velocity of the body's point that is at a position [m/s]."""
        x, y = minus(position, self.base)
        return self.base_rate[0] - self.spin * y, self.base_rate[1] + self.spin * x

    def push(self, Q: Array, force: Point, position: Point) -> None:
        """Adds a force [N] on the body at a position [m] to the generalized force Q."""
        if not self.body.size:
            return
        if self.body.size == 3:
            Q[self.body.first] += force[0]
            Q[self.body.first + 1] += force[1]
        self.twist(Q, cross(minus(position, self.base), force))

    def twist(self, Q: Array, torque: Any) -> None:
        """Adds a torque [N m] on the body to the generalized force Q."""
        if self.body.size:
            Q[self.body.first + self.body.size - 1] += torque


Frames = dict[str, BodyFrame]  # name of a body, or of the ground -> the body at a state
