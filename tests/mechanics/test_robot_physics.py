"""Robots from descriptions against mechanics alone: derivatives, energy, power, known motions. No other program.

Loops and unit quaternions in closed form against automatic differentiation of their equations.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import servoctl
from servoctl.mechanics.constraint import Holonomic
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.description import Description, LinkDescription
from servoctl.mechanics.spatial.loops import LOOP_ROWS
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import Array, State
from tests.faces import passive_rows_of
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


@pytest.mark.parametrize("name", ROBOTS)
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


def test_a_robot_that_stands_turned_has_its_gravity_turned() -> None:
    place, upright = Placement.at((0.3, -0.2, 0.5), (0.4, -0.3, 1.2)), built(arm7())
    q, v = random_state(upright, 0)
    known = replace(upright, gravity=tuple(place.R.T @ upright.gravity)).force(q, v, 0.0)
    np.testing.assert_allclose(built(arm7(), at=place).force(q, v, 0.0), known, atol=1e-12)


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


def two_arms(kind: str, base: str = "fixed") -> Robot:
    """Two arms of four joints with a loop between their tools."""
    builder = RobotBuilder()
    builder.add(arm7(4), "left", base=base)  # type: ignore[arg-type]
    builder.add(arm7(4, seed=1), "right", at=Placement.at((0.0, -0.5, 0.0), (0.0, 0.0, 0.3)))
    builder.frame("grip", "right_tool", Placement.at((0.01, 0.02, 0.1), (0.4, 0.1, 0.2)))
    builder.loop("closed", kind, "left_tool", "grip")
    return builder.plant()


def violation(robot: Robot, kind: str, q: Array) -> Any:
    """The loop's equations, from the poses of both frames."""
    first, second = robot.frame_motions(("left_tool", "grip"), q, np.zeros(len(q))).values()
    E = first.rotation.T @ second.rotation
    d = first.rotation.T @ (second.position - first.position)
    root = np.sqrt(1.0 + E[0, 0] + E[1, 1] + E[2, 2])
    turn = np.array([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]]) / root
    tilt = np.array([-E[1, 2], E[0, 2]]) * np.sqrt(2.0 / (1.0 + E[2, 2]))
    return {
        "weld": lambda: np.concatenate([d, turn]),
        "hinge": lambda: np.concatenate([d, tilt]),
        "slide": lambda: np.concatenate([d[:2], turn]),
        "point": lambda: d,
    }[kind]()


@pytest.mark.parametrize("kind", LOOP_ROWS)
def test_the_rows_of_a_loop_are_the_derivatives_of_its_equations(kind: str) -> None:
    robot = two_arms(kind)
    q, v = random_state(robot, 0)
    model = Model(robot, {"same": Holonomic(lambda q, t: violation(robot, kind, q))}, State(0.0, 0.3 * q, v))
    assert [row.group for row in model.passive_rows] == len(LOOP_ROWS[kind]) * ["closed"]
    for seed in range(4):
        q, v = random_state(robot, seed)
        matrices = model.matrices(State(0.0, 0.3 * q, v))
        for part in ("violation", "A", "violation_rate", "b"):
            ours, expected = getattr(matrices.passive, part), getattr(matrices.task, part)
            np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-12, err_msg=part)


def test_a_multiplier_is_the_wrench_on_the_second_frame() -> None:
    """Where the loop is closed, A^T lambda is the generalized force of a force and a moment, in axes of the first."""
    robot = two_arms("weld")
    q, v = random_state(robot, 1)
    model = Model(robot, {}, State(0.0, 0.2 * q, v))
    motions = robot.frame_motions(("left_tool",), 0.2 * q, v)
    closed = RobotBuilder()
    closed.add(arm7(4), "left")
    closed.add(arm7(4, seed=1), "right", at=Placement.at((0.0, -0.5, 0.0), (0.0, 0.0, 0.3)))
    # a frame on the right arm that lies on the left tool at this pose
    tool, carrier = motions["left_tool"], robot.frame_motions(("right_tool",), 0.2 * q, v)["right_tool"]
    inside = Placement.of(carrier.rotation.T @ tool.rotation, carrier.rotation.T @ (tool.position - carrier.position))
    closed.frame("grip", "right_tool", inside)
    closed.loop("weld", "weld", "left_tool", "grip")
    robot = closed.plant()
    model = Model(robot, {}, State(0.0, 0.2 * q, v))
    A = model.matrices(State(0.0, 0.2 * q, v)).passive.A
    left, right = robot.frame_motions(("left_tool", "grip"), 0.2 * q, v).values()
    force, moment = np.array([3.0, -30.0, 5.0]), np.array([0.7, -0.2, 0.4])
    push, twist = left.rotation @ force, left.rotation @ moment
    expected = (right.linear - left.linear).T @ push + (right.angular - left.angular).T @ twist
    np.testing.assert_allclose(A.T @ [*force, *moment], expected, atol=1e-9)


def test_a_unit_quaternion_is_one_row() -> None:
    robot = two_arms("point", "free")
    q, v = random_state(robot, 2)
    norm = {"same": Holonomic("(left_base_qw**2 + left_base_qx**2 + left_base_qy**2 + left_base_qz**2 - 1)/2")}
    model = Model(robot, norm, State(0.0, q, v))
    assert [row.name for row in model.passive_rows] == ["left_base", "closed.0", "closed.1", "closed.2"]
    q = 1.1 * q
    matrices = model.matrices(State(0.0, q, v + 0.1 * q))
    for part in ("violation", "A", "violation_rate", "b"):
        np.testing.assert_allclose(getattr(matrices.passive, part)[:1], getattr(matrices.task, part), atol=1e-13)


def test_a_loop_is_not_finite_half_a_turn_apart() -> None:
    builder = RobotBuilder()
    builder.add(arm7(1))
    builder.frame("stop", "world", Placement.at((0.0, 0.0, 0.333 + 0.107), (np.pi, 0.0, -0.5)))
    builder.loop("hinge", "hinge", "stop", "tool")
    model = Model(builder.plant(), {}, State(0.0, np.zeros(1), np.zeros(1)))
    assert np.isnan(model.matrices(State(0.0, np.zeros(1), np.zeros(1))).passive.violation[3:]).all()


def test_the_rows_of_a_hinge_are_not_finite_where_its_axes_point_opposite_ways() -> None:
    builder = RobotBuilder()
    builder.add(arm7(2))
    builder.frame("stop", "world", Placement.at((0.0, 0.0, 0.333), (np.pi / 2, 0.0, 0.0)))
    builder.loop("hinge", "hinge", "stop", "link2")
    start = State(0.0, np.zeros(2), np.ones(2))
    rows = passive_rows_of(builder.plant(), start)
    for part in (rows.violation, rows.violation_rate, rows.b, rows.A[:, 0]):
        assert np.isnan(part[3:]).all()


@pytest.mark.parametrize("kind", LOOP_ROWS)
def test_a_closed_chain_keeps_its_energy_and_its_loop(kind: str) -> None:
    robot = two_arms(kind)
    start = [0.3, 0.5, 0.1, -1.0, -0.3, 0.5, 0.2, -0.9]
    run = servoctl.simulate(robot, {}, None, q=start, duration=0.5, project=True, passive_correction=None)
    drawn = [name for name in run.columns if name.startswith("passive.closed")]
    assert len(drawn) == len(LOOP_ROWS[kind])
    assert max(np.abs(run[name]).max() for name in drawn) < 1e-8
    assert run.summary()["energy_drift"] < 1e-6
