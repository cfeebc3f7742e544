"""Three masses in a row with two springs between them and a force on the first."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class ThreeMasses(Plant):
    """m1 x1'' = k1 s1 + F, m2 x2'' = k2 s2 - k1 s1, m3 x3'' = -k2 s2; s_i = x_{i+1} - x_i - l_i.

    The force appears in the 2nd derivative of x1, the 4th of x2 and the 6th of x3.
    """

    m1: float = 1.0  # [kg]
    m2: float = 1.5  # [kg]
    m3: float = 2.0  # [kg]
    k1: float = 10.0  # [N/m]
    k2: float = 20.0  # [N/m]
    l1: float = 0.5  # [m] length of the unloaded springs
    l2: float = 0.5  # [m]
    coordinates: ClassVar = {"x1": "m", "x2": "m", "x3": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.diag([self.m1, self.m2, self.m3])

    def force(self, q: Array, v: Array, t: float) -> Array:
        first, second = self._springs(q)
        return np.array([first, second - first, -second])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0], [0.0], [0.0]])

    def energy(self, q: Array, v: Array, t: float) -> float:
        first, second = self._springs(q)
        kinetic: float = (self.m1 * v[0] ** 2 + self.m2 * v[1] ** 2 + self.m3 * v[2] ** 2) / 2
        return kinetic + (first**2 / self.k1 + second**2 / self.k2) / 2

    def links(self, q: Array) -> dict[str, Array]:
        return {"row": np.column_stack([q, np.zeros(3)])}

    def _springs(self, q: Array) -> tuple[float, float]:
        """Tensions [N]."""
        return self.k1 * (q[1] - q[0] - self.l1), self.k2 * (q[2] - q[1] - self.l2)
