"""The steps from body to body of a tree, and its mass matrix and bias force, by recursions in the axes of the bodies.

    p_parent = R Rz(q) p_child + r            revolute
    p_parent = R (p_child + z q) + r          prismatic
    p_world  = R(p) p_child + x               free, p = (w, x, y, z) a unit quaternion
    M q'' = Q + ...,   Q = -(C v + gravity's part) = -bias

Design: the angular velocity of a free base counts as `2 E(p) p'`, so `w' = 2 E(p) p''` without further terms, because
`E(p') p' = 0`; this holds on |p| = 1, where a passive row keeps p. R(p) divides by |p|^2, so it is a rotation for every
p, and the mass matrix is positive definite there too.

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

from servoctl.mechanics.spatial.model import WORLD, RobotTree, TreeJoint
from servoctl.mechanics.spatial.placement import Moments
from servoctl.mechanics.spatial.scalars import ZERO, Matrix, Triple, as_array, minus, plus, scalars, sine_cosine, times
from servoctl.types import Array


@dataclass(frozen=True, slots=True)
class JointStep:
    """A joint at a state."""

    joint: TreeJoint
    R: Matrix  # rotation of the joint's axes in those of its parent; of a free base, of the body's axes in the world's
    r: Triple  # [m] origin of the child's axes in those of the parent
    sine: Any = 0.0  # of a revolute joint's angle; 0 of others
    cosine: Any = 1.0  # of a revolute joint's angle; 1 of others
    rate: Any = 0.0  # speed of the joint [rad/s or m/s]; 0 of a free base

    def up(self, vector: Triple) -> Triple:
        """A vector from the child's axes in those of the parent."""
        return self.R(vector.turned(self.sine, self.cosine))

    def down(self, vector: Triple) -> Triple:
        """A vector from the parent's axes in those of the child."""
        return self.R.T(vector).turned_back(self.sine, self.cosine)


def steps(tree: RobotTree, q: Sequence[Any] | Array, v: Sequence[Any] | Array | None = None) -> list[JointStep]:
    """Every joint of a tree at a state; v None: at rest."""
    place = scalars(q)
    rates = [0.0] * len(place) if v is None else scalars(v)
    return [
        _step(joint, columns[0], len(columns), place, rates)
        for joint, columns in zip(tree.joints, tree.columns, strict=True)
    ]


def _step(joint: TreeJoint, first: int, count: int, q: list[Any], v: list[Any]) -> JointStep:
    if joint.kind == "free":
        return JointStep(joint, quaternion_rotation(q[first + 3 : first + count]), Triple(*q[first : first + 3]))
    R, r = Matrix.of(joint.placement.rotation), Triple.of(joint.placement.xyz)
    position = plus(times(joint.multiplier, q[first]), joint.offset)
    rate = times(joint.multiplier, v[first])
    if joint.kind == "prismatic":
        return JointStep(joint, R, r + R(Triple(0.0, 0.0, position)), rate=rate)
    return JointStep(joint, R, r, *sine_cosine(position), rate)


def quaternion_rotation(p: Sequence[Any]) -> Matrix:
    """R(p) of a quaternion (w, x, y, z) of any length, from the body's axes to the world's."""
    w, x, y, z = p
    xx, yy, zz = x * x, y * y, z * z
    scale = 2.0 / (w * w + xx + yy + zz)
    xy, xz, yz, wx, wy, wz = x * y, x * z, y * z, w * x, w * y, w * z
    return Matrix(
        Triple(1.0 - scale * (yy + zz), scale * (xy - wz), scale * (xz + wy)),
        Triple(scale * (xy + wz), 1.0 - scale * (xx + zz), scale * (yz - wx)),
        Triple(scale * (xz - wy), scale * (yz + wx), 1.0 - scale * (xx + yy)),
    )


def spin_columns(p: Sequence[Any]) -> list[Triple]:
    """Columns of 2 E(p): the angular velocity, in the body's axes, is `2 E(p) p'`."""
    w, x, y, z = (2.0 * part for part in p)
    return [Triple(-x, -y, -z), Triple(w, -z, y), Triple(z, w, -x), Triple(-y, x, w)]


