"""A small machine on drives: a hanging link."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Link(Plant):
    """A link that hangs at phi = 0: m l^2 phi'' = tau - m g l sin(phi)."""

    m: float = 5.0  # [kg]
    l: float = 0.4  # [m]  # noqa: E741
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"phi": "rad"}
    actuators: ClassVar = {"tau": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m * self.l**2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.m * self.g * self.l * np.sin(q[0])])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0]])
