"""Two masses joined by a spring, with a force on the first: the smallest underactuated plant."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class TwoMassSpring(Plant):
    """m1 x1'' = k s + F, m2 x2'' = -k s, with the stretch s = x2 - x1 - l.

    The spring is a given force. The source counts it as a constraint force; the sum of all forces is the same.

    Source: Liu et al. 2015, (36)-(38). Corrected: the last entry of (39) is m2, not x2.
    """

    m1: float = 1.0  # [kg] the driven mass
    m2: float = 2.0  # [kg]
    k: float = 10.0  # [N/m]
    l: float = 0.5  # [m] length of the relaxed spring  # noqa: E741

    coordinates: ClassVar = {"x1": "m", "x2": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m1, 0.0], [0.0, self.m2]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        tension = self.k * self._stretch(q)
        return np.array([tension, -tension])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0]])

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = (self.m1 * v[0] ** 2 + self.m2 * v[1] ** 2 + self.k * self._stretch(q) ** 2) / 2
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        side = 0.2 * self.l
        square = side * np.array([[-0.5, 0.0], [0.5, 0.0], [0.5, 1.0], [-0.5, 1.0], [-0.5, 0.0]])
        along, across = np.linspace(0.0, 1.0, 12), np.array([0.0] + 5 * [0.25, -0.25] + [0.0])
        start, end = q[0] + side / 2, q[1] - side / 2
        return {
            "mass1": square + np.array([q[0], 0.0]),
            "spring": np.stack([start + (end - start) * along, side * (0.5 + across)], axis=1),
            "mass2": square + np.array([q[1], 0.0]),
        }

    def _stretch(self, q: Array) -> float:
        stretch: float = q[1] - q[0] - self.l
        return stretch
