"""Two carts joined by a spring, each pushed by its own motor: the machine that faults are tried on."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Carts(Plant):
    """m x1'' = k s + a, m x2'' = -k s + b, with the stretch s = x2 - x1 - l."""

    m: float = 1.0  # [kg] each
    k: float = 5.0  # [N/m]
    l: float = 0.5  # [m] length of the relaxed spring  # noqa: E741

    coordinates: ClassVar = {"x1": "m", "x2": "m"}
    actuators: ClassVar = {"a": "N", "b": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m, 0.0], [0.0, self.m]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        tension = self.k * (q[1] - q[0] - self.l)
        return np.array([tension, -tension])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)
