"""Two carts joined by a spring, each pushed by its own motor: the machine that faults are tried on."""

from dataclasses import dataclass

import numpy as np

from servoctl.types import Array
from tests.small_plants import Masses


@dataclass(frozen=True)
class Carts(Masses):
    """m x1'' = k s + a, m x2'' = -k s + b, with the stretch s = x2 - x1 - l."""

    names: str = "x1 x2"
    forces: str = "a b"
    k: float = 5.0  # [N/m]
    l: float = 0.5  # [m] length of the relaxed spring  # noqa: E741

    def force(self, q: Array, v: Array, t: float) -> Array:
        tension = self.k * (q[1] - q[0] - self.l)
        return np.array([tension, -tension])
