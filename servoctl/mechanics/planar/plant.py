"""A planar mechanism as a plant, and tasks on its bodies, derived from the list of its bodies and joints.

    M q'' = Q(q, v) + A^T lambda + B(q) u,   M = diag(m, m, J) of each body,   phi(q) = 0 of each joint
    Q = -V_q - R_v,   R = sum of c d'^2/2 over dampers,   B = (d rho/d q)^T of the joints with motors, see `plant`

Design: V, the lengths d and the displacements rho are written as geometry, and differentiated here. The list of parts
is built from the plant's fields whenever one of them is another object than before, so parameters remain inputs of
compiled code, and a run does not build it again for every row. The constructor builds it too, so that errors appear
there.

Source: Orsino 2017, figure 4, for levels of constraints.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import is_
from types import NoneType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from servoctl.engine.kernel import Kernel, directional, inputs, jacobian
from servoctl.engine.parameters import (
    FORGETTING,
    SameStructure,
    derived,
    parameter_fields,
    parameter_values,
    with_parameters,
)
from servoctl.engine.trace import trace
from servoctl.errors import ExpressionError, PlantError, TaskError, TraceError, no_such
from servoctl.expression import Expression, check_names, parse
from servoctl.mechanics.constraint import Holonomic, Rows, equation_value
from servoctl.mechanics.planar.linkage import Linkage
from servoctl.mechanics.planar.parts import ORIGIN, BodyFrame, Line
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

UNCHANGING = (int, float, str, tuple, NoneType)
"""Types of fields that cannot change in place; parts made from a list, an array or symbols are not kept."""

_latest: WeakKeyDictionary[type, tuple[tuple[Any, ...], Linkage]] = WeakKeyDictionary()
"""Class -> values of the fields of the plant that was built last, and its parts."""

FORGETTING.append(_latest.clear)


@dataclass(frozen=True)
class PlanarLinkage(Plant):
    """Bodies and joints in a plane; subclass it with `@dataclass(frozen=True)` and add them in `build`.

    A subclass with its own `__post_init__` must call the one of this class. For other forces than those of `Linkage`,
    override `force` and add them to the result of this class.
    """

    def __post_init__(self) -> None:
        self.linkage()

    @abstractmethod
    def build(self, linkage: Linkage) -> None:
        """Adds bodies, then joints, forces, motors and points; which ones must not depend on values of parameters.

        It reads nothing that changes except the fields of the plant, and is called once for each set of their values,
        also with symbols in place of the parameters.
        """

    def linkage(self) -> Linkage:
        """The parts of the mechanism.

        Raises:
            PlantError: A name is unknown or used twice, or a mass is not positive.
        """
        values = tuple(getattr(self, field.name) for field in fields(self))
        before, linkage = _latest.get(type(self), ((), None))
        if linkage is None or not all(map(is_, values, before)):
            linkage = Linkage(type(self).__name__)
            self.build(linkage)
            if all(isinstance(value, UNCHANGING) for value in values):
                _latest[type(self)] = values, linkage
        return linkage

    @property
    def coordinates(self) -> Mapping[str, str]:
        bodies = self.linkage().bodies.values()
        return {name: unit for body in bodies for name, unit in body.coordinates.items()}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {name: joint.effort_unit for name, joint in self.linkage().motors.items()}

    @property
    def levels(self) -> dict[str, int]:
        """Constraint group -> level, in the order of `passive_constraints`."""
        return {connection.name: connection.level for connection in self.linkage().connections}

    def mass_matrix(self, q: Array, t: float) -> Array:
        masses = self._masses(self.linkage())
        M = np.zeros((len(masses), len(masses)))
        for i, mass in enumerate(masses):
            M[i, i] = mass
        return M

    def force(self, q: Array, v: Array, t: float) -> Array:
        """Q = -V_q - R_v, shape (n,).

        Raises:
            PlantError: `build` cannot run on symbols.
        """
        return _force_kernel(SameStructure(self))(q, v, parameter_values(self))[0]

    def motor_positions(self, q: Array) -> Array:
        """Angle [rad] or path [m] of each motor's joint, shape (m,); the Jacobian is B^T."""
        linkage = self.linkage()
        frames = linkage.frames(q)
        return np.array([joint.coordinate(frames) for joint in linkage.motors.values()])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        linkage = self.linkage()
        frames = linkage.frames(q)
        return {connection.name: connection.violation(frames) for connection in linkage.connections}

    def energy(self, q: Array, v: Array, t: float) -> float | None:
        """Mechanical energy [J]; None if there is a damper."""
        linkage = self.linkage()
        if linkage.dampers:
            return None
        kinetic = sum(mass * rate * rate for mass, rate in zip(self._masses(linkage), v, strict=True)) / 2
        energy: float = kinetic + linkage.potential(linkage.frames(q))
        return energy

    def point(self, name: str, q: Array) -> Array:
        """Position of a named point [m], shape (2,).

        Raises:
            PlantError: There is no point of this name.
        """
        linkage = self.linkage()
        if name not in linkage.points:
            raise PlantError(f"{type(self).__name__}: {no_such('point', name, linkage.points)}")
        body, point = linkage.points[name]
        return linkage.frames(q)[body].position(point)

    def links(self, q: Array) -> dict[str, Array]:
        """Polylines of bodies through their joints and named points, of springs and dampers, and the named points."""
        linkage = self.linkage()
        frames = linkage.frames(q)
        corners = _corners(linkage)
        drawn = {name: _drawing(frame, corners[name]) for name, frame in frames.items()}
        drawn |= {name: list(force.ends(frames)) for name, force in linkage.forces.items() if isinstance(force, Line)}
        drawn |= {name: [frames[body].position(point)] for name, (body, point) in linkage.points.items()}
        return {name: np.array(points) for name, points in drawn.items() if points}

    def _masses(self, linkage: Linkage) -> list[float]:
        return [mass for body in linkage.bodies.values() for mass in body.masses]


