"""A stand-in for a robot: bodies that move freely in space, whose frames are known from their poses alone.

Jacobians and drifts come from the poses by automatic differentiation, so they share nothing with the robots' own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import servoctl
from servoctl.engine.kernel import directional, jacobian
from servoctl.errors import PlantError, remedy
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.types import Array

PARTS = {"x": "m", "y": "m", "z": "m", "a": "rad", "b": "rad", "c": "rad"}


def rotation(a: Any, b: Any, c: Any) -> Array:
    """Rx(a) Ry(b) Rz(c)."""
    (ca, cb, cc), (sa, sb, sc) = ([np.cos(x) for x in (a, b, c)], [np.sin(x) for x in (a, b, c)])
    x = np.array([[1.0, 0.0, 0.0], [0.0, ca, -sa], [0.0, sa, ca]])
    y = np.array([[cb, 0.0, sb], [0.0, 1.0, 0.0], [-sb, 0.0, cb]])
    z = np.array([[cc, -sc, 0.0], [sc, cc, 0.0], [0.0, 0.0, 1.0]])
    return x @ y @ z


@dataclass(frozen=True)
class FreeBodies(servoctl.Plant):
    """Bodies `one`, `two`, ...; every coordinate has an actuator and the mass matrix is the identity."""

    count: int = 2
    reach: float = 0.4

    @property
    def names(self) -> list[str]:
        return ["one", "two", "three"][: self.count]

    @property
    def coordinates(self) -> Mapping[str, str]:
        return {f"{name}_{part}": unit for name in self.names for part, unit in PARTS.items()}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {f"u_{name}": "N" for name in self.coordinates}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(len(q))

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(len(q))

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(len(q))

    def pose(self, name: str, q: Array) -> tuple[Array, Array]:
        """Rotation and position of a body; of the world if it is `world`."""
        if name == "world":
            return np.eye(3), np.zeros(3)
        if name not in self.names:
            raise PlantError(f"there is no frame '{name}' ({remedy(name, ['world', *self.names])})")
        part = q[6 * self.names.index(name) :][:6]
        return rotation(*part[3:]), part[:3]

    def frame_motions(self, names: Sequence[str], q: Array, v: Array) -> dict[str, FrameMotion]:
        return {name: self._motion(name, q, v) for name in names}

    def centre_of_mass(self, q: Array, v: Array) -> PointMotion:
        """Of bodies of equal mass."""
        motions = [self._motion(name, q, v) for name in self.names]
        mean = {
            field: sum((getattr(motion, field) for motion in motions), start=0.0) / self.count
            for field in ("position", "linear", "velocity", "drift")
        }
        return PointMotion(**mean)

    def _motion(self, name: str, q: Array, v: Array) -> FrameMotion:
        R, p = self.pose(name, q)
        nothing, still = np.zeros((3, len(q))), np.zeros(3)
        if np.asarray(q).dtype != object or name == "world":
            return FrameMotion(p, nothing, still, still, R, nothing, still, still)
        turns = jacobian(R.ravel(), q)
        J_w = np.array([vee(turns[:, i].reshape(3, 3) @ R.T) for i in range(len(q))], dtype=object).T
        J_v = jacobian(p, q)
        velocity, w = J_v @ v, J_w @ v
        return FrameMotion(p, J_v, velocity, directional(velocity, q, v), R, J_w, w, directional(w, q, v))


def vee(A: Array) -> Array:
    return np.array([A[2, 1], A[0, 2], A[1, 0]])
