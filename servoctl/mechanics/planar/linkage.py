"""The parts of a planar mechanism, added by `PlanarLinkage.build`.

Design: names are checked when they are added, so the traceback shows the wrong line. Numbers are checked, symbols are
not. Bodies, forces and points share one set of names, because all of them are drawn; joints and gears share a second
one, motors a third.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from servoctl.engine.symbol import is_false
from servoctl.errors import PlantError, no_such, remedy
from servoctl.mechanics.planar.parts import (
    ORIGIN,
    Body,
    Connection,
    Damper,
    Force,
    Frames,
    Gear,
    Joint,
    Load,
    Prismatic,
    Revolute,
    Spring,
)  # fmt: skip
from servoctl.types import Array

GROUND = "ground"  # name of the body that does not move; its points are positions in the plane
Pair = Sequence[Any]  # two scalars


class Linkage:
    """Bodies, joints, forces, motors and named points of a planar mechanism.

    Points of a body are in its own axes, relative to its centre of mass [m]; points of the ground are in those of the
    plane.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner  # name of the plant's class, for errors
        self.bodies = {GROUND: Body(GROUND, 0.0, 0.0, 0, 0)}  # name -> body, the ground first
        self.joints: dict[str, Joint] = {}  # name -> joint, for motors
        self.motors: dict[str, Joint] = {}  # name -> the joint that it drives
        self.forces: dict[str, Force] = {}  # name -> load, spring or damper
        self.points: dict[str, tuple[str, Array]] = {}  # name -> body and point
        self._connections: dict[str, Connection] = {}
        self._gravity: Array = ORIGIN

    @property
    def connections(self) -> list[Connection]:
        """The passive constraints by level, and within a level in the order of `build`."""
        return sorted(self._connections.values(), key=lambda connection: connection.level)

    @property
    def dampers(self) -> list[Damper]:
        """The forces that dissipate."""
        return [force for force in self.forces.values() if isinstance(force, Damper)]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        last = next(reversed(self.bodies.values()))
        return last.first + last.size

    def frames(self, q: Array) -> Frames:
        """Every body at the coordinates q."""
        return {name: body.frame(q) for name, body in self.bodies.items()}

    def potential(self, frames: Frames) -> Any:
        """Potential energy of gravity, loads and springs [J]."""
        weights = [Load(body.name, ORIGIN, body.m * self._gravity) for body in self.bodies.values()]
        return sum(force.potential(frames) for force in [*weights, *self.forces.values()])

    def gravity(self, x: Any, y: Any) -> None:
        """Sets the acceleration of gravity [m/s^2]; default: none."""
        self._gravity = np.array([x, y])

    def body(self, name: str, m: Any, J: Any, outline: Iterable[Pair] = ()) -> None:
        """Adds a free body with three coordinates `<name>_x`, `<name>_y` [m] and `<name>_phi` [rad].

        Args:
            name: An identifier.
            m: Mass [kg].
            J: Moment of inertia about the centre of mass [kg m^2].
            outline: Corners of its picture [m]; empty: its joints and named points are the corners.
        """
        where = self._new(name, "body", *self._drawn)
        self._positive(where, "m", "mass [kg]", m)
        self._positive(where, "J", "moment of inertia [kg m^2]", J)
        corners = tuple(self._pair(where, "outline", corner) for corner in outline)
        self.bodies[name] = Body(name, m, J, self.size, 3, outline=corners)

    def pinned(self, name: str, m: Any, J: Any, pivot: Pair, at: Pair) -> None:
        """Adds a body on a fixed pivot, with one coordinate `<name>_phi` [rad] and a joint of the same name.

        Args:
            name: An identifier.
            m: Mass [kg].
            J: Moment of inertia about the centre of mass [kg m^2].
            pivot: Position of the pivot [m].
            at: The body's point on the pivot [m].
        """
        where = self._turning(name, J)
        self._positive(where, "m", "mass [kg]", m)
        position, hub = self._pair(where, "pivot", pivot), self._pair(where, "at", at)
        self.bodies[name] = Body(name, m, J, self.size, 1, hub, position)
        self.joints[name] = Revolute(name, GROUND, name, 1, position, hub)

    def rotor(self, name: str, J: Any) -> None:
        """Adds a body that only turns, with one coordinate `<name>_phi` [rad] and a joint of the same name; not drawn.

        Args:
            name: An identifier.
            J: Moment of inertia [kg m^2].
        """
        self._turning(name, J)
        self.bodies[name] = Body(name, 0.0, J, self.size, 1)
        self.joints[name] = Revolute(name, GROUND, name, 1, ORIGIN, ORIGIN)

    def revolute(self, name: str, a: str, point_a: Pair, b: str, point_b: Pair, level: int = 1) -> None:
        """Adds a hinge that keeps a point of the body b [m] on a point of the body a [m]; b turns relative to a."""
        where = self._connection(name, "joint", a, b, level)
        first, second = self._pair(where, "point_a", point_a), self._pair(where, "point_b", point_b)
        self._connections[name] = self.joints[name] = Revolute(name, a, b, level, first, second)

    def prismatic(
        self, name: str, a: str, point_a: Pair, b: str, point_b: Pair, axis: Pair, angle: Any = 0.0, level: int = 1
    ) -> None:
        """Adds a slide that keeps a point of the body b on a line of the body a; b does not turn relative to a.

        Args:
            name: Name of the joint.
            a: The body with the line, or the ground.
            point_a: A point of the line [m].
            b: The body that slides.
            point_b: Its point on the line [m].
            axis: Direction of the line in the axes of a, of any length; the joint's path grows along it.
            angle: Angle of b relative to a [rad].
            level: Level of the constraint, see `mechanics.hierarchy`.
        """
        where = self._connection(name, "joint", a, b, level)
        first, second = self._pair(where, "point_a", point_a), self._pair(where, "point_b", point_b)
        along = self._pair(where, "axis", axis)
        length = np.sqrt(along @ along)
        if is_false(length > 0.0):
            raise PlantError(f"{where}: axis: expected a direction, got ({along[0]}, {along[1]})")
        self._connections[name] = self.joints[name] = Prismatic(name, a, b, level, first, second, along / length, angle)

    def gear(self, name: str, a: str, b: str, ratio: Any = 1.0, offset: Any = 0.0, level: int = 1) -> None:
        """Adds a gear between two angles: `phi_b = ratio phi_a + offset` [rad]."""
        self._connection(name, "gear", a, b, level)
        self._connections[name] = Gear(name, a, b, level, ratio, offset)

    def spring(
        self, name: str, a: str, point_a: Pair, b: str, point_b: Pair, stiffness: Any, length: Any = None
    ) -> None:
        """Adds a spring between two points.

        Args:
            name: Name of the spring.
            a: A body, or the ground.
            point_a: Its point [m].
            b: Another body, or the ground.
            point_b: Its point [m].
            stiffness: Stiffness [N/m].
            length: Relaxed length [m]; the points must not meet. None: 0; the points may meet.
        """
        self.forces[name] = Spring(*self._line(name, "spring", a, point_a, b, point_b), stiffness, length)

    def damper(self, name: str, a: str, point_a: Pair, b: str, point_b: Pair, damping: Any) -> None:
        """Adds a damper [N s/m] between two points [m], which must not meet."""
        self.forces[name] = Damper(*self._line(name, "damper", a, point_a, b, point_b), damping)

    def load(self, name: str, body: str, point: Pair, force: Pair, torque: Any = 0.0) -> None:
        """Adds a force [N] at a point of a body [m] and a torque [N m], constant in the axes of the ground."""
        where = self._on_bodies(name, "load", body)
        self.forces[name] = Load(body, self._pair(where, "point", point), self._pair(where, "force", force), torque)

    def motor(self, name: str, joint: str) -> None:
        """Adds a motor: a torque [N m] at a hinge or a force [N] at a slide, on the second body and back on the first.

        Args:
            name: Name of the actuator, an identifier.
            joint: A revolute or prismatic joint, or a pinned body or rotor by its own name.
        """
        where = self._new(name, "motor", self.motors)
        if joint not in self.joints:
            hint = remedy(joint, self.joints)
            raise PlantError(f"{where}: there is no revolute or prismatic joint '{joint}' ({hint})")
        self.motors[name] = self.joints[joint]

    def point(self, name: str, body: str, at: Pair) -> None:
        """Names a point of a body [m] for pictures, `PlanarLinkage.point` and `PointFollows`."""
        where = self._on_bodies(name, "point", body)
        self.points[name] = body, self._pair(where, "at", at)

    @property
    def _drawn(self) -> tuple[Container[str], ...]:
        """Names that a drawing has."""
        return self.bodies, self.forces, self.points

    def _new(self, name: str, kind: str, *taken: Container[str]) -> str:
        """The start of an error message; raises PlantError unless the name is new and an identifier."""
        where = f"{self.owner}: {kind} '{name}'"
        if not name.isidentifier():
            raise PlantError(f"{where}: expected a name of letters, digits and underscores")
        if any(name in names for names in taken):
            raise PlantError(f"{where}: there is another of this name (rename one of them)")
        return where

    def _turning(self, name: str, J: Any) -> str:
        where = self._new(name, "body", *self._drawn)
        self._new(name, "joint", self._connections, self.joints)
        self._positive(where, "J", "moment of inertia [kg m^2]", J)
        return where

    def _connection(self, name: str, kind: str, a: str, b: str, level: int) -> str:
        where = self._new(name, kind, self._connections, self.joints)
        self._body(where, a)
        self._body(where, b)
        if a == b:
            raise PlantError(f"{where}: connects '{a}' with itself (give two bodies)")
        if not isinstance(level, int):
            raise PlantError(f"{where}: level: expected a whole number, got {level!r}")
        return where

    def _on_bodies(self, name: str, kind: str, *bodies: str) -> str:
        where = self._new(name, kind, *self._drawn)
        for body in bodies:
            self._body(where, body)
        return where

    def _line(
        self, name: str, kind: str, a: str, point_a: Pair, b: str, point_b: Pair
    ) -> tuple[str, Array, str, Array]:
        where = self._on_bodies(name, kind, a, b)
        return a, self._pair(where, "point_a", point_a), b, self._pair(where, "point_b", point_b)

    def _body(self, where: str, name: str) -> None:
        if name not in self.bodies:
            raise PlantError(f"{where}: {no_such('body', name, self.bodies)}")

    def _positive(self, where: str, field: str, what: str, value: Any) -> None:
        if is_false(value > 0.0):
            raise PlantError(f"{where}: {field}: expected a positive {what}, got {value}")

    def _pair(self, where: str, field: str, pair: Pair) -> Array:
        if np.size(pair) != 2:
            raise PlantError(f"{where}: {field}: expected two coordinates (x, y), got {pair!r}")
        return np.array([pair[0], pair[1]])
