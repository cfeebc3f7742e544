"""Loops and unit quaternions in closed form against automatic differentiation of their equations."""

from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.mechanics.constraint import Holonomic
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial.loops import LOOP_ROWS
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import Array, State
from tests.faces import passive_rows_of
from tests.robot_trees import arm7, random_state


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
