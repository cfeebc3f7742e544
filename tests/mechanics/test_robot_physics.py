"""Robots from descriptions against mechanics alone: derivatives, energy, power, known motions. No other program."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import servoctl
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.description import Description, LinkDescription
from servoctl.mechanics.spatial.placement import Inertial
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array, State
from tests.multipliers import multiplier_equation
from tests.robot_trees import arm7, built, random_state, random_tree

ROBOTS = {
    "arm": built(arm7()),
    "arm on a free base": built(arm7(3), "free"),
    "tree with mimic joints": built(random_tree(2, 7, mimics=2, fixed=2)),
    "free tree": built(random_tree(5, 6, mimics=1, fixed=1), "free"),
}
STEP = 1e-6
"""Of central differences: truncation 1e-12, rounding 1e-10."""


@pytest.mark.parametrize("name", ROBOTS)
def test_jacobians_and_drifts_of_frames_are_derivatives_of_their_poses(name: str) -> None:
    robot = ROBOTS[name]
    names = [frame.name for frame in robot.tree.frames]
    for seed in range(2):
        q, v = random_state(robot, seed)
        here = robot.frame_motions(names, q, v)
        ahead, behind = (robot.frame_motions(names, q + h * v, v) for h in (STEP, -STEP))
        for frame in names:
            at = here[frame]
            rate = (ahead[frame].position - behind[frame].position) / (2 * STEP)
            np.testing.assert_allclose(at.velocity, rate, atol=1e-8)
            np.testing.assert_allclose(at.linear @ v, at.velocity, atol=1e-13)
            np.testing.assert_allclose(at.angular @ v, at.angular_velocity, atol=1e-13)
            turn = (ahead[frame].rotation - behind[frame].rotation) / (2 * STEP) @ at.rotation.T
            w = np.array([turn[2, 1], turn[0, 2], turn[1, 0]])
            np.testing.assert_allclose(at.angular_velocity, w, atol=1e-8)


@pytest.mark.parametrize("name", ["arm", "tree with mimic joints"])
def test_drifts_are_the_second_derivatives_along_a_motion_without_acceleration(name: str) -> None:
    robot = ROBOTS[name]
    names = [frame.name for frame in robot.tree.frames]
    q, v = random_state(robot, 3)
    here = robot.frame_motions(names, q, v)
    ahead, behind = (robot.frame_motions(names, q + h * v, v) for h in (STEP, -STEP))
    for frame in names:
        for rate, drift in (("velocity", "drift"), ("angular_velocity", "angular_drift")):
            slope = (getattr(ahead[frame], rate) - getattr(behind[frame], rate)) / (2 * STEP)
            np.testing.assert_allclose(getattr(here[frame], drift), slope, atol=1e-7)


@pytest.mark.parametrize("name", ROBOTS)
def test_without_inputs_the_power_of_all_forces_is_the_loss_of_energy(name: str) -> None:
    robot = ROBOTS[name]
    q, v = random_state(robot, 5)
    a = acceleration(robot, q, v)
    slope = (energy(robot, q + STEP * v, v + STEP * a) - energy(robot, q - STEP * v, v - STEP * a)) / (2 * STEP)
    assert slope == pytest.approx(0.0, abs=1e-6 * max(1.0, abs(energy(robot, q, v))))


@pytest.mark.parametrize("name", ROBOTS)
def test_the_centre_of_mass_is_the_mean_of_the_links(name: str) -> None:
    robot = ROBOTS[name]
    q, v = random_state(robot, 7)
    motions = robot.frame_motions([link.name for link in robot.tree.links], q, v)
    masses = np.array([getattr(robot, f"{link.name}_m") for link in robot.tree.links])
    terms: dict[str, list[Any]] = {"position": [], "linear": [], "velocity": [], "drift": []}
    for link in robot.tree.links:
        at = motions[link.name]
        arm = at.rotation @ getattr(robot, f"{link.name}_com")
        w, rate = at.angular_velocity, np.cross(at.angular_velocity, arm)
        terms["position"].append(at.position + arm)
        terms["velocity"].append(at.velocity + rate)
        terms["drift"].append(at.drift + np.cross(at.angular_drift, arm) + np.cross(w, rate))
        terms["linear"].append(at.linear + np.array([np.cross(column, arm) for column in at.angular.T]).T)
    motion = robot.centre_of_mass(q, v)
    for key, values in terms.items():
        expected = np.einsum("i,i...->...", masses, np.array(values)) / masses.sum()
        np.testing.assert_allclose(getattr(motion, key), expected, atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_compiled_code_computes_what_numbers_compute(name: str) -> None:
    robot = ROBOTS[name]
    q, v = random_state(robot, 8)
    model = Model(robot, {}, State(0.0, q, v))
    assert model.opaque is None and model.symmetric
    q, v = random_state(robot, 9)
    M = dynamics.mass_matrix(robot.tree, robot.body_moments(), q)
    bias = dynamics.bias(robot.tree, robot.body_moments(), robot.gravity, q, v)
    compiled = model.matrices(State(0.0, q, v))
    for ours in (compiled.M, robot.mass_matrix(q, 0.0)):
        np.testing.assert_allclose(ours, M, atol=1e-12)
    for ours in (compiled.Q, robot.force(q, v, 0.0)):
        np.testing.assert_allclose(ours, -bias, atol=1e-11)


def test_coordinates_of_the_wrong_number_are_refused_and_those_after_them_are_not() -> None:
    robot = built(arm7())
    with pytest.raises(ValueError, match=r"mass_matrix: x0: expected shape \(7,\), got \(8,\)"):
        robot.mass_matrix(np.zeros(8), 0.0)
    np.testing.assert_array_equal(robot.mass_matrix(np.zeros(7), 0.0), ROBOTS["arm"].mass_matrix(np.zeros(7), 0.0))


def test_a_free_body_tumbles_as_eulers_equations_say() -> None:
    inertia = (0.3, 0.5, 0.7, 0.0, 0.0, 0.0)
    body = Description("body", (LinkDescription("body", Inertial(2.0, (0.0, 0.0, 0.0), inertia)),), ())
    robot = built(body, "free")
    w0 = np.array([0.4, 2.0, -0.3])
    start = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    p_rate = [0.0, *w0 / 2]
    run = servoctl.simulate(robot, {}, None, q=start, v=[0.5, 0.0, 4.0, *p_rate], duration=10.0, step=0.005)
    I = np.array(inertia[:3])  # noqa: E741

    def euler(_: float, x: Array) -> Array:
        w, (a, b, c, d) = x[:3], x[3:]
        rate = np.array([-b * w[0] - c * w[1] - d * w[2], a * w[0] - d * w[1] + c * w[2],
                         d * w[0] + a * w[1] - b * w[2], -c * w[0] + b * w[1] + a * w[2]]) / 2  # fmt: skip
        return np.concatenate([np.cross(I * w, w) / I, rate])

    exact = solve_ivp(euler, (0.0, 10.0), [*w0, 1.0, 0.0, 0.0, 0.0], "DOP853", rtol=1e-12, atol=1e-12)
    end = [run[f"q.base_{part}"][-1] for part in ("x", "y", "z", "qw", "qx", "qy", "qz")]
    np.testing.assert_allclose(end[3:], exact.y[3:, -1], atol=1e-6)
    np.testing.assert_allclose(end[:3], [5.0, 0.0, 40.0 - 9.81 * 50.0], atol=1e-9)


def acceleration(robot: Robot, q: Array, v: Array) -> Array:
    """q'' without inputs, with the quaternions' lengths kept."""
    M, Q = robot.mass_matrix(q, 0.0), robot.force(q, v, 0.0)
    rows = [np.zeros((0, len(q)))]
    b = []
    for i in robot.tree.free_bases:
        p = list(robot.tree.columns[i][3:])
        row = np.zeros((1, len(q)))
        row[0, p] = q[p]
        rows.append(row)
        b.append(-v[p] @ v[p])
    return multiplier_equation(M, Q, np.concatenate(rows), np.array(b))


def energy(robot: Robot, q: Array, v: Array) -> float:
    value = robot.energy(q, v, 0.0)
    assert value is not None
    return value
