"""A planar arm with two links, in parameters that it is linear in, and one in those of a data sheet."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

import servoctl as sc
from servoctl.types import Array


@dataclass(frozen=True)
class LinearArm(sc.Plant):
    """First moments and inertias about the joints; links of 0.7 m; `g` 0: horizontal."""

    m1: float = 2.0
    x1: float = 0.7
    y1: float = 0.05
    I1: float = 0.3
    m2: float = 1.5
    x2: float = 0.4
    y2: float = -0.04
    I2: float = 0.15
    g: float = 9.81
    coordinates = MappingProxyType({"q1": "rad", "q2": "rad"})
    actuators = MappingProxyType({"u1": "N m", "u2": "N m"})

    def mass_matrix(self, q: Array, t: float) -> Array:
        coupling = 0.7 * (self.x2 * np.cos(q[1]) - self.y2 * np.sin(q[1]))
        own = self.I1 + 0.49 * self.m2 + self.I2
        return np.array([[own + 2 * coupling, self.I2 + coupling], [self.I2 + coupling, self.I2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        h = 0.7 * (self.x2 * np.sin(q[1]) + self.y2 * np.cos(q[1]))
        both = q[0] + q[1]
        second = self.g * (self.x2 * np.cos(both) - self.y2 * np.sin(both))
        first = self.g * ((self.x1 + 0.7 * self.m2) * np.cos(q[0]) - self.y1 * np.sin(q[0])) + second
        return np.array([h * (2 * v[0] * v[1] + v[1] ** 2) - first, -h * v[0] ** 2 - second])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)


@dataclass(frozen=True)
class Arm(LinearArm):
    """Masses, lengths to the centres, inertias about the centres."""

    c1: float = 0.35
    c2: float = 0.3
    coordinates = MappingProxyType({"q1": "rad", "q2": "rad"})
    actuators = MappingProxyType({"u1": "N m", "u2": "N m"})

    def linear(self) -> LinearArm:
        """The same arm in its linear parameters."""
        return LinearArm(
            self.m1, self.m1 * self.c1, 0.0, self.I1 + self.m1 * self.c1**2,
            self.m2, self.m2 * self.c2, 0.0, self.I2 + self.m2 * self.c2**2, self.g,
        )  # fmt: skip

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.linear().mass_matrix(q, t)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return self.linear().force(q, v, t)
