"""Small machines on drives: a hanging link, and a mass that two motors carry together."""

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


@dataclass(frozen=True)
class Gantry(Plant):
    """A mass on two motors: m x'' = A + B - weight."""

    m: float = 4.0  # [kg]
    weight: float = 30.0  # [N]
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"A": "N", "B": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.weight])

    def actuation(self, q: Array, t: float) -> Array:
        return np.ones((1, 2))
