"""A driven cart that carries a double pendulum; only the cart is driven."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import servoctl as sc


@dataclass(frozen=True)
class CartDoublePendulum(sc.LagrangianPlant):
    """Angles from the upward vertical; point masses at the ends of the rods."""

    m: float = 1.0  # [kg] cart
    m1: float = 0.3  # [kg]
    m2: float = 0.3  # [kg]
    l1: float = 0.5  # [m]
    l2: float = 0.5  # [m]
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"x": "m", "theta1": "rad", "theta2": "rad"}
    actuators: ClassVar = {"F": "N"}

    def kinetic_energy(self, q, v, t):
        vx1, vy1 = v[0] + self.l1 * np.cos(q[1]) * v[1], -self.l1 * np.sin(q[1]) * v[1]
        vx2, vy2 = vx1 + self.l2 * np.cos(q[2]) * v[2], vy1 - self.l2 * np.sin(q[2]) * v[2]
        return (self.m * v[0] ** 2 + self.m1 * (vx1**2 + vy1**2) + self.m2 * (vx2**2 + vy2**2)) / 2

    def potential_energy(self, q, t):
        h1 = self.l1 * np.cos(q[1])
        return self.g * (self.m1 * h1 + self.m2 * (h1 + self.l2 * np.cos(q[2])))

    def actuation(self, q, t):
        return np.array([[1.0], [0.0], [0.0]])
