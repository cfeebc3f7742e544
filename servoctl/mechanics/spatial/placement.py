"""Where one frame stands in another, as numbers of a robot's structure; moments of bodies there.

Design: rotations are snapped, so that an entry within 1e-12 of -1, 0 or 1 becomes that number and its products vanish
from compiled code. Angles that a file rounds to 1.5708 stay as written.

Moments of a body, in which inertias of links that move together add up:

    m,   h = sum m p,   J = sum m p p^T   about the origin of the body's axes

Design: J, not the inertia tensor, because it moves to other axes and adds to a motion's force with the fewest
operations. The inertia tensor about the origin is `tr(J) 1 - J`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from servoctl.types import Array

Vector3 = tuple[float, float, float]
Rows3 = tuple[Vector3, Vector3, Vector3]

SNAP = 1e-12  # entries of a rotation closer to -1, 0 or 1 than this are that number


def snapped(values: Array) -> Array:
    """The values, with those close to -1, 0 or 1 rounded to it."""
    nearest = np.round(values)
    return np.where((np.abs(values - nearest) <= SNAP) & (np.abs(nearest) <= 1.0), nearest, values) + 0.0


def rotation_rpy(roll: float, pitch: float, yaw: float) -> Array:
    """R = Rz(yaw) Ry(pitch) Rx(roll), shape (3, 3): turns about fixed axes x, y, z in this order [rad], as in URDF."""
    (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rotation_to(axis: Sequence[float]) -> Array:
    """A rotation whose third column is the unit vector along `axis`, shape (3, 3); the identity for z."""
    z = snapped(np.asarray(axis, dtype=float) / np.linalg.norm(axis))
    if abs(z[2]) < 1.0:
        # the coordinate axis most at right angles to z keeps entries simple
        x = np.cross(np.eye(3)[int(np.argmin(np.abs(z)))], z)
        x /= np.linalg.norm(x)
        return snapped(np.column_stack([x, np.cross(z, x), z]))
    return np.diag([1.0, z[2], z[2]])


class Placement(NamedTuple):
    """A frame in another one: `p_outer = rotation p_inner + xyz`."""

    rotation: Rows3 = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))  # rotation matrix, three rows
    xyz: Vector3 = (0.0, 0.0, 0.0)  # [m] position

    @classmethod
    def of(cls, rotation: Array, xyz: Sequence[float] | Array) -> "Placement":
        """From arrays of shape (3, 3) and (3,)."""
        rows = [tuple(float(x) for x in row) for row in snapped(np.asarray(rotation, dtype=float))]
        return cls((rows[0], rows[1], rows[2]), tuple(float(x) + 0.0 for x in xyz))  # type: ignore[arg-type]

    @classmethod
    def at(cls, xyz: Sequence[float] = (0.0, 0.0, 0.0), rpy: Sequence[float] = (0.0, 0.0, 0.0)) -> "Placement":
        """From a position [m] and roll, pitch, yaw [rad]."""
        return cls.of(rotation_rpy(*rpy), xyz)

    @property
    def R(self) -> Array:
        """The rotation, shape (3, 3)."""
        return np.array(self.rotation)

    @property
    def p(self) -> Array:
        """The position [m], shape (3,)."""
        return np.array(self.xyz)

    def then(self, inner: "Placement") -> "Placement":
        """A placement inside this one, seen from outside: `self o inner`."""
        return Placement.of(self.R @ inner.R, self.R @ inner.p + self.p)

    @property
    def inverse(self) -> "Placement":
        """The outer frame in the inner one."""
        return Placement.of(self.R.T, -self.R.T @ self.p)


IDENTITY = Placement()  # the same frame


@dataclass(frozen=True)
class Inertial:
    """Mass, centre of mass and inertia of a rigid link."""

    m: float  # [kg] mass
    com: Vector3 = (0.0, 0.0, 0.0)  # [m] centre of mass in link axes
    # [kg m^2] inertia about the centre of mass in link axes, (ixx, iyy, izz, ixy, ixz, iyz)
    I: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # noqa: E741


ZERO: Array = np.zeros(3)
ZERO.flags.writeable = False


def cross(a: Array, b: Array) -> Array:
    """a x b, shape (3,); of symbols NumPy's own takes three times as long."""
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def turned(vector: Array, sine: Any, cosine: Any) -> Array:
    """The vector turned about z by an angle with this sine and cosine."""
    x, y, z = vector
    return np.array([cosine * x - sine * y, sine * x + cosine * y, z])


