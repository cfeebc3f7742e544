"""The steps from body to body of a tree, and its mass matrix and bias force, by recursions in the axes of the bodies.

    p_parent = R Rz(q) p_child + r            revolute
    p_parent = R (p_child + z q) + r          prismatic
    p_world  = R(p) p_child + x               free, p = (w, x, y, z) a unit quaternion
    M q'' = Q + ...,   Q = -(C v + gravity's part) = -bias

Design: the angular velocity of a free base counts as `2 E(p) p'`, so `w' = 2 E(p) p''` without further terms, because
`E(p') p' = 0`; this holds on |p| = 1, where a passive row keeps p. R(p) divides by |p|^2, so it is a rotation for every
p, and the mass matrix is positive definite there too.

Design: the recursions are plain NumPy, which carries every 0 and 1 of a robot's structure along. CasADi carries out no
operation with such a number, so compiled code contains only what depends on the state or on a parameter.

Design: body axes, in which a joint's axis is z and a link's moments are constant, take half the operations of world
axes. A mimic joint has the column of the joint that it follows: `P^T M P` is formed by adding its entries there. The
four columns of a free base's quaternion are those of 2 E. `M` has `c p p^T` added there, because a change of the
quaternion's length has no inertia of its own; the row |p| = 1 makes its size immaterial, and c = 4/3 tr I keeps M well
conditioned.

Source: Featherstone 2008, tables 5.1 (recursive Newton-Euler) and 6.2 (composite bodies); free bases are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.symbol import plain
from servoctl.mechanics.spatial.model import WORLD, RobotTree, TreeJoint
from servoctl.mechanics.spatial.placement import ZERO, Moments, cross, turned, turned_back
from servoctl.types import Array


@dataclass(frozen=True, slots=True)
class JointStep:
    """A joint at a state."""

    joint: TreeJoint
    R: Array  # rotation of the joint's axes in those of its parent; of a free base, of the body's axes in the world's
    r: Array  # [m] origin of the child's axes in those of the parent
    sine: Any = 0.0  # of a revolute joint's angle; 0 of others
    cosine: Any = 1.0  # of a revolute joint's angle; 1 of others
    rate: Any = 0.0  # speed of the joint [rad/s or m/s]; 0 of a free base

    def up(self, vector: Array) -> Array:
        """A vector from the child's axes in those of the parent."""
        return self.R @ turned(vector, self.sine, self.cosine)

    def down(self, vector: Array) -> Array:
        """A vector from the parent's axes in those of the child."""
        return turned_back(self.R.T @ vector, self.sine, self.cosine)


def steps(tree: RobotTree, q: Array, v: Array | None = None) -> list[JointStep]:
    """Every joint of a tree at a state; v None: at rest."""
    rates = np.zeros(len(q)) if v is None else v
    return [_step(joint, list(columns), q, rates) for joint, columns in zip(tree.joints, tree.columns, strict=True)]


def _step(joint: TreeJoint, columns: list[int], q: Array, v: Array) -> JointStep:
    if joint.kind == "free":
        return JointStep(joint, quaternion_rotation(q[columns[3:]]), q[columns[:3]])
    R, r = joint.placement.R, joint.placement.p
    position, rate = joint.multiplier * q[columns[0]] + joint.offset, joint.multiplier * v[columns[0]]
    if joint.kind == "prismatic":
        return JointStep(joint, R, r + R[:, 2] * position, rate=rate)
    return JointStep(joint, R, r, np.sin(position), np.cos(position), rate)


def quaternion_rotation(p: Array) -> Array:
    """R(p) of a quaternion (w, x, y, z) of any length, from the body's axes to the world's, shape (3, 3)."""
    w, x, y, z = p
    xx, yy, zz = x * x, y * y, z * z
    scale = 2.0 / (w * w + xx + yy + zz)
    xy, xz, yz, wx, wy, wz = x * y, x * z, y * z, w * x, w * y, w * z
    return np.array(
        [
            [1.0 - scale * (yy + zz), scale * (xy - wz), scale * (xz + wy)],
            [scale * (xy + wz), 1.0 - scale * (xx + zz), scale * (yz - wx)],
            [scale * (xz - wy), scale * (yz + wx), 1.0 - scale * (xx + yy)],
        ]
    )


