"""A two-link arm in a vertical plane with torsional springs between motors and links.

`D(q) q'' + C(q,v) v + G(q) + K (q - p) = 0` for the link angles q, `J p'' - K (q - p) = u` for the motor angles p.
Angles are zero if the arm hangs down; the angle of the second link is relative to the first.

Source: Zhao et al. 2018, (66)-(68). Corrected: c11 of (68) has m2, not m1.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class ElasticLinks(Plant):
    """The links and their springs, for both plants of this file."""

    m1: float = 1.0  # [kg]
    m2: float = 1.0  # [kg]
    l1: float = 1.0  # [m] length of the first link
    lc1: float = 0.5  # [m] joint to centre of mass
    lc2: float = 0.5  # [m]
    I1: float = 1.0  # [kg m^2] about the centre of mass
    I2: float = 1.0  # [kg m^2]
    K1: float = 1.0  # [N m/rad] stiffness of the first joint
    K2: float = 1.0  # [N m/rad]
    g: float = 9.81  # [m/s^2]

    def link_mass_matrix(self, q: Array) -> Array:
        """D(q) of the two links, shape (2, 2)."""
        coupling = self.m2 * self.l1 * self.lc2 * np.cos(q[1])
        d22 = self.m2 * self.lc2**2 + self.I2
        d12 = d22 + coupling
        d11 = d22 + 2 * coupling + self.m2 * self.l1**2 + self.m1 * self.lc1**2 + self.I1
        return np.array([[d11, d12], [d12, d22]])

    def link_coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C(q, v) of the two links, shape (2, 2), with D' - 2 C skew-symmetric."""
        h = self.m2 * self.l1 * self.lc2 * np.sin(q[1])
        return np.array([[-h * v[1], -h * (v[0] + v[1])], [h * v[0], 0.0]])

    def link_force(self, q: Array, v: Array) -> Array:
        """-C(q, v) v - G(q) of the two links [N m], shape (2,)."""
        first = (self.m1 * self.lc1 + self.m2 * self.l1) * self.g * np.sin(q[0])
        second = self.m2 * self.lc2 * self.g * np.sin(q[0] + q[1])
        force: Array = -self.link_coriolis_matrix(q, v) @ v - np.array([first + second, second])
        return force

    @abstractmethod
    def twist(self, q: Array) -> Array:
        """Twist angle of each spring [rad], shape (2,)."""

    def spring_torque(self, q: Array) -> Array:
        """K times the twist [N m], shape (2,)."""
        torque: Array = np.array([self.K1, self.K2]) * self.twist(q)
        return torque

    def energy(self, q: Array, v: Array, t: float) -> float:
        height1 = -self.lc1 * np.cos(q[0])
        height2 = -self.l1 * np.cos(q[0]) - self.lc2 * np.cos(q[0] + q[1])
        kinetic = np.dot(v, self.mass_matrix(q, t) @ v) / 2
        elastic = np.dot(self.spring_torque(q), self.twist(q)) / 2
        energy: float = kinetic + elastic + self.g * (self.m1 * height1 + self.m2 * height2)
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        elbow = self.l1 * np.array([np.sin(q[0]), -np.cos(q[0])])
        tip = elbow + 2 * self.lc2 * np.array([np.sin(q[0] + q[1]), -np.cos(q[0] + q[1])])  # uniform second link
        return {"link1": np.stack([np.zeros(2), elbow]), "link2": np.stack([elbow, tip])}


@dataclass(frozen=True)
class FlexibleJointArm(ElasticLinks):
    """Links and motors: four coordinates, two torques.

    `inputs: motor` is the real arm: its motors act on the links only through the springs. With `inputs: link` the
    torques act on the links; in this reading of the source its law works.
    """

    J1: float = 1.0  # [kg m^2] first motor, on the joint's side
    J2: float = 1.0  # [kg m^2]
    inputs: str = "motor"

    coordinates: ClassVar = {"link1": "rad", "link2": "rad", "motor1": "rad", "motor2": "rad"}
    actuators: ClassVar = {"tau1": "N m", "tau2": "N m"}

    def __post_init__(self) -> None:
        if self.inputs not in ("motor", "link"):
            raise PlantError(f"FlexibleJointArm: inputs: expected 'motor' or 'link', got {self.inputs!r}")

    def twist(self, q: Array) -> Array:
        return q[:2] - q[2:]

    def mass_matrix(self, q: Array, t: float) -> Array:
        M = np.zeros((4, 4))
        M[:2, :2] = self.link_mass_matrix(q)
        M[2, 2] = self.J1
        M[3, 3] = self.J2
        return M

    def force(self, q: Array, v: Array, t: float) -> Array:
        spring = self.spring_torque(q)
        return np.concatenate([self.link_force(q[:2], v[:2]) - spring, spring])

    def actuation(self, q: Array, t: float) -> Array:
        driven = 2 if self.inputs == "motor" else 0
        B = np.zeros((4, 2))
        B[driven, 0] = 1.0
        B[driven + 1, 1] = 1.0
        return B


@dataclass(frozen=True)
class FlexibleJointLinks(ElasticLinks):
    """The links alone, `D q'' + C v + G + K q = u`: the input is the spring torque `u = K p` of the motor angles.

    The law of the source is exact for this plant, as a virtual control: the motor angles must follow `p = K^-1 u`.
    """

    coordinates: ClassVar = {"link1": "rad", "link2": "rad"}
    actuators: ClassVar = {"u1": "N m", "u2": "N m"}

    def twist(self, q: Array) -> Array:
        return q

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.link_mass_matrix(q)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return self.link_force(q, v) - self.spring_torque(q)

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)
