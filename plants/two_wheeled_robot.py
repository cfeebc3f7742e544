"""A robot balances on two wheels: a base that rolls without slipping sideways, and a body that tilts on its axle."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class TwoWheeledRobot(Plant):
    """Axle at (x, y), heading psi, tilt theta of the body; three motions, since the axle has no sideways speed.

    The motors sit on the body. They turn the wheels against it, so the two torques drive, turn and tilt:
    with the forward speed s and p = m l, all small,

        (m0 + m) s' + p theta'' = (left + right) / r,  p s' + (m l^2 + I) theta'' = p g theta - (left + right),

    where m0 = mb + 2 Jw / r^2. Without the torques c1 s' + c2 theta'' = p g theta, c1 = r (m0 + m) + p and
    c2 = m l^2 + I + r p. A task that gives the speed of a point at the height h, s + h theta', with a share k of the
    tilt, leaves (c1 h - c2) theta'' + c1 k theta' + p g theta = 0: the tilt is stable if h > c2 / c1 and k > 0.
    """

    mb: float = 4.0  # [kg] base and wheels
    Jz: float = 0.1  # [kg m^2] base and wheels about the vertical
    Jw: float = 0.02  # [kg m^2] one wheel about the axle
    r: float = 0.1  # [m] radius of the wheels
    d: float = 0.25  # [m] half the distance between the wheels
    m: float = 10.0  # [kg] body
    I: float = 0.8  # [kg m^2] body about its centre of mass, a slender rod  # noqa: E741
    l: float = 0.5  # [m] axle to the centre of mass  # noqa: E741
    g: float = 9.81  # [m/s^2]
    coordinates: ClassVar = {"x": "m", "y": "m", "psi": "rad", "theta": "rad"}
    actuators: ClassVar = {"left": "N m", "right": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        heading, side, S, C = _axes(q)
        xy = (self.mb + 2.0 * self.Jw / self.r**2 + self.m) * np.eye(2)
        coupling = self.m * self.l * np.stack([S * side, C * heading], axis=1)
        tilt = self.m * self.l**2 + self.I
        yaw = self.Jz + 2.0 * self.Jw * (self.d / self.r) ** 2 + tilt * S**2
        return np.block([[xy, coupling], [coupling.T, np.array([[yaw, 0.0], [0.0, tilt]])]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        heading, side, S, C = _axes(q)
        _, _, turning, tilting = v
        push = self.m * self.l * (S * (turning**2 + tilting**2) * heading - 2.0 * C * turning * tilting * side)
        moment = (self.m * self.l**2 + self.I) * S * C
        weight = self.m * self.g * self.l * S
        return np.array([push[0], push[1], -2.0 * moment * turning * tilting, moment * turning**2 + weight])

    def actuation(self, q: Array, t: float) -> Array:
        """Each torque turns a wheel forwards and the body backwards."""
        (c, s), *_ = _axes(q)
        return np.array([[c, c], [s, s], [-self.d, self.d], [-self.r, -self.r]]) / self.r

    def passive_rates(self, q: Array, v: Array, t: float) -> dict[str, Array]:
        _, (a, b), *_ = _axes(q)
        return {"roll": a * v[0] + b * v[1]}

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = v @ self.mass_matrix(q, t) @ v / 2 + self.m * self.g * self.l * np.cos(q[3])
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        heading, side, S, C = _axes(q)
        axle = np.array([q[0], q[1], self.r])
        across, up = self.d * np.array([side[0], side[1], 0.0]), np.array([S * heading[0], S * heading[1], C])
        return {
            "axle": np.stack([axle - across, axle + across, axle]),
            "body": np.stack([axle, axle + 2.0 * self.l * up]),
        }


def _axes(q: Array) -> tuple[Array, Array, Array, Array]:
    """Unit vectors ahead and to the left, sine and cosine of the tilt."""
    c, s = np.cos(q[2]), np.sin(q[2])
    return np.array([c, s]), np.array([-s, c]), np.sin(q[3]), np.cos(q[3])