def world_spin_columns(p: Sequence[Any]) -> list[Triple]:
    """Columns of 2 G(p): the angular velocity, in the world's axes, is `2 G(p) p'`."""
    w, x, y, z = (2.0 * part for part in p)
    return [Triple(-x, -y, -z), Triple(w, z, -y), Triple(-z, w, x), Triple(y, -x, w)]


def combined(columns: Sequence[Triple], rates: Sequence[Any]) -> Triple:
    """The sum of columns times rates."""
    total = ZERO
    for column, rate in zip(columns, rates, strict=True):
        total = total + column * rate
    return total


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
    chain, composite = steps(tree, q), list(bodies)
    n = len(tree.coordinates)
    M: list[list[Any]] = [[0.0] * n for _ in range(n)]
    for i in reversed(range(len(chain))):
        step = chain[i]
        if step.joint.kind == "free":
            _free_base(M, tree.columns[i], composite[i], step, scalars(q))
            continue
        _joint_column(M, tree, chain, i, composite[i], scalars(q))
        parent = step.joint.parent
        if parent != WORLD:
            turned = composite[i].turned(step.sine, step.cosine)
            composite[parent] = composite[parent] + turned.placed_by(step.R, step.r)
    return _matrix(M)


def bias(tree: RobotTree, bodies: Sequence[Moments], gravity: Sequence[Any], q: Array, v: Array) -> Array:
    """The generalized force that gives `q'' = 0` at a state, shape (n,): Coriolis forces and gravity.

    Args:
        bodies: Moments of each moving body, see `body_moments`.
    """
    chain, place, rates = steps(tree, q, v), scalars(q), scalars(v)
    ground = LocalMotion(ZERO, ZERO, ZERO - Triple.of(gravity))
    motions: list[LocalMotion] = []
    for i, step in enumerate(chain):
        if step.joint.kind == "free":
            spin = combined(spin_columns(_quaternion(tree, i, place)), _quaternion(tree, i, rates))
            motions.append(LocalMotion(spin, ZERO, step.R.T(ground.acceleration)))
            continue
        parent = step.joint.parent
        motions.append(_moved(ground if parent == WORLD else motions[parent], step))
    wrenches = [body_wrench(body, motion) for body, motion in zip(bodies, motions, strict=True)]
    forces: list[Any] = [0.0] * len(tree.coordinates)
    for i in reversed(range(len(chain))):
        step, wrench, columns = chain[i], wrenches[i], tree.columns[i]
        for column, share in zip(columns, _shares(wrench, step, _quaternion(tree, i, place)), strict=True):
            forces[column] = plus(forces[column], share)
        if step.joint.parent != WORLD:
            wrenches[step.joint.parent] = wrenches[step.joint.parent] + wrench.up(step)
    return as_array(forces)


@dataclass(frozen=True, slots=True)
class LocalMotion:
    """Motion of a body in its own axes while all q'' are 0; the acceleration of gravity counts as one upwards."""

    spin: Triple  # [rad/s] angular velocity w
    turn: Triple  # [rad/s^2] angular acceleration w'
    acceleration: Triple  # [m/s^2] of the origin

    @property
    def field(self) -> Matrix:
        """[w']x + [w]x [w]x: the acceleration of the point p is that of the origin plus `field p`."""
        w, a = self.spin, self.turn
        xx, yy, zz = times(w.x, w.x), times(w.y, w.y), times(w.z, w.z)
        xy, xz, yz = times(w.x, w.y), times(w.x, w.z), times(w.y, w.z)
        return Matrix(
            Triple(minus(minus(0.0, yy), zz), minus(xy, a.z), plus(xz, a.y)),
            Triple(plus(xy, a.z), minus(minus(0.0, xx), zz), minus(yz, a.x)),
            Triple(minus(xz, a.y), plus(yz, a.x), minus(minus(0.0, xx), yy)),
        )


@dataclass(frozen=True, slots=True)
class Wrench:
    """Force and moment about the origin of some axes."""

    force: Triple  # [N]
    moment: Triple  # [N m]

    def __add__(self, other: "Wrench") -> "Wrench":
        return Wrench(self.force + other.force, self.moment + other.moment)

    def up(self, step: JointStep) -> "Wrench":
        """The wrench about the origin of the parent's axes, in those."""
        force = step.up(self.force)
        return Wrench(force, step.up(self.moment) + step.r.cross(force))