def spin_columns(p: Array) -> Array:
    """2 E(p), shape (3, 4): the angular velocity, in the body's axes, is `2 E(p) p'`."""
    w, x, y, z = 2.0 * p
    return np.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])


def world_spin_columns(p: Array) -> Array:
    """2 G(p), shape (3, 4): the angular velocity, in the world's axes, is `2 G(p) p'`."""
    w, x, y, z = 2.0 * p
    return np.array([[-x, w, -z, y], [-y, z, w, -x], [-z, -y, x, w]])


def body_moments(tree: RobotTree, links: Sequence[Moments]) -> list[Moments]:
    """Moments of each moving body about the origin of its axes.

    Args:
        links: Moments of each link of the tree, in the link's axes.
    """
    bodies = [Moments() for _ in tree.joints]
    for link, moments in zip(tree.links, links, strict=True):
        if link.body != WORLD:
            bodies[link.body] = bodies[link.body] + moments.placed(link.placement)
    return bodies


def mass_matrix(tree: RobotTree, bodies: Sequence[Moments], q: Array) -> Array:
    """M(q), shape (n, n).

    Args:
        bodies: Moments of each moving body, see `body_moments`.
    """
    chain, composite, n = steps(tree, q), list(bodies), len(tree.coordinates)
    M: Array = np.full((n, n), 0.0).astype(object)
    for i in reversed(range(len(chain))):
        step = chain[i]
        if step.joint.kind == "free":
            _free_base(M, list(tree.columns[i]), composite[i], step, q)
            continue
        _joint_column(M, tree, chain, i, composite[i], q)
        parent = step.joint.parent
        if parent != WORLD:
            about_z = composite[i].turned(step.sine, step.cosine)
            composite[parent] = composite[parent] + about_z.placed_by(step.R, step.r)
    return plain(M)


def bias(tree: RobotTree, bodies: Sequence[Moments], gravity: Sequence[Any], q: Array, v: Array) -> Array:
    """The generalized force that gives `q'' = 0` at a state, shape (n,): Coriolis forces and gravity.

    Args:
        bodies: Moments of each moving body, see `body_moments`.
    """
    chain, ground = steps(tree, q, v), LocalMotion(ZERO, ZERO, -np.array(gravity))
    motions: list[LocalMotion] = []
    for i, step in enumerate(chain):
        if step.joint.kind == "free":
            spin = spin_columns(_quaternion(tree, i, q)) @ _quaternion(tree, i, v)
            motions.append(LocalMotion(spin, ZERO, step.R.T @ ground.acceleration))
            continue
        parent = step.joint.parent
        motions.append(_moved(ground if parent == WORLD else motions[parent], step))
    wrenches = [body_wrench(body, motion) for body, motion in zip(bodies, motions, strict=True)]
    forces: Array = np.full(len(tree.coordinates), 0.0).astype(object)
    for i in reversed(range(len(chain))):
        step, wrench, columns = chain[i], wrenches[i], list(tree.columns[i])
        forces[columns] = forces[columns] + _shares(wrench, step, _quaternion(tree, i, q))
        if step.joint.parent != WORLD:
            wrenches[step.joint.parent] = wrenches[step.joint.parent] + wrench.up(step)
    return plain(forces)


@dataclass(frozen=True, slots=True)
class LocalMotion:
    """Motion of a body in its own axes while all q'' are 0; the acceleration of gravity counts as one upwards."""

    spin: Array  # [rad/s] angular velocity w
    turn: Array  # [rad/s^2] angular acceleration w'
    acceleration: Array  # [m/s^2] of the origin

    @property
    def field(self) -> Array:
        """[w']x + [w]x [w]x, shape (3, 3): the acceleration of the point p is that of the origin plus `field p`."""
        (x, y, z), (ax, ay, az) = self.spin, self.turn
        xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
        return np.array([[-yy - zz, xy - az, xz + ay], [xy + az, -xx - zz, yz - ax], [xz - ay, yz + ax, -xx - yy]])