def turned_back(vector: Array, sine: Any, cosine: Any) -> Array:
    """The vector turned about z by minus that angle."""
    x, y, z = vector
    return np.array([cosine * x + sine * y, cosine * y - sine * x, z])


@dataclass(frozen=True, slots=True)
class Moments:
    """Mass and moments about the origin of some axes."""

    m: Any = 0.0  # [kg] mass
    first: Array = field(default_factory=lambda: ZERO)  # [kg m] first moment, m times the centre of mass
    # xx, yy, zz, xy, xz, yz: [kg m^2] second moments J, such as xy = sum m x y
    xx: Any = 0.0
    yy: Any = 0.0
    zz: Any = 0.0
    xy: Any = 0.0
    xz: Any = 0.0
    yz: Any = 0.0

    @classmethod
    def of(cls, m: Any, com: Sequence[Any], inertia: Sequence[Any]) -> "Moments":
        """From a link's parameters.

        Args:
            m: Mass [kg].
            com: Centre of mass [m].
            inertia: About the centre of mass, (ixx, iyy, izz, ixy, ixz, iyz) [kg m^2].
        """
        ixx, iyy, izz, ixy, ixz, iyz = inertia
        half = 0.5 * (ixx + iyy + izz)
        return cls(0.0, ZERO, half - ixx, half - iyy, half - izz, -ixy, -ixz, -iyz) + cls(m).shifted(np.array(com))

    @property
    def J(self) -> Array:
        """The second moments, shape (3, 3)."""
        return np.array([[self.xx, self.xy, self.xz], [self.xy, self.yy, self.yz], [self.xz, self.yz, self.zz]])

    @property
    def inertia(self) -> Array:
        """The inertia tensor about the origin, shape (3, 3)."""
        xx, yy, zz = self.yy + self.zz, self.xx + self.zz, self.xx + self.yy
        return np.array([[xx, -self.xy, -self.xz], [-self.xy, yy, -self.yz], [-self.xz, -self.yz, zz]])

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def placed(self, placement: Placement) -> "Moments":
        """The moments in outer axes, in which these axes have the placement."""
        return self.placed_by(placement.R, placement.p)

    def placed_by(self, R: Array, r: Array) -> "Moments":
        """The moments in outer axes, `p_outer = R p + r`."""
        J = R @ self.J @ R.T
        return Moments(self.m, R @ self.first, J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]).shifted(r)

    def shifted(self, by: Array) -> "Moments":
        """The moments about an origin from which these axes begin at `by`: `J + h r^T + r (h + m r)^T`."""
        (x, y, z), h, far = by, self.first, self.first + by * self.m
        return Moments(
            self.m, far,
            self.xx + x * (h[0] + far[0]), self.yy + y * (h[1] + far[1]), self.zz + z * (h[2] + far[2]),
            self.xy + (h[0] * y + x * far[1]), self.xz + (h[0] * z + x * far[2]), self.yz + (h[1] * z + y * far[2]),
        )  # fmt: skip

    def turned(self, sine: Any, cosine: Any) -> "Moments":
        """The moments after a turn about z by an angle with this sine and cosine.

        With `u = s (xx - yy) + 2 c xy`: xx' = xx - s u, yy' = yy + s u, xy' = c u - xy.
        """
        u = sine * (self.xx - self.yy) + 2.0 * cosine * self.xy
        xz, yz, _ = turned(np.array([self.xz, self.yz, 0.0]), sine, cosine)
        first = turned(self.first, sine, cosine)
        return Moments(self.m, first, self.xx - sine * u, self.yy + sine * u, self.zz, cosine * u - self.xy, xz, yz)
