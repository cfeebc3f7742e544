"""Textbook NumPy: the equations as the papers print them, in absolute angles, with their matrix square root.

    q'' = a + M^-1/2 (A M^-1/2)^+ (b - A a)

Source: Udwadia, Kalaba 2001; Liu et al. 2015, (48)-(63).
"""

import numpy as np

from servoctl.types import Array
from tests.benchmarks.peers.algebra import LOOP_GAIN, TASK_GAIN, actuation
from tests.benchmarks.peers.tree import ROBOTS, Tree

GAP = np.array([3.0, 0.0])  # [m] between the bases


class TextbookRobots:
    """The coordinated robots and their law, all in `numpy.linalg`."""

    name = "textbook NumPy"
    tree = Tree([], [], ROBOTS.g)
    """No joints: coordinates are absolute angles."""

    def __init__(self) -> None:
        n = len(ROBOTS.bars)
        masses, lengths = np.ones(n), np.ones(n)
        beyond = np.array([masses[i + 1 :].sum() for i in range(n)])
        self._h = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                far = max(i, j)
                own = masses[far] * (0.5 if i != j else 0.25) + beyond[far]
                self._h[i, j] = own * lengths[i] * lengths[j]
        self._I = np.eye(n)
        self._weight = (masses / 2 + beyond) * ROBOTS.g * lengths
        self._B = actuation()
        self._share = np.array([1.0, 1.0, 0.5, 0.0, 0.0])

    def _dynamics(self, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
        """M, Q, and the loop's rows and drift."""
        difference = q[:, None] - q[None, :]
        M = self._h * np.cos(difference) + self._I
        c, s = np.cos(q), np.sin(q)
        Q = -(self._h * np.sin(difference)) @ v**2 - self._weight * c
        return M, Q, np.array([-s, c]), np.array([-c @ v**2, -s @ v**2])

    def acceleration(self, q: Array, v: Array, u: Array) -> Array:
        """Accelerations under inputs u, from the saddle-point (KKT) system; the loop stabilised."""
        M, Q, A, drift = self._dynamics(q, v)
        gap = np.array([np.cos(q).sum(), np.sin(q).sum()]) - GAP
        b = -drift - 2.0 * LOOP_GAIN * (A @ v) - LOOP_GAIN**2 * gap
        system = np.block([[M, A.T], [A, np.zeros((2, 2))]])
        acceleration_and_force: Array = np.linalg.solve(system, np.concatenate([Q + self._B @ u, b]))[: len(q)]
        return acceleration_and_force

    def _reach(self, t: float, q: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
        M, Q, loop, drift = self._dynamics(q, v)
        values, vectors = np.linalg.eigh(M)
        root = (vectors / np.sqrt(values)) @ vectors.T  # M^-1/2
        D = np.linalg.pinv(loop @ root)
        free = root @ (root @ Q)
        a_c = free + root @ (D @ (-drift - loop @ free))
        inputs = root @ self._B
        moved = root @ (inputs - D @ (loop @ root @ inputs))
        c, s, share = np.cos(q), np.sin(q), self._share
        A = np.array([-share * s, share * c, [0.0, 0.0, 1.0, 0.0, 0.0]])
        violation = np.array([share @ c - 1.5, share @ s - (1.0 - np.cos(t)) / 2, q[2]])
        rate = A @ v - np.array([0.0, np.sin(t) / 2, 0.0])
        b = np.array([(share * c) @ v**2, (share * s) @ v**2 + np.cos(t) / 2, 0.0])
        b = b - 2.0 * TASK_GAIN * rate - TASK_GAIN**2 * violation
        u = np.linalg.pinv(A @ moved) @ (b - A @ a_c)
        return u, a_c, moved, root @ D, loop

    def command(self, t: float, q: Array, v: Array) -> Array:
        """u, shape (6,)."""
        return self._reach(t, q, v)[0]

    def motion(self, t: float, q: Array, v: Array) -> Array:
        """Accelerations in closed loop, the robots' own loop stabilised."""
        u, a_c, moved, R, loop = self._reach(t, q, v)
        gap = np.array([np.cos(q).sum(), np.sin(q).sum()]) - GAP
        acceleration_and_force: Array = a_c + moved @ u - R @ (2.0 * LOOP_GAIN * (loop @ v) + LOOP_GAIN**2 * gap)
        return acceleration_and_force