@derived
def _force_kernel(key: SameStructure) -> Kernel:
    """Q of all plants of a structure."""
    n = len(key.thing.coordinates)
    symbols = inputs({"q": (n,), "v": (n,), "p": (len(parameter_values(key.thing)),)})
    q, v = symbols["q"], symbols["v"]
    try:
        linkage = trace(with_parameters(key.thing, symbols["p"]).linkage)
    except TraceError as error:
        raise PlantError(f"{type(key.thing).__name__}.build: {error} (parameters must stay inputs)") from error
    frames = linkage.frames(q)
    lengths = np.array([np.sqrt(damper.square(frames)) for damper in linkage.dampers])
    dampings = np.array([damper.damping for damper in linkage.dampers])
    potential = np.array([linkage.potential(frames)])
    dissipation = np.array([np.sum(dampings * directional(lengths, q, v) ** 2) / 2])
    return Kernel.compile("linkage_force", symbols, {"Q": -jacobian(potential, q)[0] - jacobian(dissipation, v)[0]})


def _corners(linkage: Linkage) -> dict[str, list[Array]]:
    """Body -> corners of its polyline in its own axes: its outline, or each of its joints and named points once."""
    points: dict[str, list[Any]] = {name: [] for name in linkage.bodies}
    for joint in linkage.joints.values():
        for name, point in ((joint.a, joint.point_a), (joint.b, joint.point_b)):
            points[name].append(tuple(point))
    for name, point in linkage.points.values():
        points[name].append(tuple(point))
    return {
        name: list(map(np.array, body.outline or dict.fromkeys(points[name]))) for name, body in linkage.bodies.items()
    }


def _drawing(frame: BodyFrame, corners: list[Array]) -> list[Array]:
    """A polyline, closed from three corners on; a dot for a free body with one; none for ground and rotors."""
    body = frame.body
    if body.size == 3 and len(corners) < 2:
        corners = 2 * (corners or [ORIGIN])  # a polyline of two equal points is a dot
    if not body.size or len(corners) < 2:
        return []
    closed = [*corners, corners[0]] if len(corners) > 2 else corners
    return [frame.position(corner) for corner in closed]


@dataclass(frozen=True)
class PointFollows(Holonomic):
    """`r(q) - (x, y) = 0`: a named point of a `PlanarLinkage` follows a position, two rows [m].

        - {name: tool, class: "servoctl.mechanics.planar:PointFollows",
           parameters: {point: tool, x: "0.3 + 0.1*cos(t)", y: "0.1*sin(t)"}}

    Attributes:
        point: A point that `build` names.
        x: Equation of the target position [m], of time, parameters and coordinates of the plant.
        y: See x.
    """

    point: str
    x: str
    y: str

    units_of_rows = ("m",)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        if not isinstance(plant, PlanarLinkage):
            raise TaskError(f"PointFollows: expected a PlanarLinkage, got {type(plant).__name__} (write the equations)")
        points = plant.linkage().points
        if self.point not in points:
            raise TaskError(f"point: {no_such('point', self.point, points)}")
        equations = [self._equation(field, plant) for field in ("x", "y")]

        def gap(q: Array, t: float) -> Array:
            wanted = [equation_value(equation, plant, State(t, q, np.zeros(len(q)))) for equation in equations]
            difference: Array = plant.point(self.point, q) - np.array(wanted)
            return difference

        return Holonomic(gap).rows(plant, t, q, v)

    def _equation(self, field: str, plant: Plant) -> Expression:
        try:
            expression = parse(getattr(self, field))
        except ExpressionError as error:
            raise TaskError(f"{field}: {error}") from error
        problems = check_names(expression, plant.coordinates, parameter_fields(plant), self.signals)
        expression = expression.with_signals(self.signals)
        if expression.velocities:
            problems.append(f"a position cannot contain a velocity, got der({sorted(expression.velocities)[0]})")
        if problems:
            raise TaskError("\n".join(f"{field}: {problem}" for problem in problems))
        return expression
