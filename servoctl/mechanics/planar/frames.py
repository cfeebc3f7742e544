"""Bodies of a planar mechanism, and where they stand at a state.

Design: a body is placed by one of its own points, the hub, which is the centre of mass of a free body and the pivot
of a pinned one: the point p of the body stands at `base + R(phi) (p - hub)`. So one formula serves three coordinates,
one, or none (the ground). Points are pairs of scalars, not arrays: zeros stay zeros while symbols pass through.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.types import Array

Point = tuple[Any, Any]
"""Coordinates of a point or components of a vector [m], numbers or symbols."""

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
    """A rigid body; its own axes have their origin in its centre of mass.

    Attributes:
        name: Prefix of its coordinates.
        m: Mass [kg].
        J: Moment of inertia about the centre of mass [kg m^2].
        first: Index of its first coordinate.
        size: Number of its coordinates: 3 (x, y, phi), 1 (phi, of a pinned body), 0 (the ground).
        hub: The point that the base places, in the body's axes [m].
        pivot: Where the ground holds the hub of a pinned body [m].
        outline: Corners of its picture in the body's axes [m]; () where its joints and points are drawn.
    """

    name: str
    m: Any
    J: Any
    first: int
    size: int
    hub: Point = ORIGIN
    pivot: Point = ORIGIN
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
        return [self.J + self.m * dot(self.hub, self.hub)] if self.size else []

    def frame(self, q: Array, v: Array | None) -> "BodyFrame":
        """The body at a state; at rest without velocities."""
        if not self.size:
            return BodyFrame(self, ORIGIN, ORIGIN, 0.0, 0.0, 1.0, 0.0)
        i = self.first + self.size - 1
        free = self.size == 3
        base = (q[self.first], q[self.first + 1]) if free else self.pivot
        rate = ORIGIN if v is None or not free else (v[self.first], v[self.first + 1])
        return BodyFrame(self, base, rate, q[i], 0.0 if v is None else v[i], np.cos(q[i]), np.sin(q[i]))


@dataclass(frozen=True, eq=False)
class BodyFrame:
    """A body at a state.

    Attributes:
        body: The body.
        base: Position of its hub [m].
        base_rate: Velocity of its hub [m/s].
        phi: Angle to the x axis [rad].
        spin: Angular velocity [rad/s].
        cosine: cos(phi).
        sine: sin(phi).
    """

    body: Body
    base: Point
    base_rate: Point
    phi: Any
    spin: Any
    cosine: Any
    sine: Any

    def turn(self, vector: Point) -> Point:
        """A vector of the body's axes, in those of the ground."""
        x, y = vector
        return self.cosine * x - self.sine * y, self.sine * x + self.cosine * y

    def position(self, point: Point) -> Point:
        """Where a point of the body stands [m]."""
        x, y = self.turn(minus(point, self.body.hub))
        return self.base[0] + x, self.base[1] + y

    def velocity(self, place: Point) -> Point:
        """Velocity of the body's point that stands at a place [m/s]."""
        x, y = minus(place, self.base)
        return self.base_rate[0] - self.spin * y, self.base_rate[1] + self.spin * x

    def push(self, Q: Array, force: Point, place: Point) -> None:
        """Adds to the generalized force Q what a force [N] does that acts on the body at a place."""
        if not self.body.size:
            return
        if self.body.size == 3:
            Q[self.body.first] += force[0]
            Q[self.body.first + 1] += force[1]
        self.twist(Q, cross(minus(place, self.base), force))

    def twist(self, Q: Array, torque: Any) -> None:
        """Adds to the generalized force Q what a torque [N m] on the body does."""
        if self.body.size:
            Q[self.body.first + self.body.size - 1] += torque


Frames = dict[str, BodyFrame]
"""Name of a body, the ground among them -> the body at a state."""
