"""A particle in a vertical plane, in polar coordinates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class PolarParticle(Plant):
    """m r'' = m r theta'^2 - m g sin(theta) + Fr, m r^2 theta'' = -2 m r r' theta' - m g r cos(theta) + Ftheta.

    The source divides the second equation by r^2 and so takes `M = m I`. The free motion is the same, but its force on
    theta is the generalized force divided by r^2, and where rows or inputs are fewer than coordinates the law weighs
    the two directions wrongly. `published_metric` selects that form; everywhere r > 0.

    Source: Zhao et al. 2018, (7)-(9), (51).
    """

    m: float = 1.0  # [kg]
    g: float = 9.81  # [m/s^2]
    published_metric: bool = False

    coordinates: ClassVar = {"r": "m", "theta": "rad"}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {"Fr": "N", "Ftheta": "N/m" if self.published_metric else "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m, 0.0], [0.0, self.m * self._metric(q)]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        r, theta = q
        radial = r * v[1] ** 2 - self.g * np.sin(theta)
        angular = -(2 * v[0] * v[1] + self.g * np.cos(theta)) / r
        return self.m * np.array([radial, self._metric(q) * angular])

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)

    def motor_positions(self, q: Array) -> None:
        if self.published_metric:
            raise PlantError(
                "PolarParticle.motor_positions: with published_metric Ftheta [N/m] has no conjugate displacement "
                "(its power is r^2 Ftheta theta'; set published_metric: false)"
            )

    def energy(self, q: Array, v: Array, t: float) -> float:
        r, theta = q
        energy: float = self.m * ((v[0] ** 2 + (r * v[1]) ** 2) / 2 + self.g * r * np.sin(theta))
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        return {"ray": np.array([[0.0, 0.0], [q[0] * np.cos(q[1]), q[0] * np.sin(q[1])]])}

    def _metric(self, q: Array) -> float:
        """Weight of theta'^2 in the kinetic energy, relative to m/2: r^2 [m^2], or the 1 of the source."""
        weight: float = 1.0 if self.published_metric else q[0] ** 2
        return weight
