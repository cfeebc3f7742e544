"""What the machine demands of drives that brake by themselves.

Design: on a real machine rotors and gears keep axes apart, and each drive is tuned to its own. Models often leave them
out, so here the drives that brake share one inverse model: each joint then has the acceleration that its drive wants,
while the other joints move freely under the torques that they have.
"""

from collections.abc import Callable

import numpy as np

from hil.emulator.contacts import RANK_TOLERANCE
from servoctl.types import Array


class Loads:
    """Torques for wanted accelerations, by `q'' = Phi (Q + B u)`.

    Args:
        terms: Time [ns] -> mass matrix, rows of the motors, rows of the passive constraints, and force, now.
        torques: Time [ns] -> torques at the joints now, shape (m,) [actuator units].
    """

    def __init__(self, terms: Callable[[int], tuple[Array, ...]], torques: Callable[[int], Array]) -> None:
        self._terms, self._torques = terms, torques
        self._wanted: dict[int, float] = {}
        self._now = -1

    def begin(self) -> None:
        """Forgets all drives, as at power-on."""
        self._wanted.clear()
        self._now = -1

    def release(self, index: int) -> None:
        """Notes that a drive does not brake any more."""
        self._wanted.pop(index, None)

    def inertia(self, index: int, now: int) -> float:
        """Inertia at a joint while the others are free [actuator unit per its acceleration]; 0 if it is blocked."""
        self._update(now)
        mobilities = (self._motors**2).sum(0)
        return 1.0 / float(mobilities[index]) if mobilities[index] > RANK_TOLERANCE * mobilities.max() else 0.0

    def torque(self, index: int, acceleration: float, now: int) -> float:
        """Torque or force at a joint whose drive wants an acceleration from now on [actuator unit]."""
        self._wanted[index] = acceleration
        self._update(now)
        braking = list(self._wanted)
        others = self._torques(now)
        others[braking] = 0.0
        motors = self._motors[:, braking]
        missing = list(self._wanted.values()) - motors.T @ (self._force + self._motors @ others)
        torques = np.linalg.pinv(motors.T @ motors, rcond=RANK_TOLERANCE, hermitian=True) @ missing
        return float(torques[braking.index(index)])

    def _update(self, now: int) -> None:
        """Takes the terms of this moment, in the metric of the mass matrix, without what the constraints bear."""
        if self._now == now:
            return
        M, B, A, force = self._terms(now)
        L = np.linalg.cholesky(M)
        free = np.linalg.solve(L, np.column_stack([B.T, force]))
        if len(A):
            held = np.linalg.solve(L, A.T)
            free -= held @ (np.linalg.pinv(held, rcond=RANK_TOLERANCE) @ free)
        self._motors, self._force, self._now = free[:, :-1], free[:, -1], now
