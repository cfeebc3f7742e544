"""A crane with a trolley and a winch; the load hangs on a rope, which is a passive constraint and can only pull."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class CraneRope(Plant):
    """The trolley at (s, 0), the load at (x, y), and between them a rope of the length l that a winch changes.

    The constraint `rope`, `sqrt((x - s)^2 + y^2) - l = 0`, holds in both directions. Its multiplier is the force of the
    rope [N], negative while the rope pulls: `lambda <= 0` as a bound keeps the model true to a rope.
    """

    M: float = 20.0  # [kg] trolley
    m: float = 50.0  # [kg] load
    J: float = 0.2  # [kg m^2] drum of the winch
    r: float = 0.1  # [m] radius of the drum
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"s": "m", "x": "m", "y": "m", "l": "m"}
    actuators: ClassVar = {"F": "N", "tau": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.diag([self.M, self.m, self.m, self.J / self.r**2])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, 0.0, -self.m * self.g, 0.0])

    def actuation(self, q: Array, t: float) -> Array:
        """F drives the trolley; tau > 0 turns the drum so that the rope gets longer, by r per radian."""
        return np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0 / self.r]])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        s, x, y, l = q  # noqa: E741
        return {"rope": np.sqrt((x - s) ** 2 + y**2) - l}

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = v @ self.mass_matrix(q, t) @ v / 2 + self.m * self.g * q[2]
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        s, x, y, _ = q
        cart = np.array([[-0.25, 0.1], [0.25, 0.1], [0.25, -0.1], [-0.25, -0.1], [-0.25, 0.1]])
        return {"trolley": cart + np.array([s, 0.0]), "rope": np.array([[s, 0.0], [x, y]])}
