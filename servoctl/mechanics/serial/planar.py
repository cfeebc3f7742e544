"""Planar serial chains in absolute angles: `M(q) q'' + C(q,v) v = gravity_force(q) + ...`.

Source: Liu et al. 2015, (49)-(53), with columns of (51) zero for j > i, not j >= i, and the sign of the first entry
of (58) corrected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.types import Array


@dataclass(frozen=True, eq=False)
class PlanarChain:
    """Links hinged end to end from the origin; q holds each link's angle to the x axis [rad]; gravity acts along -y.

    Attributes:
        masses: Mass of each link [kg], shape (n,).
        inertias: Moment of inertia of each link about its centre of mass [kg m^2], shape (n,).
        lengths: Distance from joint to joint [m], shape (n,).
        centres: Distance from a link's first joint to its centre of mass, along the link [m], shape (n,).
        gravity: Acceleration of gravity [m/s^2].
    """

    masses: Sequence[float] | Array
    inertias: Sequence[float] | Array
    lengths: Sequence[float] | Array
    centres: Sequence[float] | Array
    gravity: float = 9.81

    def mass_matrix(self, q: Array) -> Array:
        """M = sum_i m_i J_i^T J_i + diag(I), so M_ij = h_ij cos(q_i - q_j) + I_i delta_ij, shape (n, n)."""
        # outer products: 2n sines and cosines instead of n^2
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
        """Generalized force of gravity [N m], shape (n,): `-G(q)`, for the right-hand side."""
        return -self.gravity * self._moments() * np.cos(q)

    def potential_energy(self, q: Array) -> float:
        """Potential energy of gravity [J], zero with every link horizontal."""
        energy: float = self.gravity * np.dot(self._moments(), np.sin(q))
        return energy

    def centre_jacobians(self, q: Array) -> Array:
        """Jacobian of each centre of mass, shape (n, 2, n): `J[i] @ v` is the velocity of link i's centre [m/s]."""
        reach = self._reach()
        return np.stack([-reach * np.sin(q), reach * np.cos(q)], axis=1)

    def joints(self, q: Array) -> Array:
        """Positions of the base, the joints and the tip [m], shape (n + 1, 2)."""
        steps = np.asarray(self.lengths)[:, None] * np.stack([np.cos(q), np.sin(q)], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])

    def _reach(self) -> Array:
        """Distance that angle j contributes to centre i [m]: l_j for j < i, the centre's own for j = i, else 0."""
        lengths = np.asarray(self.lengths)
        reach: Array = np.tri(len(lengths), k=-1) * lengths + np.diag(np.asarray(self.centres))
        return reach

    def _coupling(self) -> Array:
        """h = reach^T diag(m) reach [kg m^2], shape (n, n)."""
        reach = self._reach()
        coupling: Array = reach.T @ (np.asarray(self.masses)[:, None] * reach)
        return coupling

    def _moments(self) -> Array:
        """First moment of mass that each angle turns [kg m], shape (n,)."""
        moments: Array = self._reach().T @ np.asarray(self.masses)
        return moments