@dataclass(frozen=True, slots=True)
class Wrench:
    """Force and moment about the origin of some axes."""

    force: Array  # [N]
    moment: Array  # [N m]

    def __add__(self, other: "Wrench") -> "Wrench":
        return Wrench(self.force + other.force, self.moment + other.moment)

    def up(self, step: JointStep) -> "Wrench":
        """The wrench about the origin of the parent's axes, in those."""
        force = step.up(self.force)
        return Wrench(force, step.up(self.moment) + cross(step.r, force))


def _moved(parent: LocalMotion, step: JointStep) -> LocalMotion:
    spin, turn = step.down(parent.spin), step.down(parent.turn)
    acceleration = step.down(parent.acceleration + parent.field @ step.r)
    along = np.array([0.0, 0.0, step.rate])
    if step.joint.kind == "prismatic":
        return LocalMotion(spin, turn, acceleration + cross(2.0 * spin, along))
    return LocalMotion(spin + along, turn + cross(spin, along), acceleration)


def body_wrench(body: Moments, motion: LocalMotion) -> Wrench:
    """The wrench that gives a body its motion: `f = m a + F h`, n = the axial vector of `F J - (F J)^T`, plus h x a."""
    field, h, a = motion.field, body.first, motion.acceleration
    FJ = field @ body.J
    axial = np.array([FJ[2, 1] - FJ[1, 2], FJ[0, 2] - FJ[2, 0], FJ[1, 0] - FJ[0, 1]])
    return Wrench(a * body.m + field @ h, axial + cross(h, a))


def _shares(wrench: Wrench, step: JointStep, p: Array) -> Array:
    """The forces at the coordinates of a joint that carry a wrench; p is the quaternion of a free base."""
    if step.joint.kind == "free":
        return np.concatenate([step.R @ wrench.force, spin_columns(p).T @ wrench.moment])
    part = wrench.moment[2] if step.joint.kind == "revolute" else wrench.force[2]
    return np.array([step.joint.multiplier * part])


def _quaternion(tree: RobotTree, i: int, values: Array) -> Array:
    """The values of a free base's quaternion coordinates; of another joint none."""
    return values[list(tree.columns[i][3:])]


def _joint_column(M: Array, tree: RobotTree, chain: Sequence[JointStep], i: int, composite: Moments, q: Array) -> None:
    """Adds what a joint's unit acceleration needs at itself and at every joint towards the base."""
    step = chain[i]
    own, (x, y, _) = tree.columns[i][0], composite.first
    if step.joint.kind == "revolute":
        moment = np.array([-composite.xz, -composite.yz, composite.xx + composite.yy])
        wrench = Wrench(np.array([-y, x, 0.0]), moment)
    else:
        wrench = Wrench(np.array([0.0, 0.0, composite.m]), np.array([y, -x, 0.0]))
    scale, at = step.joint.multiplier, i
    M[own, own] = M[own, own] + scale * _shares(wrench, step, ZERO)[0]
    while chain[at].joint.parent != WORLD:
        wrench, at = wrench.up(chain[at]), chain[at].joint.parent
        for column, share in zip(tree.columns[at], _shares(wrench, chain[at], _quaternion(tree, at, q)), strict=True):
            M[own, column] = M[own, column] + scale * share
            M[column, own] = M[column, own] + scale * share


def _free_base(M: Array, columns: list[int], composite: Moments, step: JointStep, q: Array) -> None:
    """Adds the columns of a free base, from which its tree hangs."""
    place, turns = columns[:3], columns[3:]
    p, stretch = q[turns], 8.0 / 3.0 * (composite.xx + composite.yy + composite.zz)
    spins = spin_columns(p)
    M[place, place] = composite.m
    for k, spin in enumerate(spins.T):
        M[place, turns[k]] = M[turns[k], place] = step.R @ cross(spin, composite.first)
        moment = composite.inertia @ spin
        for other in range(k + 1):
            part = spins[:, other] @ moment + stretch * (p[other] * p[k])
            M[turns[k], turns[other]] = M[turns[other], turns[k]] = part
