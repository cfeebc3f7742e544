"""Serial chains: their physics, the published matrices, derivatives against differences, planar against spatial."""

import numpy as np
import pytest
from scipy.linalg import expm
from screws import ScrewChain, adjoint, adjoint_inverse, bracket, exp_twist, prismatic, revolute, skew, translation

from servoctl.mechanics.serial import PlanarChain
from servoctl.types import Array

RANDOM = np.random.default_rng(7)
M1, M2, M3, M4, M5 = MASSES = (1.3, 0.7, 2.1, 0.9, 1.6)
LENGTHS = (0.8, 1.1, 0.6, 1.4, 0.9)
INERTIAS = (0.11, 0.23, 0.31, 0.17, 0.29)
UNIFORM = PlanarChain(MASSES, INERTIAS, LENGTHS, tuple(length / 2 for length in LENGTHS), 9.8)
GENERAL = PlanarChain(MASSES, INERTIAS, LENGTHS, (0.5, -0.2, 0.6, 0.3, 1.1), 9.8)

# (A2)-(A4) of Liu et al. 2015, as printed: the mass in front of l_i l_j, and of g l_i
PUBLISHED_COUPLING = {
    (1, 1): M1 / 4 + M2 + M3 + M4 + M5,
    (1, 2): M2 / 2 + M3 + M4 + M5,
    (1, 3): M3 / 2 + M4 + M5,
    (1, 4): M4 / 2 + M5,
    (1, 5): M5 / 2,
    (2, 2): M2 / 4 + M3 + M4 + M5,
    (2, 3): M3 / 2 + M4 + M5,
    (2, 4): M4 / 2 + M5,
    (2, 5): M5 / 2,
    (3, 3): M3 / 4 + M4 + M5,
    (3, 4): M4 / 2 + M5,
    (3, 5): M5 / 2,
    (4, 4): M4 / 4 + M5,
    (4, 5): M5 / 2,
    (5, 5): M5 / 4,
}
PUBLISHED_MOMENT = (
    M1 / 2 + M2 + M3 + M4 + M5,
    M2 / 2 + M3 + M4 + M5,
    M3 / 2 + M4 + M5,
    M4 / 2 + M5,
    M5 / 2,
)


def unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def random_screw_chain() -> ScrewChain:
    """Four hinges and two slides on skew axes, links with full inertia tensors and turned frames."""
    twists, frames, inertias = [], [], []
    for i in range(6):
        axis = unit(RANDOM.normal(size=3))
        twists.append(prismatic(axis) if i in (1, 4) else revolute(axis, RANDOM.normal(size=3)))
        turn = exp_twist(revolute(unit(RANDOM.normal(size=3)), np.zeros(3)), RANDOM.normal())
        frames.append(translation(RANDOM.normal(size=3)) @ turn)
        root = RANDOM.normal(size=(3, 3))
        inertias.append(root @ root.T + np.eye(3))
    return ScrewChain(twists, frames, RANDOM.uniform(0.5, 2.0, 6).tolist(), inertias, RANDOM.normal(size=3))


def screw_states() -> list[tuple[ScrewChain, Array, Array]]:
    return [(random_screw_chain(), RANDOM.normal(size=6), RANDOM.normal(size=6)) for _ in range(5)]


def link_poses(chain: ScrewChain, q: Array) -> list[Array]:
    """Poses of the link frames by SciPy's matrix exponential."""
    poses, g = [], np.eye(4)
    for twist, angle, frame in zip(chain.twists, q, chain.frames, strict=True):
        hat = np.zeros((4, 4))
        hat[:3, :3], hat[:3, 3] = skew(twist[3:]), twist[:3]
        g = g @ expm(hat * angle)
        poses.append(g @ frame)
    return poses


def test_planar_chain_has_the_published_matrices() -> None:
    q, v = RANDOM.normal(size=5), RANDOM.normal(size=5)
    M, C = np.diag(INERTIAS).astype(float), np.zeros((5, 5))
    for (i, j), mass in PUBLISHED_COUPLING.items():
        row, column, product = i - 1, j - 1, LENGTHS[i - 1] * LENGTHS[j - 1]
        if i == j:
            M[row, row] += mass * product
        else:
            M[row, column] = M[column, row] = mass * product * np.cos(q[row] - q[column])
            C[row, column] = mass * product * np.sin(q[row] - q[column]) * v[column]
            C[column, row] = mass * product * np.sin(q[column] - q[row]) * v[row]
    G = np.array(PUBLISHED_MOMENT) * 9.8 * np.array(LENGTHS) * np.cos(q)
    np.testing.assert_allclose(UNIFORM.mass_matrix(q), M, atol=1e-13)
    np.testing.assert_allclose(UNIFORM.coriolis_matrix(q, v), C, atol=1e-13)
    np.testing.assert_allclose(UNIFORM.gravity_force(q), -G, atol=1e-12)


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


@pytest.mark.parametrize("joint", ["hinge", "slide"])
def test_exponential_of_a_twist_is_the_matrix_exponential(joint: str) -> None:
    axis, point, angle = unit(RANDOM.normal(size=3)), RANDOM.normal(size=3), 1.7
    twist = revolute(axis, point) if joint == "hinge" else prismatic(axis)
    hat = np.zeros((4, 4))
    hat[:3, :3], hat[:3, 3] = skew(twist[3:]), twist[:3]
    np.testing.assert_allclose(exp_twist(twist, angle), expm(hat * angle), atol=1e-14)


