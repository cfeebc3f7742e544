"""Where the frames of a robot are and how they move, in closed form.

Design: one pass from the base serves all frames, in world axes, where a Jacobian's column is an axis and its moment.
Only bodies that carry a frame, and those below them, are visited. Closed forms take a third of the operations of
differentiating poses. The columns of a free base's quaternion are those of 2 G.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.kernel import directional, jacobian, substituted
from servoctl.engine.symbol import symbols
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.spatial.dynamics import JointStep, body_moments, combined, steps, world_spin_columns
from servoctl.mechanics.spatial.model import WORLD, RobotTree, TreeFrame
from servoctl.mechanics.spatial.placement import Moments
from servoctl.mechanics.spatial.scalars import UNIT, ZERO, Matrix, Triple, as_array, plus, scalars
from servoctl.types import Array


@dataclass(frozen=True)
class PointMotion:
    """Position, Jacobian, velocity and drift of a point, or of any other vector that depends on the state."""

    position: Array  # [m] p, shape (k,)
    linear: Any  # J, shape (k, n): `p' = J v`; 0 of a course of time
    velocity: Array  # [m/s] p', shape (k,)
    drift: Array  # [m/s^2] `p'' - J q''`, shape (k,)

    def minus(self, other: "PointMotion") -> "PointMotion":
        """The motion relative to another, in axes that do not turn."""
        return PointMotion(
            self.position - other.position, self.linear - other.linear, self.velocity - other.velocity,
            self.drift - other.drift,
        )  # fmt: skip

    def chosen(self, components: Sequence[int]) -> "PointMotion":
        """The motion of some of the components."""
        i = list(components)
        return PointMotion(self.position[i], self.linear[i], self.velocity[i], self.drift[i])

    def mapped(self, function: Callable[[Array], Any]) -> "PointMotion":
        """The motion of y(p), by automatic differentiation: `y'' = y_p p'' + (y_p p')_p p'`, shape (r,)."""
        p, rate, drift = (symbols(name, len(self.position)) for name in ("p", "s", "d"))
        y = np.atleast_1d(np.asarray(trace(function, p), dtype=object))
        y_rate = directional(y, p, rate)
        slope = jacobian(y_rate, rate)
        y_drift = slope @ drift + directional(y_rate, p, rate)
        y, slope, y_rate, y_drift = substituted(
            [y, slope, y_rate, y_drift], [p, rate, drift], [self.position, self.velocity, self.drift]
        )
        return PointMotion(y, slope @ self.linear, y_rate, y_drift)

    @property
    def rows(self) -> Rows:
        """The rows of the task or constraint `p = 0`."""
        return Rows(self.linear, -self.drift, self.position, self.velocity)


@dataclass(frozen=True)
class FrameMotion(PointMotion):
    """Pose, Jacobians, velocity and drift of a frame, in world axes; arrays of numbers or symbols."""

    rotation: Array  # R, shape (3, 3): columns are the frame's axes
    angular: Array  # J_w, shape (3, n): `w = J_w v`
    angular_velocity: Array  # [rad/s] w, shape (3,)
    angular_drift: Array  # [rad/s^2] `w' - J_w q''`, shape (3,)


@dataclass(frozen=True, slots=True)
class Column:
    """The motion of all that a coordinate moves, per unit of its rate."""

    index: int  # index of the coordinate
    turn: Triple  # angular velocity
    slide: Triple  # velocity of the point `origin`
    origin: Triple  # [m] a point

    def velocity(self, point: Triple) -> Triple:
        """Velocity of the body's point that is at a position."""
        return self.slide + self.turn.cross(point - self.origin)


@dataclass(frozen=True, slots=True)
class BodyMotion:
    """A body in world axes; rates and accelerations are those at the coordinates' rates, with q'' = 0."""

    R: Matrix = UNIT  # rotation: columns are the body's axes
    origin: Triple = ZERO  # [m] of its axes
    spin: Triple = ZERO  # [rad/s] angular velocity
    turn: Triple = ZERO  # [rad/s^2] angular acceleration
    velocity: Triple = ZERO  # [m/s] of the origin
    acceleration: Triple = ZERO  # [m/s^2] of the origin
    columns: tuple[Column, ...] = ()  # motions of the coordinates that move it

    def point(self, arm: Triple) -> tuple[Triple, Triple, Triple]:
        """Position, velocity and acceleration of a point, given by its arm from the origin in world axes."""
        rate = self.spin.cross(arm)
        acceleration = self.acceleration + self.turn.cross(arm) + self.spin.cross(rate)
        return self.origin + arm, self.velocity + rate, acceleration


