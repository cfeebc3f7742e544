"""Spatial serial chains from joint screws, by products of exponentials: an oracle for the SCARA and planar chains.

A twist is `xi = (v, w)`, linear part first, in base coordinates at q = 0: `w` is the unit axis and `v = -w x point` of
a revolute joint; `w = 0` and `v` is the unit direction of a prismatic one. A pose is a homogeneous matrix (4, 4).

Source: Xu, Liu 2017, (15)-(17), (24)-(27), (30), (37), after Murray, Li, Sastry 1994. Corrected: column j of the body
Jacobian below (17) uses the exponentials from joint j on, not from the first; (24) and (26) transform link inertias
with `g_l(0)`, not `g_l(q)`, as `Ad^-T M_l Ad^-1`; the first bracket below (30) contains `A_ki`, not `A_li`.

Design: the Jacobians are computed along the chain, `J_l = Ad^-1(exp(xi_l q_l)) J_(l-1) + xi_l e_l^T`, with the columns
`A_lj xi_j` of (25). This needs neither a 6x6 matrix per pair of joints nor a derivative other than a bracket.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plants.scara import Scara
from servoctl.types import Array


def skew(w: Array) -> Array:
    """The matrix of the cross product: `skew(w) @ p = w x p`, shape (3, 3)."""
    return np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])


def revolute(axis: Sequence[float] | Array, point: Sequence[float] | Array) -> Array:
    """Twist of a hinge about the unit vector `axis` through `point` [m], shape (6,)."""
    w = np.asarray(axis)
    return np.concatenate([-skew(w) @ np.asarray(point), w])


def prismatic(direction: Sequence[float] | Array) -> Array:
    """Twist of a slide along the unit vector `direction`, shape (6,)."""
    return np.concatenate([np.asarray(direction), np.zeros(3)])


def translation(point: Sequence[float] | Array) -> Array:
    """Pose of a frame at `point` [m] with the axes of the base, shape (4, 4)."""
    return _pose(np.eye(3), np.asarray(point))


def exp_twist(twist: Array, q: float) -> Array:
    """exp(xi q), shape (4, 4): Rodrigues' formula, with `p = (I q + W (1 - cos q) + W^2 (q - sin q)) v`.

    The formula also holds for `w = 0`, so it needs no branch on the joint type; for unit axes it equals (37).
    """
    W = skew(twist[3:])
    square = W @ W
    sine, versine = np.sin(q), 1.0 - np.cos(q)
    rotation = np.eye(3) + W * sine + square * versine
    return _pose(rotation, (np.eye(3) * q + W * versine + square * (q - sine)) @ twist[:3])


def adjoint(pose: Array) -> Array:
    """Ad(g), shape (6, 6): transforms a twist from the frame g to the base."""
    R, p = pose[:3, :3], pose[:3, 3]
    return _upper(R, skew(p) @ R)


def adjoint_inverse(pose: Array) -> Array:
    """Ad(g)^-1 = Ad(g^-1), shape (6, 6)."""
    R, p = pose[:3, :3], pose[:3, 3]
    return _upper(R.T, -R.T @ skew(p))


def bracket(twist: Array) -> Array:
    """The matrix of the Lie bracket: `bracket(a) @ b = [a, b]`, shape (6, 6)."""
    return _upper(skew(twist[3:]), skew(twist[:3]))


def christoffel(dM: Array, v: Array) -> Array:
    """C(q, v) with `C_ij = sum_k (dM_ij/dq_k + dM_ik/dq_j - dM_kj/dq_i) v_k / 2`: M' - 2 C is skew-symmetric.

    Args:
        dM: `dM[k]` is the derivative of the mass matrix with respect to q_k, shape (n, n, n).
        v: Generalized velocities, shape (n,).

    Source: Liu et al. 2015, (52); Xu, Liu 2017, (30).
    """
    mixed = dM @ v
    C: Array = (np.sum(v[:, None, None] * dM, axis=0) + mixed.T - mixed) / 2
    return C


@dataclass(frozen=True, eq=False)
class ScrewChain:
    """Links on revolute and prismatic joints, from the base to the tip.

    Attributes:
        twists: Joint twists at q = 0, each (6,).
        frames: Pose of each link's frame at q = 0, origin in the link's centre of mass, each (4, 4).
        masses: Mass of each link [kg].
        inertias: Inertia of each link about its centre of mass, in its frame [kg m^2], each (3, 3).
        gravity: Acceleration of gravity in base coordinates [m/s^2], (3,).
    """

    twists: Sequence[Array]
    frames: Sequence[Array]
    masses: Sequence[float]
    inertias: Sequence[Array]
    gravity: Sequence[float] | Array = (0.0, 0.0, -9.81)

    def forward_kinematics(self, q: Array, tool: Array) -> Array:
        """Pose at q of a frame on the last link with the pose `tool` at q = 0, shape (4, 4)."""
        return self._motions(q)[-1] @ tool

    def centres(self, q: Array) -> Array:
        """Centres of mass [m], shape (n, 3)."""
        return self._centres(self._motions(q))

    def mass_matrix(self, q: Array) -> Array:
        """M = sum_l J_l^T M'_l J_l, shape (n, n)."""
        jacobians = self._jacobians(self._returns(q))
        terms = [J.T @ inertia @ J for J, inertia in zip(jacobians, self._base_inertias(), strict=True)]
        M: Array = np.sum(np.stack(terms), axis=0)
        return M

    def mass_derivatives(self, q: Array) -> Array:
        """dM/dq_k in closed form, shape (n, n, n), k first.

        Column j of dJ_l/dq_k is `A_lk [A_kj xi_j, xi_k]`, zero for l < k.
        """
        returns = self._returns(q)
        jacobians, inertias = self._jacobians(returns), self._base_inertias()
        n = len(self.twists)
        dM = []
        for k in range(n):
            slope = -bracket(self.twists[k]) @ jacobians[k]
            half = slope.T @ inertias[k] @ jacobians[k]
            for i in range(k + 1, n):
                slope = returns[i] @ slope
                half = half + slope.T @ inertias[i] @ jacobians[i]
            dM.append(half + half.T)
        return np.stack(dM)

    def coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C(q, v) in Christoffel form, shape (n, n): M' - 2 C is skew-symmetric."""
        return christoffel(self.mass_derivatives(q), v)

    def gravity_force(self, q: Array) -> Array:
        """Generalized force of gravity, shape (n,): `-G(q)`, part of the right-hand side Q."""
        motions, gravity = self._motions(q), np.asarray(self.gravity)
        before = [np.eye(4), *motions[:-1]]
        screws = [adjoint(g) @ twist for g, twist in zip(before, self.twists, strict=True)]
        weights = [m * gravity for m in self.masses]
        moments = [skew(c) @ weight for c, weight in zip(self._centres(motions), weights, strict=True)]
        # joint j moves its own link and those after it; the centre of link l has the velocity v_j + w_j x c_l
        return np.array([screw[:3] @ sum(weights[j:]) + screw[3:] @ sum(moments[j:]) for j, screw in enumerate(screws)])

    def potential_energy(self, q: Array) -> float:
        """Potential energy of gravity [J]; zero if every centre of mass is at the origin of the base."""
        energy: float = -(np.asarray(self.masses) @ self.centres(q) @ np.asarray(self.gravity))
        return energy

    def _motions(self, q: Array) -> list[Array]:
        """exp(xi_1 q_1) ... exp(xi_l q_l) for each link l."""
        motions = []
        g = np.eye(4)
        for i, twist in enumerate(self.twists):
            g = g @ exp_twist(twist, q[i])
            motions.append(g)
        return motions

    def _centres(self, motions: list[Array]) -> Array:
        return np.stack([(g @ home)[:3, 3] for g, home in zip(motions, self.frames, strict=True)])

    def _returns(self, q: Array) -> list[Array]:
        """Ad^-1(exp(xi_l q_l)) for each joint l."""
        return [adjoint_inverse(exp_twist(twist, q[i])) for i, twist in enumerate(self.twists)]

    def _jacobians(self, returns: list[Array]) -> list[Array]:
        """J_l with columns `A_lj xi_j`, each (6, n): link l's twist per joint rate, as seen from the base at q = 0."""
        jacobians = []
        J = np.zeros((6, len(self.twists)))
        for i, twist in enumerate(self.twists):
            J = returns[i] @ J
            J[:, i] = twist
            jacobians.append(J)
        return jacobians

    def _base_inertias(self) -> list[Array]:
        """M'_l = Ad^-T(g_l(0)) diag(m I, inertia) Ad^-1(g_l(0)), each (6, 6)."""
        result = []
        for home, m, inertia in zip(self.frames, self.masses, self.inertias, strict=True):
            Ad = adjoint_inverse(home)
            M = np.zeros((6, 6))
            M[:3, :3] = m * np.eye(3)
            M[3:, 3:] = inertia
            result.append(Ad.T @ M @ Ad)
        return result


