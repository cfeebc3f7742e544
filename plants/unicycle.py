"""A unicycle: a driven and steered wheel that does not slip sideways."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Unicycle(Plant):
    """Axle at (x, y), heading psi, centre of mass at a distance c ahead of the axle.

    With the forward speed s: m (s' - c psi'^2) = F and (J + m c^2) psi'' + m c s psi' = tau. A point at a distance d
    ahead of the axle can follow any path; if it moves with the speed V along x, psi' = -V / d sin(psi).
    """

    m: float = 10.0  # [kg]
    J: float = 0.6  # [kg m^2] about the centre of mass
    c: float = 0.1  # [m] axle to centre of mass
    coordinates: ClassVar = {"x": "m", "y": "m", "psi": "rad"}
    actuators: ClassVar = {"F": "N", "tau": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        x, y = self.m * self.c * np.array([-np.sin(q[2]), np.cos(q[2])])
        return np.array([[self.m, 0.0, x], [0.0, self.m, y], [x, y, self.J + self.m * self.c**2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        pull = self.m * self.c * v[2] ** 2
        return np.array([pull * np.cos(q[2]), pull * np.sin(q[2]), 0.0])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[np.cos(q[2]), 0.0], [np.sin(q[2]), 0.0], [0.0, 1.0]])

    def passive_rates(self, q: Array, v: Array, t: float) -> dict[str, Array]:
        return {"roll": -np.sin(q[2]) * v[0] + np.cos(q[2]) * v[1]}

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = np.dot(v, self.mass_matrix(q, t) @ v) / 2
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        axle, ahead = q[:2], np.array([np.cos(q[2]), np.sin(q[2])])
        side = np.array([-ahead[1], ahead[0]])
        return {
            "axle": np.stack([axle - 0.15 * side, axle + 0.15 * side, axle]),
            "frame": np.stack([axle, axle + 0.5 * ahead]),
        }