def frame_motions(tree: RobotTree, names: Sequence[str], q: Array, v: Array) -> dict[str, FrameMotion]:
    """Name -> motion of each of the frames.

    Raises:
        PlantError: There is no frame of a name.
    """
    frames = {name: tree.frame(name) for name in names}
    bodies = body_motions(tree, q, v, [frame.body for frame in frames.values()])
    n = len(tree.coordinates)
    return {name: _frame_motion(bodies[frame.body], frame, n) for name, frame in frames.items()}


def body_motions(tree: RobotTree, q: Array | Sequence[Any], v: Array, wanted: Iterable[int]) -> dict[int, BodyMotion]:
    """Index -> motion of the wanted bodies, of those that carry them, and of the world."""
    needed: set[int] = set()
    for i in wanted:
        while i != WORLD and i not in needed:
            needed.add(i)
            i = tree.joints[i].parent
    motions, place, rates = {WORLD: BodyMotion()}, scalars(q), scalars(v)
    chain = steps(tree, q, v)
    for i in sorted(needed):
        if chain[i].joint.kind == "free":
            columns = tree.columns[i]
            motions[i] = _free_body(chain[i], columns, [place[c] for c in columns], [rates[c] for c in columns])
        else:
            motions[i] = _moved(motions[chain[i].joint.parent], chain[i], tree.columns[i][0])
    return motions


def frame_poses(tree: RobotTree, names: Sequence[str], q: Array) -> dict[str, tuple[Array, Array]]:
    """Frame -> rotations, shape (states, 3, 3), and positions [m], shape (states, 3), in world axes, for pictures.

    Args:
        q: Coordinates, shape (states, n): the scalars of the recursion are its columns.
    """
    frames = {name: tree.frame(name) for name in names}
    bodies = body_motions(tree, list(q.T), np.zeros(q.shape[1]), [frame.body for frame in frames.values()])

    def stacked(triple: Triple) -> Array:
        return np.stack([np.broadcast_to(part, len(q)) for part in (triple.x, triple.y, triple.z)], axis=-1)

    poses = {}
    for name, frame in frames.items():
        R, origin = _placed(bodies[frame.body], frame)
        poses[name] = np.stack([stacked(row) for row in (R.x, R.y, R.z)], axis=1), stacked(origin)
    return poses


def frame_origins(tree: RobotTree, q: Array) -> Array:
    """Position of each frame of the tree, in its order, shape (frames, 3) [m]."""
    bodies = body_motions(tree, q, np.zeros(len(q)), range(len(tree.joints)))
    return _rows([_placed(bodies[frame.body], frame)[1] for frame in tree.frames]).T


def _placed(body: BodyMotion, frame: TreeFrame) -> tuple[Matrix, Triple]:
    """Rotation and position of a frame on a body."""
    return body.R @ Matrix.of(frame.placement.rotation), body.origin + body.R(Triple.of(frame.placement.xyz))


def first_moment(tree: RobotTree, links: Sequence[Moments], q: Array) -> Triple:
    """Mass times centre of mass of all links, in world axes [kg m].

    Args:
        links: Moments of each link of the tree, in the link's axes.
    """
    total = _at_rest(tree, links).first
    bodies = body_moments(tree, links)
    motions = body_motions(tree, q, np.zeros(len(q)), range(len(bodies)))
    for i, body in enumerate(bodies):
        total = total + motions[i].R(body.first) + motions[i].origin * body.m
    return total


