"""The law of the coordinated robots in NumPy, on terms that a peer gives.

    a_c = M^-1 Q + R (bhat - Ahat M^-1 Q),   R = M^-1 Ahat^T (Ahat M^-1 Ahat^T)^+
    u = T^+ (b - A a_c),                     T = A (1 - R Ahat) M^-1 B

Both inverses are pseudoinverses, so that dependent rows are met as servoctl meets them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from servoctl.types import Array
from tests.benchmarks.peers.tree import Tree

TASK_GAIN, LOOP_GAIN = 10.0, 5.0
"""Baumgarte's alpha = beta [1/s] of the task, and of the loop in the plant."""


@dataclass(slots=True)
class PeerTerms:
    """What the law needs, in any coordinates.

    Attributes:
        Minv: Inverse of the mass matrix, shape (n, n).
        Q: Force, shape (n,).
        loop: Rows of the loop, shape (2, n).
        loop_drift: Acceleration of the arm's end that comes from the rates alone, shape (2,) [m/s^2].
        gap: Of the loop, shape (2,) [m].
        task: Rows of the object's x, y and angle, shape (3, n).
        task_drift: As of the loop, of x and y, shape (2,) [m/s^2].
        place: Of the object, shape (2,) [m].
        tilt: Of the object [rad].
    """

    Minv: Array
    Q: Array
    loop: Array
    loop_drift: Array
    gap: Array
    task: Array
    task_drift: Array
    place: Array
    tilt: float


def actuation() -> Array:
    """B of the robots on absolute angles, shape (5, 6)."""
    B = np.zeros((5, 6))
    B[[0, 1, 2, 2, 3, 4], range(6)] = 1.0
    B[[0, 1, 3, 4], [1, 2, 3, 4]] = -1.0
    return B


def law_in_numpy(
    Minv: Array, Q: Array, B: Array | None, Ahat: Array, bhat: Array, A: Array, b: Array
) -> tuple[Array, Array, Array, Array]:
    """u, a_c, (1 - R Ahat) M^-1 B and R; None for B is the unit matrix."""
    half = Minv @ Ahat.T
    R = half @ np.linalg.pinv(Ahat @ half)
    free = Minv @ Q
    a_c = free + R @ (bhat - Ahat @ free)
    moved = Minv if B is None else Minv @ B
    moved = moved - R @ (Ahat @ moved)
    u = np.linalg.pinv(A @ moved) @ (b - A @ a_c)
    return u, a_c, moved, R


class LawOnTerms:
    """The law, evaluated with a peer's terms in joint angles."""

    def __init__(self, name: str, terms: Callable[[Array, Array], PeerTerms], tree: Tree) -> None:
        self.name, self.tree, self._terms = name, tree, terms
        self._B = tree.joint_forces(actuation())

    def _reach(self, m: PeerTerms, t: float, v: Array) -> tuple[Array, Array, Array, Array]:
        """u, a_c, (1 - R Ahat) M^-1 B and R."""
        x, y = m.place
        violation = np.array([x - 1.5, y - (1.0 - np.cos(t)) / 2, m.tilt])
        rate = m.task @ v
        rate[1] -= np.sin(t) / 2
        b = -2.0 * TASK_GAIN * rate - TASK_GAIN**2 * violation
        b[:2] -= m.task_drift
        b[1] += np.cos(t) / 2
        return law_in_numpy(m.Minv, m.Q, self._B, m.loop, -m.loop_drift, m.task, b)

    def command(self, t: float, q: Array, v: Array) -> Array:
        """u, shape (6,)."""
        return self._reach(self._terms(q, v), t, v)[0]

    def motion(self, t: float, q: Array, v: Array) -> Array:
        """Joint accelerations in closed loop, the loop stabilised."""
        m = self._terms(q, v)
        u, a_c, moved, R = self._reach(m, t, v)
        acceleration: Array = a_c + moved @ u - R @ (2.0 * LOOP_GAIN * (m.loop @ v) + LOOP_GAIN**2 * m.gap)
        return acceleration
