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
from servoctl.engine.symbol import plain, symbols
from servoctl.engine.trace import trace
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.spatial.dynamics import JointStep, body_moments, steps, world_spin_columns
from servoctl.mechanics.spatial.model import WORLD, RobotTree, TreeFrame
from servoctl.mechanics.spatial.placement import ZERO, Moments, Placement, cross, turned_back
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
    turn: Array  # angular velocity
    slide: Array  # velocity of the point `origin`
    origin: Array  # [m] a point

    def velocity(self, point: Array) -> Array:
        """Velocity of the body's point that is at a position."""
        return self.slide + cross(self.turn, point - self.origin)


@dataclass(frozen=True, slots=True)
class BodyMotion:
    """A body in world axes; rates and accelerations are those at the coordinates' rates, with q'' = 0."""

    R: Array  # rotation: columns are the body's axes
    origin: Array  # [m] of its axes
    spin: Array  # [rad/s] angular velocity
    turn: Array  # [rad/s^2] angular acceleration
    velocity: Array  # [m/s] of the origin
    acceleration: Array  # [m/s^2] of the origin
    columns: tuple[Column, ...] = ()  # motions of the coordinates that move it

    def point(self, arm: Array, m: Any = 1.0) -> tuple[Array, Array, Array]:
        """Position, velocity and acceleration of a point, given by its arm from the origin in world axes.

        Args:
            m: A mass; with the first moment about the origin as `arm`, the three are multiplied by the mass.
        """
        rate = cross(self.spin, arm)
        acceleration = self.acceleration * m + cross(self.turn, arm) + cross(self.spin, rate)
        return self.origin * m + arm, self.velocity * m + rate, acceleration


STILL = BodyMotion(Placement().R, *5 * (ZERO,))  # the world


def frame_motions(tree: RobotTree, names: Sequence[str], q: Array, v: Array) -> dict[str, FrameMotion]:
    """Name -> motion of each of the frames.

    Raises:
        PlantError: There is no frame of a name.
    """
    frames = {name: tree.frame(name) for name in names}
    bodies = body_motions(tree, q, v, [frame.body for frame in frames.values()])
    n = len(tree.coordinates)
    return {name: _frame_motion(bodies[frame.body], frame, n) for name, frame in frames.items()}


def body_motions(tree: RobotTree, q: Array, v: Array, wanted: Iterable[int]) -> dict[int, BodyMotion]:
    """Index -> motion of the wanted bodies, of those that carry them, and of the world."""
    needed: set[int] = set()
    for i in wanted:
        while i != WORLD and i not in needed:
            needed.add(i)
            i = tree.joints[i].parent
    motions, chain = {WORLD: STILL}, steps(tree, q, v)
    for i in sorted(needed):
        if chain[i].joint.kind == "free":
            columns = list(tree.columns[i])
            motions[i] = _free_body(chain[i], columns, q[columns], v[columns])
        else:
            motions[i] = _moved(motions[chain[i].joint.parent], chain[i], tree.columns[i][0])
    return motions


def frame_poses(tree: RobotTree, q: Array) -> Array:
    """Rotation by rows and position [m] of each frame of the tree, in its order, in world axes; shape (frames, 12)."""
    bodies = body_motions(tree, q, np.zeros(len(q)), range(len(tree.joints)))
    poses = [_placed(bodies[frame.body], frame) for frame in tree.frames]
    return np.array([np.concatenate([R.ravel(), origin]) for R, origin in poses])


def _placed(body: BodyMotion, frame: TreeFrame) -> tuple[Array, Array]:
    """Rotation and position of a frame on a body."""
    return body.R @ frame.placement.R, body.origin + body.R @ frame.placement.p


def first_moment(tree: RobotTree, links: Sequence[Moments], q: Array) -> Array:
    """Mass times centre of mass of all links, in world axes [kg m].

    Args:
        links: Moments of each link of the tree, in the link's axes.
    """
    total = _at_rest(tree, links).first
    bodies = body_moments(tree, links)
    motions = body_motions(tree, q, np.zeros(len(q)), range(len(bodies)))
    for i, body in enumerate(bodies):
        total = total + motions[i].point(motions[i].R @ body.first, body.m)[0]
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
    moved = [motions[i].point(motions[i].R @ body.first, body.m) for i, body in enumerate(bodies)]
    moment, momentum, force = (sum(parts) for parts in zip((fixed.first, ZERO, ZERO), *moved, strict=True))
    share = 1.0 / (fixed.m + sum(body.m for body in bodies))
    # mass and first moment of each body with all that it carries
    carried = [(body.m, first) for body, (first, _, _) in zip(bodies, moved, strict=True)]
    linear = _zeros(len(tree.coordinates))
    for i in reversed(range(len(bodies))):
        m, at = carried[i]
        parent = tree.joints[i].parent
        for column in _own_columns(tree, motions, i):
            part = (column.slide * m + cross(column.turn, at - column.origin * m)) * share
            linear[:, column.index] = linear[:, column.index] + part
        if parent != WORLD:
            carried[parent] = carried[parent][0] + m, carried[parent][1] + at
    return PointMotion(moment * share, plain(linear), momentum * share, force * share)


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
    axis, R = axes[:, 2], np.array([turned_back(row, step.sine, step.cosine) for row in axes])
    origin, velocity, acceleration = parent.point(parent.R @ step.r)
    along, unit = axis * step.rate, axis * step.joint.multiplier
    if step.joint.kind == "prismatic":
        columns = (*parent.columns, Column(index, ZERO, unit, ZERO))
        acceleration = acceleration + cross(parent.spin, along) * 2.0
        return BodyMotion(R, origin, parent.spin, parent.turn, velocity + along, acceleration, columns)
    columns = (*parent.columns, Column(index, unit, ZERO, origin))
    turn = parent.turn + cross(parent.spin, along)
    return BodyMotion(R, origin, parent.spin + along, turn, velocity, acceleration, columns)


def _free_body(step: JointStep, columns: Sequence[int], q: Array, v: Array) -> BodyMotion:
    """Motion of a free base, from its seven coordinates and rates."""
    turns = world_spin_columns(q[3:])
    motions = [Column(columns[k], ZERO, slide, ZERO) for k, slide in enumerate(STILL.R)]
    motions += [Column(columns[3 + k], turn, ZERO, step.r) for k, turn in enumerate(turns.T)]
    return BodyMotion(step.R, step.r, turns @ v[3:], ZERO, v[:3], ZERO, tuple(motions))


def _frame_motion(body: BodyMotion, frame: TreeFrame, n: int) -> FrameMotion:
    position, velocity, acceleration = body.point(body.R @ frame.placement.p)
    linear, angular = _zeros(n), _zeros(n)
    for column in body.columns:  # a joint and the one that it follows share a column of the Jacobian
        linear[:, column.index] = linear[:, column.index] + column.velocity(position)
        angular[:, column.index] = angular[:, column.index] + column.turn
    R = body.R @ frame.placement.R
    return FrameMotion(position, plain(linear), velocity, acceleration, R, plain(angular), body.spin, body.turn)


def _zeros(n: int) -> Array:
    """Columns of a Jacobian, shape (3, n)."""
    return np.full((3, n), 0.0).astype(object)
