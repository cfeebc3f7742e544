"""A SCARA robot in closed form: two hinges and a wrist about vertical axes, and a vertical slide."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Scara(Plant):
    """M(q) q'' + C(q,v) v + G = tau; at q = 0 the arm points along y; q4 lifts the tool along z.

    Source: Xu, Liu 2017, (34)-(36), (39), which do not state g.
    """

    m1: float = 20.0  # [kg]
    m2: float = 15.0  # [kg]
    m3: float = 15.0  # [kg]
    m4: float = 0.5  # [kg]
    Iz1: float = 0.27  # [kg m^2] about the vertical through the centre of mass
    Iz2: float = 0.31  # [kg m^2]
    Iz3: float = 0.02  # [kg m^2]
    Iz4: float = 0.0001  # [kg m^2]
    l0: float = 0.0  # [m] height of the tool at q4 = 0
    l1: float = 0.2  # [m] first hinge to second hinge
    l2: float = 0.25  # [m] second hinge to wrist
    r1: float = 0.1  # [m] first hinge to centre of mass
    r2: float = 0.125  # [m] second hinge to centre of mass
    g: float = 9.81  # [m/s^2]

    coordinates: ClassVar = {"q1": "rad", "q2": "rad", "q3": "rad", "q4": "m"}
    actuators: ClassVar = {"tau1": "N m", "tau2": "N m", "tau3": "N m", "F4": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        carried = self.m3 + self.m4
        coupling = self._gamma() * np.cos(q[1])
        alpha = self.Iz1 + self.m1 * self.r1**2 + (self.m2 + carried) * self.l1**2
        beta = self.Iz2 + self.Iz3 + self.Iz4 + carried * self.l2**2 + self.m2 * self.r2**2
        delta = self.Iz3 + self.Iz4
        return np.array(
            [
                [alpha + beta + 2 * coupling, beta + coupling, delta, 0.0],
                [beta + coupling, beta, delta, 0.0],
                [delta, delta, delta, 0.0],
                [0.0, 0.0, 0.0, self.m4],
            ]
        )

    def coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C(q, v), shape (4, 4), with M' - 2 C skew-symmetric."""
        h = self._gamma() * np.sin(q[1])
        C = np.zeros((4, 4))
        C[0, 0] = -h * v[1]
        C[0, 1] = -h * (v[0] + v[1])
        C[1, 0] = h * v[0]
        return C

    def force(self, q: Array, v: Array, t: float) -> Array:
        force: Array = np.array([0.0, 0.0, 0.0, -self.m4 * self.g]) - self.coriolis_matrix(q, v) @ v
        return force

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(4)

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = np.dot(v, self.mass_matrix(q, t) @ v) / 2 + self.m4 * self.g * (self.l0 + q[3])
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        elbow = self.l1 * np.array([-np.sin(q[0]), np.cos(q[0]), 0.0])
        wrist = elbow + self.l2 * np.array([-np.sin(q[0] + q[1]), np.cos(q[0] + q[1]), 0.0])
        plane = np.array([0.0, 0.0, self.l0])  # the arm is drawn at the height of the tool at q4 = 0
        return {
            "link1": np.stack([np.zeros(3), elbow]) + plane,
            "link2": np.stack([elbow, wrist]) + plane,
            "slide": np.stack([wrist, wrist + np.array([0.0, 0.0, q[3]])]) + plane,
        }

    def _gamma(self) -> float:
        """Coupling of the two hinges at q2 = 0 [kg m^2]."""
        return self.l1 * (self.l2 * (self.m3 + self.m4) + self.r2 * self.m2)
