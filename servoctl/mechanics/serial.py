"""Planar serial chains in absolute angles: `M(q) q'' + C(q,v) v = gravity_force(q) + ...`.

Source: Liu et al. 2015, (49)-(53). Corrected: the columns of (51) are zero for j > i, not j >= i; the first entry of
(58) is negative.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.types import Array


@dataclass(frozen=True, eq=False)
class PlanarChain:
    """Links hinged end to end from the origin; q are the angles to the x axis [rad]; gravity acts along -y.

    The number of operations grows with n^2.

    Attributes:
        masses: Mass of each link [kg], shape (n,).
        inertias: Moment of inertia of each link about its centre of mass [kg m^2], shape (n,).
        lengths: Distance from joint to joint [m], shape (n,).
        centres: Distance from the first joint of a link to its centre of mass, along the link [m], shape (n,).
        gravity: Acceleration of gravity [m/s^2].
    """

    masses: Sequence[float] | Array
    inertias: Sequence[float] | Array
    lengths: Sequence[float] | Array
    centres: Sequence[float] | Array
    gravity: float = 9.81

    def mass_matrix(self, q: Array) -> Array:
        """M = sum_i m_i J_i^T J_i + diag(I), so M_ij = h_ij cos(q_i - q_j) + I_i delta_ij, shape (n, n)."""
        # cos(q_i - q_j) by outer products: 2n sines and cosines instead of n^2
        sine, cosine = np.sin(q), np.cos(q)
        coupling = self._coupling()
        M: Array = coupling * (np.outer(cosine, cosine) + np.outer(sine, sine)) + np.diag(np.asarray(self.inertias))
        return M

    def coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C_ij = h_ij sin(q_i - q_j) v_j, shape (n, n): the Christoffel form, M' - 2 C is skew-symmetric."""
        sine, cosine = np.sin(q), np.cos(q)
        C: Array = self._coupling() * (np.outer(sine, cosine) - np.outer(cosine, sine)) * v
        return C

    def gravity_force(self, q: Array) -> Array:
        """Generalized force of gravity [N m], shape (n,): `-G(q)`, part of the right-hand side Q."""
        return -self.gravity * self._moments() * np.cos(q)

    def potential_energy(self, q: Array) -> float:
        """Potential energy of gravity [J]; zero if every link is horizontal."""
        energy: float = self.gravity * np.dot(self._moments(), np.sin(q))
        return energy

    def joints(self, q: Array) -> Array:
        """Positions of the base, the joints and the tip [m], shape (n + 1, 2)."""
        steps = np.asarray(self.lengths)[:, None] * np.stack([np.cos(q), np.sin(q)], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])

    def _arms(self) -> Array:
        """Distance along link j to centre i [m], shape (n, n): l_j for j < i, the centre's own for j = i, else 0."""
        lengths = np.asarray(self.lengths)
        arms: Array = np.tri(len(lengths), k=-1) * lengths + np.diag(np.asarray(self.centres))
        return arms

    def _coupling(self) -> Array:
        """h = arms^T diag(m) arms [kg m^2], shape (n, n)."""
        arms = self._arms()
        coupling: Array = arms.T @ (np.asarray(self.masses)[:, None] * arms)
        return coupling

    def _moments(self) -> Array:
        """First moment of the mass that each angle moves [kg m], shape (n,)."""
        moments: Array = self._arms().T @ np.asarray(self.masses)
        return moments