def _pose(rotation: Array, position: Array) -> Array:
    pose = np.eye(4)
    pose[:3, :3] = rotation
    pose[:3, 3] = position
    return pose


def _upper(diagonal: Array, corner: Array) -> Array:
    """[[diagonal, corner], [0, diagonal]], shape (6, 6)."""
    matrix = np.zeros((6, 6))
    matrix[:3, :3] = diagonal
    matrix[:3, 3:] = corner
    matrix[3:, 3:] = diagonal
    return matrix


@dataclass(frozen=True)
class ScrewScara(Scara):
    """The SCARA robot of `plants.scara` from its joint screws.

    Source: Xu, Liu 2017, (32)-(33), with the corrections above.
    """

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.chain().mass_matrix(q)

    def coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C(q, v), shape (4, 4), with M' - 2 C skew-symmetric."""
        return self.chain().coriolis_matrix(q, v)

    def force(self, q: Array, v: Array, t: float) -> Array:
        force: Array = self.chain().gravity_force(q) - self.coriolis_matrix(q, v) @ v
        return force

    def chain(self) -> ScrewChain:
        """The robot as a chain of screws."""
        up, wrist = (0.0, 0.0, 1.0), self.l1 + self.l2
        axes = [(0.0, 0.0, 0.0), (0.0, self.l1, 0.0), (0.0, wrist, 0.0)]
        centres = [(0.0, self.r1, self.l0), (0.0, self.l1 + self.r2, self.l0), (0.0, wrist, self.l0)]
        centres.append(centres[-1])
        spins = (self.Iz1, self.Iz2, self.Iz3, self.Iz4)
        return ScrewChain(
            twists=[*(revolute(up, point) for point in axes), prismatic(up)],
            frames=[translation(centre) for centre in centres],
            masses=[self.m1, self.m2, self.m3, self.m4],
            inertias=[np.diag(np.array([0.0, 0.0, spin])) for spin in spins],  # no link tilts
            gravity=np.array([0.0, 0.0, -self.g]),
        )
