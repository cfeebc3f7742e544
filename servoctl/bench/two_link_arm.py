"""A two-link arm in a vertical plane, the machine of the identification benchmark."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class TwoLinkArm(Plant):
    """Two hinges with a motor each; q2 is the angle between the links, gravity acts along -y."""

    m1: float = 2.0  # [kg]
    m2: float = 1.5  # [kg]
    I1: float = 0.3  # [kg m^2] about the centre of mass
    I2: float = 0.15  # [kg m^2]
    l1: float = 0.7  # [m] first hinge to second hinge
    c1: float = 0.35  # [m] first hinge to centre of mass
    c2: float = 0.3  # [m] second hinge to centre of mass
    g: float = 9.81  # [m/s^2]

    coordinates: ClassVar = {"q1": "rad", "q2": "rad"}
    actuators: ClassVar = {"u1": "N m", "u2": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        outer = self.I2 + self.m2 * self.c2**2
        coupling = self.m2 * self.l1 * self.c2 * np.cos(q[1])
        inner = self.I1 + self.m1 * self.c1**2 + self.m2 * self.l1**2
        return np.array([[inner + outer + 2 * coupling, outer + coupling], [outer + coupling, outer]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        h = self.m2 * self.l1 * self.c2 * np.sin(q[1])
        second = self.m2 * self.g * self.c2 * np.cos(q[0] + q[1])
        first = (self.m1 * self.c1 + self.m2 * self.l1) * self.g * np.cos(q[0]) + second
        return np.array([h * (2 * v[0] * v[1] + v[1] ** 2) - first, -h * v[0] ** 2 - second])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)
