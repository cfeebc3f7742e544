"""A mass slides on the incline of a driven car, on a spring and a damper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class MassOnCar(Plant):
    """Car at x, mass at s along an incline of angle a: its horizontal position is x + s cos a.

    The force on the car appears in the 2nd derivative of that position if a is not 0, with the internal dynamics
    `m2 sin(a)^2 s'' + d s' + k s = 0`; in the 3rd if a is 0; in the 4th if a and d are 0.

    Source: Seifried, Blajer 2013, mass-on-car system.
    """

    m1: float = 1.0  # [kg] car
    m2: float = 0.5  # [kg] mass
    k: float = 5.0  # [N/m]
    d: float = 1.0  # [N s/m]
    a: float = np.pi / 4  # [rad]
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"x": "m", "s": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        coupling = self.m2 * np.cos(self.a)
        return np.array([[self.m1 + self.m2, coupling], [coupling, self.m2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0 * q[0], -self.k * q[1] - self.d * v[1] - self.m2 * self.g * np.sin(self.a)])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0]])

    def links(self, q: Array) -> dict[str, Array]:
        x, s = q
        along = np.array([np.cos(self.a), np.sin(self.a)])
        foot = np.array([x, 0.0])
        return {"incline": np.array([foot - along, foot + along]), "mass": np.array([foot, foot + s * along])}