def _moved(parent: LocalMotion, step: JointStep) -> LocalMotion:
    spin, turn = step.down(parent.spin), step.down(parent.turn)
    acceleration = step.down(parent.acceleration + parent.field(step.r))
    along = Triple(0.0, 0.0, step.rate)
    if step.joint.kind == "prismatic":
        return LocalMotion(spin, turn, acceleration + (spin * 2.0).cross(along))
    return LocalMotion(spin + along, turn + spin.cross(along), acceleration)


def body_wrench(body: Moments, motion: LocalMotion) -> Wrench:
    """The wrench that gives a body its motion: `f = m a + F h`, n = the axial vector of `F J - (F J)^T`, plus h x a."""
    field, h, a = motion.field, body.first, motion.acceleration
    x, y, z = body.J.x, body.J.y, body.J.z
    moment = Triple(
        minus(field.z.dot(y), field.y.dot(z)),
        minus(field.x.dot(z), field.z.dot(x)),
        minus(field.y.dot(x), field.x.dot(y)),
    )
    return Wrench(a * body.m + field(h), moment + h.cross(a))


def _shares(wrench: Wrench, step: JointStep, p: Sequence[Any]) -> list[Any]:
    if step.joint.kind == "free":
        force = step.R(wrench.force)
        return [force.x, force.y, force.z, *(column.dot(wrench.moment) for column in spin_columns(p))]
    part = wrench.moment.z if step.joint.kind == "revolute" else wrench.force.z
    return [times(step.joint.multiplier, part)]


def _quaternion(tree: RobotTree, i: int, values: Sequence[Any]) -> list[Any]:
    """The values of a free base's quaternion coordinates; of another joint none."""
    return [values[column] for column in tree.columns[i][3:]]


def _joint_column(
    M: list[list[Any]], tree: RobotTree, chain: Sequence[JointStep], i: int, composite: Moments, q: Sequence[Any]
) -> None:
    """Adds what a joint's unit acceleration needs at itself and at every joint towards the base."""
    step = chain[i]
    own, h = tree.columns[i][0], composite.first
    if step.joint.kind == "revolute":
        moment = Triple(minus(0.0, composite.xz), minus(0.0, composite.yz), composite.inertia_about_z)
        wrench = Wrench(Triple(minus(0.0, h.y), h.x, 0.0), moment)
    else:
        wrench = Wrench(Triple(0.0, 0.0, composite.m), Triple(h.y, minus(0.0, h.x), 0.0))
    scale, at = step.joint.multiplier, i
    (part,) = _shares(wrench, step, ())
    M[own][own] = plus(M[own][own], times(scale, part))
    while chain[at].joint.parent != WORLD:
        wrench, at = wrench.up(chain[at]), chain[at].joint.parent
        shares = _shares(wrench, chain[at], _quaternion(tree, at, q))
        for column, share in zip(tree.columns[at], shares, strict=True):
            part = times(scale, share)
            M[own][column] = plus(M[own][column], part)
            M[column][own] = plus(M[column][own], part)


def _free_base(
    M: list[list[Any]], columns: Sequence[int], composite: Moments, step: JointStep, q: Sequence[Any]
) -> None:
    place, p = columns[:3], [q[column] for column in columns[3:]]
    spins, inertia = spin_columns(p), composite.inertia
    stretch = times(8.0 / 3.0, plus(plus(composite.xx, composite.yy), composite.zz))
    for column in place:
        M[column][column] = composite.m
    for k, spin in enumerate(spins):
        force, moment = step.R(spin.cross(composite.first)), inertia(spin)
        for column, part in zip(place, (force.x, force.y, force.z), strict=True):
            M[column][columns[3 + k]] = M[columns[3 + k]][column] = part
        for other in range(k + 1):
            part = plus(spins[other].dot(moment), times(stretch, p[other] * p[k]))
            M[columns[3 + k]][columns[3 + other]] = M[columns[3 + other]][columns[3 + k]] = part


def _matrix(rows: Sequence[Sequence[Any]]) -> Array:
    flat = as_array([value for row in rows for value in row])
    return flat.reshape(len(rows), len(rows))
