"""Small machines on drives: a vertical axis, a hanging link, slides side by side."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Lift(Plant):
    """A mass on a vertical slide: m x'' = F - m g."""

    m: float = 40.0  # [kg]
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.m * self.g])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0]])


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
class Slides(Plant):
    """Three masses that slide alone on the level."""

    m: float = 4.0  # [kg]
    coordinates: ClassVar = {"x": "m", "y": "m", "z": "m"}
    actuators: ClassVar = {"a": "N", "b": "N", "c": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.diag(np.array([self.m, self.m, self.m]))

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(3)

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(3)
