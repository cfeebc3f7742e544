"""Where one frame stands in another, as numbers of a robot's structure.

Design: rotations are snapped, so that an entry within 1e-12 of -1, 0 or 1 becomes that number and its products vanish
from compiled code. Angles that a file rounds to 1.5708 stay as written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
