"""Plants against published examples: the control that the law gives on them, by NumPy's pseudoinverse alone.

Reference values are independent (closed forms, inverse kinematics, DOP853 at 1e-12) and printed to 13 digits.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from screws import ScrewScara

from plants.coordinated_robots import CoordinatedRobots
from plants.flexible_joint_arm import FlexibleJointArm, FlexibleJointLinks
from plants.polar_particle import PolarParticle
from plants.scara import Scara
from plants.swarm import Aggregation, Swarm
from plants.two_mass_spring import TwoMassSpring
from servoctl.mechanics.plant import Plant
from servoctl.types import Array

REFERENCE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "cases.json").read_text())
REVIEW = REFERENCE["case4_review_examples"]


def series(run: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    """Columns of a reference run, zipped into rows; only as long as the shortest."""
    return list(zip(*(np.array(run[name]) for name in names), strict=False))


def control(plant: Plant, q: Array, v: Array, A: Array, b: Array) -> Array:
    """u = (A M^-1 B)^+ (b - A M^-1 Q)."""
    M, Q, B = plant.mass_matrix(q, 0.0), plant.force(q, v, 0.0), plant.actuation(q, 0.0)
    return np.linalg.pinv(A @ np.linalg.solve(M, B)) @ (b - A @ np.linalg.solve(M, Q))


@pytest.mark.parametrize("name", ["consistent", "inconsistent_no_baumgarte", "inconsistent_baumgarte"])
def test_spring_force_on_the_masses(name: str) -> None:
    run = REFERENCE["case1_two_mass_spring"][name]
    parameters = dict(run["params"])
    alpha, beta = parameters.pop("alpha"), parameters.pop("beta")
    plant = TwoMassSpring(**parameters)
    for q, v, F, spring in series(run, "q", "qd", "control_F", "passive_force_Qc"):
        e, rate = q[1] - q[0] - 2 * plant.l, v[1] - v[0]
        b = np.array([-2 * alpha * rate - beta**2 * e])
        np.testing.assert_allclose(control(plant, q, v, np.array([[-1.0, 1.0]]), b), [F], atol=1e-10)
        np.testing.assert_allclose(plant.force(q, v, 0.0), spring, atol=1e-11)


@pytest.mark.parametrize("variant", ["b", "e"])
def test_motor_torques_of_the_coordinated_robots(variant: str) -> None:
    case = REFERENCE["case2_coordinated_robots"]
    plant, rows = CoordinatedRobots(), case["variants"][variant]
    for i, (t, q, v) in enumerate(series(case, "times", "q", "qd")):
        M, Q, B = plant.mass_matrix(q, t), plant.force(q, v, t), plant.actuation(q, t)
        closed = np.stack([-plant.l * np.sin(q), plant.l * np.cos(q)])  # (63)
        b_closed = np.array([plant.l * np.cos(q) @ v**2, plant.l * np.sin(q) @ v**2])
        lever = np.array([1.0, 1.0, 0.5, 0.0, 0.0]) * plant.l  # (68)
        A = np.stack([-lever * np.sin(q), lever * np.cos(q), np.eye(5)[2]])
        b = np.array([lever * np.cos(q) @ v**2, lever * np.sin(q) @ v**2 + plant.l / 2 * np.cos(t), 0.0])
        inverse = np.linalg.inv(M)
        reaction = closed.T @ np.linalg.inv(closed @ inverse @ closed.T)
        Phi = inverse - inverse @ reaction @ closed @ inverse
        free = inverse @ (Q + reaction @ (b_closed - closed @ inverse @ Q))
        W = A @ inverse @ B
        if variant == "b":
            u = np.linalg.pinv(A @ Phi @ B) @ (b - A @ free)
        else:
            u = W.T @ np.linalg.solve(A @ Phi @ B @ W.T, b - A @ free)
        np.testing.assert_allclose(u, rows["u"][i], atol=1e-10)
        a = free + Phi @ B @ u
        np.testing.assert_allclose(a, case["qdd"][i], atol=1e-10)
        np.testing.assert_allclose(M @ a - Q - B @ u, rows["passive_reaction_Qc"][i], atol=1e-10)


@pytest.mark.parametrize("plant", [Scara(), ScrewScara()], ids=["closed_form", "screws"])
@pytest.mark.parametrize("name", ["none", "baumgarte"])
def test_joint_torques_of_the_scara(plant: Scara, name: str) -> None:
    run = REFERENCE["case3_scara"]["cases"]["signfix_q2_minus55"][name]
    w, rho, damping, stiffness = 0.4 * np.pi, 0.05, run["alpha"], run["beta"]
    for t, q, v, torque, violation in series(run, "times", "q", "qd", "constraint_torque", "Phi"):
        s1, c1, s12, c12 = np.sin(q[0]), np.cos(q[0]), np.sin(q[0] + q[1]), np.cos(q[0] + q[1])
        x, y = -plant.l1 * s1 - plant.l2 * s12, plant.l1 * c1 + plant.l2 * c12
        # (48), (49), (52)
        A = np.array([[-y, -plant.l2 * c12, 0, 0], [x, -plant.l2 * s12, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1.0]])
        first, second = v[0] ** 2 * plant.l1, (v[0] + v[1]) ** 2 * plant.l2
        b = np.array([-first * s1 - second * s12, first * c1 + second * c12, 0.0, 0.0])
        b -= rho * w**2 * np.array([np.sin(w * t), np.cos(w * t), 0.0, 0.0])
        goal = np.array([rho * np.sin(w * t), 0.35 + rho * np.cos(w * t), 0.0, 0.02 * t])
        rate = A @ v - np.array([rho * w * np.cos(w * t), -rho * w * np.sin(w * t), 0.0, 0.02])
        Phi = np.array([x, y, q[0] + q[1] + q[2], q[3] + plant.l0]) - goal
        np.testing.assert_allclose(Phi, violation, atol=1e-12)
        # stiffness 200 on angles of 13 digits
        np.testing.assert_allclose(control(plant, q, v, A, b - damping * rate - stiffness * Phi), torque, atol=1e-9)


def test_projectile_in_polar_coordinates_falls_as_in_cartesian_ones() -> None:
    plant = PolarParticle()
    for (r, theta, radial, turning), cartesian in series(REVIEW["projectile"], "polar", "cartesian"):
        q, v = np.array([r, theta]), np.array([radial, turning])
        np.testing.assert_allclose(plant.links(q)["ray"][-1], cartesian[:2], atol=1e-10)
        a = np.linalg.solve(plant.mass_matrix(q, 0.0), plant.force(q, v, 0.0))
        along = a[0] - r * turning**2, r * a[1] + 2 * radial * turning
        down = np.array([np.sin(theta), np.cos(theta)]) * -plant.g
        np.testing.assert_allclose(along, down, atol=1e-12)


@pytest.mark.parametrize(("published", "column"), [(False, "FC_true_generalised"), (True, "FC_paper_metric")])
def test_force_on_the_spiral_in_either_metric(published: bool, column: str) -> None:
    plant = PolarParticle(published_metric=published)
    for q, v, force in series(REVIEW["spiral_8_1"], "q", "qd", column):
        slope = 0.1 * np.exp(0.1 * q[1])
        A, b = np.array([[1.0, -slope], [0.0, 1.0]]), np.array([0.1 * slope * v[1] ** 2, 0.0])  # (55)
        np.testing.assert_allclose(control(plant, q, v, A, b), force, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("name", ["zero_velocity_no_feedback", "zero_velocity_feedback_kappa5", "consistent_start"])
def test_violation_and_forces_of_the_swarm(name: str) -> None:
    run = REVIEW["swarm_8_2"]["runs"][name]
    plant, task, h = Swarm(), Aggregation(), 1e-6
    for q, v, force, norm in series(run, "q", "qd", "constraint_force", "beta_norm"):
        psi = task.psi(q, v, 0.0)
        assert np.linalg.norm(psi) == pytest.approx(norm, rel=1e-9, abs=1e-9)
        drift = (task.psi(q + h * v, v, 0.0) - task.psi(q - h * v, v, 0.0)) / (2 * h)
        u = control(plant, q, v, np.eye(10), -drift - run["kappa"] * psi)
        np.testing.assert_allclose(u, force, atol=1e-5)  # differences of speeds up to 60 m/s


@pytest.mark.parametrize("name", ["I1_virtual_control", "I0b_link_force_with_P_feedback"])
def test_published_control_of_the_flexible_joint_arm(name: str) -> None:
    run = REVIEW["flexible_joint_8_3"]["runs"][name]
    plant = FlexibleJointLinks() if name.startswith("I1") else FlexibleJointArm(inputs="link")
    n = len(plant.coordinates)
    A = np.array([[1.0, 1.0, 0.0, 0.0]])[:, :n]
    for q, v, torque, beta in series(run, "q", "qd", "control", "beta"):
        D, Q = plant.mass_matrix(q, 0.0), plant.force(q, v, 0.0)
        np.testing.assert_allclose(A @ v, [beta], atol=1e-12)
        # (72) with K (q1 - q2), not q1, and D^(1/2) (A D^(-1/2))^+ = A^T (A D^-1 A^T)^-1
        feedforward = A.T @ np.linalg.solve(A @ np.linalg.solve(D, A.T), -A @ np.linalg.solve(D, Q))
        feedback = -D @ A.T @ np.linalg.solve(A @ A.T, A @ v / 0.25)
        np.testing.assert_allclose(feedforward + feedback, plant.actuation(q, 0.0) @ torque, atol=1e-10)


def test_motor_torques_accelerate_no_link_at_once() -> None:
    plant = FlexibleJointArm(inputs="motor")
    q = np.array([0.3, -0.2, 0.1, 0.4])
    reach = np.linalg.solve(plant.mass_matrix(q, 0.0), plant.actuation(q, 0.0))
    np.testing.assert_array_equal(reach[:2], np.zeros((2, 2)))
