"""Planar serial chains: the published matrices, sums over links, and derivatives against differences."""

import numpy as np

from servoctl.mechanics.serial import PlanarChain

RANDOM = np.random.default_rng(7)
M1, M2, M3, M4, M5 = MASSES = (1.3, 0.7, 2.1, 0.9, 1.6)
LENGTHS = (0.8, 1.1, 0.6, 1.4, 0.9)
INERTIAS = (0.11, 0.23, 0.31, 0.17, 0.29)
GENERAL = PlanarChain(MASSES, INERTIAS, LENGTHS, (0.5, -0.2, 0.6, 0.3, 1.1), 9.8)


def test_planar_mass_matrix_is_the_sum_over_link_jacobians() -> None:
    q = RANDOM.normal(size=5)
    arms = np.tri(5, k=-1) * LENGTHS + np.diag(GENERAL.centres)  # along link j to the centre of link i
    jacobians = np.stack([-arms * np.sin(q), arms * np.cos(q)], axis=1)
    M = sum(m * J.T @ J for m, J in zip(MASSES, jacobians, strict=True)) + np.diag(INERTIAS)
    np.testing.assert_allclose(GENERAL.mass_matrix(q), M, atol=1e-13)
    weights = sum(m * 9.8 * J[1] for m, J in zip(MASSES, jacobians, strict=True))
    np.testing.assert_allclose(GENERAL.gravity_force(q), -weights, atol=1e-12)


def test_planar_gravity_is_the_slope_of_the_potential_energy() -> None:
    q, h = RANDOM.normal(size=5), 1e-6
    slope = [(GENERAL.potential_energy(q + h * e) - GENERAL.potential_energy(q - h * e)) / (2 * h) for e in np.eye(5)]
    np.testing.assert_allclose(GENERAL.gravity_force(q), -np.array(slope), atol=1e-7)


def test_planar_joints_are_a_length_apart() -> None:
    joints = GENERAL.joints(RANDOM.normal(size=5))
    assert joints.shape == (6, 2)
    np.testing.assert_allclose(np.linalg.norm(np.diff(joints, axis=0), axis=1), LENGTHS, atol=1e-14)


def test_planar_coriolis_matrix_is_the_christoffel_one() -> None:
    q, v, h = RANDOM.normal(size=5), RANDOM.normal(size=5), 1e-5
    dM = np.stack([(GENERAL.mass_matrix(q + h * e) - GENERAL.mass_matrix(q - h * e)) / (2 * h) for e in np.eye(5)])
    C = 0.5 * (np.einsum("kij,k->ij", dM, v) + np.einsum("jik,k->ij", dM, v) - np.einsum("ijk,k->ij", dM, v))
    np.testing.assert_allclose(GENERAL.coriolis_matrix(q, v), C, atol=1e-8)  # second-order differences