def centre_of_mass(tree: RobotTree, links: Sequence[Moments], q: Array, v: Array) -> PointMotion:
    """Motion of the centre of mass of all links; see `first_moment` for the arguments.

    Raises:
        PlantError: Nothing has mass.
    """
    if not tree.links:
        raise PlantError(f"{tree.name}: there is no centre of mass: nothing has mass")
    bodies, fixed = body_moments(tree, links), _at_rest(tree, links)
    motions = body_motions(tree, q, v, range(len(bodies)))
    mass, moment, momentum, force = fixed.m, fixed.first, ZERO, ZERO
    carried: list[tuple[Any, Triple]] = []
    for i, body in enumerate(bodies):
        motion, arm = motions[i], motions[i].R(body.first)
        _, rate, acceleration = BodyMotion(spin=motion.spin, turn=motion.turn).point(arm)
        carried.append((body.m, arm + motion.origin * body.m))
        mass, moment = plus(mass, body.m), moment + carried[i][1]
        momentum = momentum + motion.velocity * body.m + rate
        force = force + motion.acceleration * body.m + acceleration
    share = 1.0 / mass
    linear = _zeros(len(tree.coordinates))
    for i in reversed(range(len(bodies))):
        m, at = carried[i]
        parent = tree.joints[i].parent
        for column in _own_columns(tree, motions, i):
            part = (column.slide * m + column.turn.cross(at - column.origin * m)) * share
            _add(linear, column.index, part)
        if parent != WORLD:
            carried[parent] = plus(carried[parent][0], m), carried[parent][1] + at
    return PointMotion((moment * share).array, _rows(linear), (momentum * share).array, (force * share).array)


def _at_rest(tree: RobotTree, links: Sequence[Moments]) -> Moments:
    """Moments of the links that are fixed to the world, in its axes."""
    total = Moments()
    for link, moments in zip(tree.links, links, strict=True):
        if link.body == WORLD:
            total = total + moments.placed(link.placement)
    return total


def _own_columns(tree: RobotTree, motions: Mapping[int, BodyMotion], i: int) -> tuple[Column, ...]:
    """The columns of the joint of a body, without those of the bodies that carry it."""
    return motions[i].columns[len(motions[tree.joints[i].parent].columns) :]


def _moved(parent: BodyMotion, step: JointStep, index: int) -> BodyMotion:
    axes = parent.R @ step.R
    axis = axes.T.z
    R = Matrix(*(row.turned_back(step.sine, step.cosine) for row in (axes.x, axes.y, axes.z)))
    origin, velocity, acceleration = parent.point(parent.R(step.r))
    along, unit = axis * step.rate, axis * step.joint.multiplier
    if step.joint.kind == "prismatic":
        columns = (*parent.columns, Column(index, ZERO, unit, ZERO))
        coriolis = parent.spin.cross(along) * 2.0
        return BodyMotion(
            R, origin, parent.spin, parent.turn, velocity + along, acceleration + coriolis, columns
        )  # fmt: skip
    columns = (*parent.columns, Column(index, unit, ZERO, origin))
    turn = parent.turn + parent.spin.cross(along)
    return BodyMotion(R, origin, parent.spin + along, turn, velocity, acceleration, columns)


def _free_body(step: JointStep, columns: Sequence[int], q: Sequence[Any], v: Sequence[Any]) -> BodyMotion:
    """Motion of a free base, from its seven coordinates and rates."""
    turns = world_spin_columns(q[3:])
    slides = (Triple(1.0, 0.0, 0.0), Triple(0.0, 1.0, 0.0), Triple(0.0, 0.0, 1.0))
    motions = [Column(columns[k], ZERO, slide, ZERO) for k, slide in enumerate(slides)]
    motions += [Column(columns[3 + k], turn, ZERO, step.r) for k, turn in enumerate(turns)]
    return BodyMotion(step.R, step.r, combined(turns, v[3:]), ZERO, Triple(*v[:3]), ZERO, tuple(motions))


def _frame_motion(body: BodyMotion, frame: TreeFrame, n: int) -> FrameMotion:
    position, velocity, acceleration = body.point(body.R(Triple.of(frame.placement.xyz)))
    linear, angular = _zeros(n), _zeros(n)
    for column in body.columns:
        _add(linear, column.index, column.velocity(position))
        _add(angular, column.index, column.turn)
    R = body.R @ Matrix.of(frame.placement.rotation)
    return FrameMotion(
        position.array, _rows(linear), velocity.array, acceleration.array,
        R.array, _rows(angular), body.spin.array, body.turn.array,
    )  # fmt: skip


def _zeros(n: int) -> list[Triple]:
    return [ZERO for _ in range(n)]


def _add(columns: list[Triple], index: int, part: Triple) -> None:
    """Adds to a column; a joint and the one that it follows share theirs."""
    columns[index] = columns[index] + part


def _rows(columns: Sequence[Triple]) -> Array:
    """Columns as a matrix, shape (3, n)."""
    flat = [value for column in columns for value in (column.x, column.y, column.z)]
    return as_array(flat).reshape(len(columns), 3).T
