"""A joint module: a motor turns a link in a vertical plane through a harmonic drive, which winds up like a spring."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class HarmonicDrive(Plant):
    """J q'' + m g l sin(q) = T,  Jw p'' = tau - T / N,  T = K2 e - (K2 - K1) w e / sqrt(e^2 + w^2),  e = p / N - q.

    q is the angle of the link, p that of the motor, e the twist. Its stiffness grows from K1 to K2. The
    rotor is no part of Jw: give it as `plant.armature`. The motor acts on the link in the 4th derivative of its angle.
    """

    J: float = 0.5  # [kg m^2] link about its joint
    m: float = 5.0  # [kg] link
    l: float = 0.3  # [m] joint to the centre of mass  # noqa: E741
    Jw: float = 1e-5  # [kg m^2] wave generator
    N: float = 100.0  # [-] ratio
    K1: float = 8e3  # [N m/rad]
    K2: float = 1.6e4  # [N m/rad]
    w: float = 1e-3  # [rad]
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"link": "rad", "motor": "rad"}
    actuators: ClassVar = {"tau": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.J, 0.0], [0.0, self.Jw]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        e = self.twist(q)
        torque = e * (self.K2 - (self.K2 - self.K1) * self.w / np.sqrt(e**2 + self.w**2))
        return np.array([torque - self.m * self.g * self.l * np.sin(q[0]), -torque / self.N])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[0.0], [1.0]])

    def twist(self, q: Array) -> float:
        """Twist of the flexspline, seen from the link [rad]."""
        twist: float = q[1] / self.N - q[0]
        return twist

    def energy(self, q: Array, v: Array, t: float) -> float:
        e = self.twist(q)
        wound = self.K2 * e**2 / 2 - (self.K2 - self.K1) * self.w * np.sqrt(e**2 + self.w**2)
        weight = -self.m * self.g * self.l * np.cos(q[0])
        energy: float = (self.J * v[0] ** 2 + self.Jw * v[1] ** 2) / 2 + wound + weight
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        tip, hub = (np.array([np.sin(angle), -np.cos(angle)]) for angle in (q[0], q[1] / self.N))
        return {"link": np.stack([np.zeros(2), 2.0 * self.l * tip]), "drive": np.stack([np.zeros(2), 0.2 * hub])}
