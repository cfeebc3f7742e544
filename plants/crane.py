"""An overhead crane with small sway: the trolley is driven, the task is the position of the load."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Crane(Plant):
    """(M + m) s'' + m l theta'' = F, m l s'' + m l^2 theta'' = -m g l theta: linear in a small sway angle theta.

    The load is at s + l theta. The force does not appear in its acceleration, but in its 4th derivative. Without the
    linearisation the force also acts on the acceleration, through the tension of the rope, unless the load hangs
    straight down.
    """

    M: float = 20.0  # [kg] trolley
    m: float = 50.0  # [kg] load
    l: float = 4.0  # [m] rope  # noqa: E741
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"s": "m", "theta": "rad"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        coupling = self.m * self.l
        return np.array([[self.M + self.m, coupling], [coupling, coupling * self.l]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0 * q[0], -self.m * self.g * self.l * q[1]])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0]])

    def energy(self, q: Array, v: Array, t: float) -> float:
        load = self.m * (v[0] + self.l * v[1]) ** 2 / 2
        energy: float = self.M * v[0] ** 2 / 2 + load + self.m * self.g * self.l * q[1] ** 2 / 2
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        return {"rope": np.array([[q[0], 0.0], [q[0] + self.l * q[1], -self.l]])}