def test_a_hinge_does_not_move_the_points_of_its_axis() -> None:
    axis, point = unit(RANDOM.normal(size=3)), RANDOM.normal(size=3)
    fixed = np.append(point + 0.7 * axis, 1.0)
    np.testing.assert_allclose(exp_twist(revolute(axis, point), 2.1) @ fixed, fixed, atol=1e-14)


def test_adjoint_moves_a_twist_as_conjugation_does() -> None:
    g = exp_twist(revolute(unit(RANDOM.normal(size=3)), RANDOM.normal(size=3)), 0.8) @ translation([0.3, -1.0, 2.0])
    twist = revolute(unit(RANDOM.normal(size=3)), RANDOM.normal(size=3))
    np.testing.assert_allclose(
        exp_twist(adjoint(g) @ twist, 0.4), g @ exp_twist(twist, 0.4) @ np.linalg.inv(g), atol=1e-13
    )
    np.testing.assert_allclose(adjoint_inverse(g) @ adjoint(g), np.eye(6), atol=1e-14)


def test_bracket_is_the_slope_of_the_adjoint() -> None:
    a, b = revolute(unit(RANDOM.normal(size=3)), RANDOM.normal(size=3)), RANDOM.normal(size=6)
    slope = (adjoint(exp_twist(a, 1e-5)) - adjoint(exp_twist(a, -1e-5))) @ b / 2e-5
    np.testing.assert_allclose(bracket(a) @ b, slope, atol=1e-9)


def test_forward_kinematics_agrees_with_matrix_exponentials() -> None:
    for chain, q, _ in screw_states():
        poses = link_poses(chain, q)
        np.testing.assert_allclose(chain.forward_kinematics(q, chain.frames[-1]), poses[-1], atol=1e-13)
        np.testing.assert_allclose(chain.centres(q), [g[:3, 3] for g in poses], atol=1e-13)


def test_screw_mass_matrix_holds_the_kinetic_energy_of_the_moving_links() -> None:
    h = 1e-5
    for chain, q, v in screw_states():
        energy = 0.0
        ahead, here, behind = link_poses(chain, q + h * v), link_poses(chain, q), link_poses(chain, q - h * v)
        for m, inertia, g1, g, g0 in zip(chain.masses, chain.inertias, ahead, here, behind, strict=True):
            body_rate = g[:3, :3].T @ (g1 - g0)[:3, :3] / (2 * h)
            w = np.array([body_rate[2, 1], body_rate[0, 2], body_rate[1, 0]])
            speed = (g1 - g0)[:3, 3] / (2 * h)
            energy += (m * speed @ speed + w @ inertia @ w) / 2
        assert v @ chain.mass_matrix(q) @ v / 2 == pytest.approx(energy, rel=1e-8)  # second-order differences


def test_bracket_form_of_the_mass_derivatives_agrees_with_differences() -> None:
    h = 1e-5
    for chain, q, _ in screw_states():
        slopes = [(chain.mass_matrix(q + h * e) - chain.mass_matrix(q - h * e)) / (2 * h) for e in np.eye(6)]
        derivatives = chain.mass_derivatives(q)
        np.testing.assert_allclose(derivatives, np.stack(slopes), atol=1e-9 * np.abs(derivatives).max())


def test_screw_chain_is_symmetric_positive_and_passive() -> None:
    for chain, q, v in screw_states():
        M = chain.mass_matrix(q)
        np.testing.assert_allclose(M, M.T, atol=1e-12 * np.abs(M).max())
        assert np.linalg.eigvalsh(M).min() > 0
        S = np.einsum("kij,k->ij", chain.mass_derivatives(q), v) - 2 * chain.coriolis_matrix(q, v)
        np.testing.assert_allclose(S, -S.T, atol=1e-12 * np.abs(S).max())


def test_screw_gravity_is_the_slope_of_the_potential_energy() -> None:
    h = 1e-6
    for chain, q, _ in screw_states():
        slope = [(chain.potential_energy(q + h * e) - chain.potential_energy(q - h * e)) / (2 * h) for e in np.eye(6)]
        np.testing.assert_allclose(chain.gravity_force(q), -np.array(slope), atol=1e-7)


def test_a_planar_chain_is_a_screw_chain_with_parallel_axes() -> None:
    # relative angles r of the screws, absolute angles q = S r of the plane
    points = np.concatenate([[0.0], np.cumsum(LENGTHS)])
    chain = ScrewChain(
        twists=[revolute((0.0, 0.0, 1.0), (x, 0.0, 0.0)) for x in points[:-1]],
        frames=[translation((x + c, 0.0, 0.0)) for x, c in zip(points, GENERAL.centres, strict=False)],
        masses=MASSES,
        inertias=[np.diag([0.0, 0.0, inertia]) for inertia in INERTIAS],
        gravity=(0.0, -9.8, 0.0),
    )
    S = np.tri(5)
    r, rate = RANDOM.normal(size=5), RANDOM.normal(size=5)
    q, v = S @ r, S @ rate
    np.testing.assert_allclose(chain.mass_matrix(r), S.T @ GENERAL.mass_matrix(q) @ S, atol=1e-12)
    np.testing.assert_allclose(chain.coriolis_matrix(r, rate), S.T @ GENERAL.coriolis_matrix(q, v) @ S, atol=1e-12)
    np.testing.assert_allclose(chain.gravity_force(r), S.T @ GENERAL.gravity_force(q), atol=1e-12)
    tip = chain.forward_kinematics(r, translation((points[-1], 0.0, 0.0)))[:2, 3]
    np.testing.assert_allclose(tip, GENERAL.joints(q)[-1], atol=1e-14)
