"""The step from a body to the one that a joint moves, at a state; and the quaternion of a free base.

    p_parent = R Rz(q) p_child + r            revolute
    p_parent = R (p_child + z q) + r          prismatic
    p_world  = R(p) p_child + x               free, p = (w, x, y, z) a unit quaternion

Design: the angular velocity counts as `2 E(p) p'`, so `w' = 2 E(p) p''` without further terms, because `E(p') p' = 0`;
this holds on |p| = 1, where a passive row keeps p. R(p) divides by |p|^2, so it is a rotation for every p, and the mass
matrix is positive definite there too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.mechanics.spatial.model import RobotTree, TreeJoint
from servoctl.mechanics.spatial.scalars import ZERO, Matrix, Triple, plus, scalars, sine_cosine, times
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
