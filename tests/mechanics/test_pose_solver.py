"""Coordinates from poses, and nearest states: checked by the kinematics, by geometry, and by what no nearer one may do.

A constraint that no state satisfies keeps its violation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import servoctl as sc
from plants.coordinated_robots import CoordinatedRobots
from servoctl.errors import TaskError
from servoctl.mechanics.constraint import Holonomic, Nonholonomic
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial import pose_solver
from servoctl.mechanics.spatial.description import Description
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits, solve_poses
from servoctl.types import Array, State
from tests.robot_trees import ELBOWS, arm7, built, random_tree, two_arms
from tests.small_plants import Masses


def at(robot: Robot, q: Any = 0.0) -> State:
    n = len(robot.coordinates)
    return State(0.0, np.zeros(n) + q, np.zeros(n))


def pose_of(robot: Robot, frame: str, q: Array) -> tuple[Array, Array]:
    motion = robot.frame_motions([frame], q, np.zeros(len(q)))[frame]
    return np.array(motion.rotation, dtype=float), np.array(motion.position, dtype=float)


def task_of(robot: Robot, frame: str, q: Array) -> sc.Pose:
    """The pose that a frame has at q."""
    R, p = pose_of(robot, frame, q)
    return sc.Pose(frame, tuple(p), quaternion=tuple(Rotation.from_matrix(R).as_quat()))


def limited(description: Description, lower: float | None, upper: float | None) -> Description:
    return replace(description, joints=tuple(replace(j, lower=lower, upper=upper) for j in description.joints))


@pytest.mark.parametrize("seed", range(8))
def test_an_arm_reaches_random_poses_inside_its_limits(seed: int) -> None:
    robot = built(arm7())
    lower, upper = np.array(list(joint_limits(robot.tree).values())).T
    q = np.random.default_rng(seed).uniform(lower, upper)
    found = solve_poses(robot, at(robot), {"tool": task_of(robot, "tool", q)}).q
    assert (found >= lower).all() and (found <= upper).all()
    for ours, wanted in zip(pose_of(robot, "tool", found), pose_of(robot, "tool", q), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-9)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_tree_with_mimic_and_sliding_joints_reaches_a_pose(seed: int) -> None:
    robot = built(random_tree(seed, 9, mimics=2))
    q = np.random.default_rng(seed).uniform(-0.6, 0.6, len(robot.coordinates))
    found = solve_poses(robot, at(robot), {"tip": task_of(robot, "link8", q)}).q
    np.testing.assert_allclose(pose_of(robot, "link8", found)[1], pose_of(robot, "link8", q)[1], atol=1e-9)


def test_a_solved_pose_is_in_the_cache_and_another_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVOCTL_CACHE", str(tmp_path))
    robot, pose = built(arm7()), sc.Position("tool", (0.4, 0.2, 0.5))
    found = solve_poses(robot, at(robot, 0.3), {"tool": pose})
    monkeypatch.setattr(pose_solver, "bounded_root", lambda *_: pytest.fail("searched again"))
    np.testing.assert_array_equal(solve_poses(robot, at(robot, 0.3), {"tool": pose}).q, found.q)
    for start, other in ((0.31, pose), (0.3, sc.Position("tool", (0.4, 0.2, 0.51)))):
        with pytest.raises(pytest.fail.Exception, match="searched again"):
            solve_poses(robot, at(robot, start), {"tool": other})


def test_a_pose_half_a_turn_away_is_reached() -> None:
    robot = built(arm7())
    R, p = pose_of(robot, "tool", np.full(7, 0.5))
    flipped = R @ Rotation.from_euler("x", np.pi).as_matrix()
    task = sc.Pose("tool", tuple(p), quaternion=tuple(Rotation.from_matrix(flipped).as_quat()))
    found = solve_poses(robot, at(robot, 0.5), {"tool": task}).q
    np.testing.assert_allclose(pose_of(robot, "tool", found)[0], flipped, atol=1e-9)


def test_no_small_motion_along_the_solutions_comes_nearer_to_the_given_coordinates() -> None:
    robot = built(limited(arm7(), None, None))
    start = at(robot, 0.4)
    task = {"tool": sc.Position("tool", (0.4, 0.2, 0.6))}
    found = solve_poses(robot, start, task).q
    h, J = 1e-6, np.zeros((3, 7))
    for i in range(7):
        step = h * np.eye(7)[i]
        J[:, i] = (pose_of(robot, "tool", found + step)[1] - pose_of(robot, "tool", found - step)[1]) / (2 * h)
    free = np.eye(7) - np.linalg.pinv(J) @ J
    assert np.abs(free @ (found - start.q)).max() < 1e-4 * np.linalg.norm(found - start.q)
    assert solve_poses(robot, start, task).q.tolist() == found.tolist()


def test_the_given_coordinates_stay_where_they_solve_the_pose() -> None:
    robot = built(arm7())
    q = np.array([0.3, -0.4, 0.2, -1.5, 0.1, 1.2, 0.5])
    np.testing.assert_allclose(solve_poses(robot, at(robot, q), {"tool": task_of(robot, "tool", q)}).q, q, atol=1e-9)


def test_a_joint_stops_at_its_limit_and_the_others_do_the_rest() -> None:
    free, held = built(limited(arm7(), None, None)), built(limited(arm7(), -0.35, 2.9))
    task = {"tool": sc.Position("tool", (0.45, -0.35, 0.5))}
    start = at(free, 0.2)
    assert solve_poses(free, start, task).q.min() < -0.4
    found = solve_poses(held, start, task).q
    assert found.min() == pytest.approx(-0.35, abs=1e-8) and (found >= -0.35).all()
    np.testing.assert_allclose(pose_of(held, "tool", found)[1], [0.45, -0.35, 0.5], atol=1e-9)


def test_a_start_outside_the_limits_is_moved_inside() -> None:
    robot = built(limited(arm7(), 0.1, 2.0))
    found = solve_poses(robot, at(robot, -3.0), {"rest": sc.Posture({"joint2": 0.7})}).q
    np.testing.assert_allclose(found, [0.1, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1], atol=1e-10)


def test_a_joint_keeps_the_limits_of_those_that_follow_it() -> None:
    description = limited(arm7(), -1.0, 1.0)
    joints = list(description.joints)
    joints[6] = replace(joints[6], mimic="joint1", multiplier=-2.0, offset=0.4)
    limits = joint_limits(built(replace(description, joints=tuple(joints))).tree)
    lower, upper = np.array(list(limits.values())).T
    # -1 <= -2 q + 0.4 <= 1
    assert (lower[0], upper[0]) == (pytest.approx(-0.3), pytest.approx(0.7))
    assert (lower[1], upper[1]) == (-1.0, 1.0)
    joints[6] = replace(joints[6], offset=5.0)  # 2 <= q <= 3
    robot = built(replace(description, joints=tuple(joints)))
    with pytest.raises(TaskError, match=r"joint1 has no room: .* \(joint7\) want at least 2 rad and at most 1 rad"):
        solve_poses(robot, at(robot), {"rest": sc.Posture({"joint2": 0.7})})


def test_a_free_base_gets_a_unit_quaternion() -> None:
    robot = built(arm7(3), base="free")
    turn = Rotation.from_rotvec([0.3, -2.0, 1.1])
    task = {"base": sc.Pose("link0", (0.5, -0.2, 1.0), quaternion=tuple(turn.as_quat()))}
    q = solve_poses(robot, at(robot), task).q
    w, x, y, z = q[3:7]
    assert np.linalg.norm(q[3:7]) == pytest.approx(1.0, abs=1e-15)
    assert abs(turn.as_quat() @ [x, y, z, w]) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(q[:3], [0.5, -0.2, 1.0], atol=1e-10)
    assert q[7:].tolist() == [0.0, 0.0, 0.0]


def elbows(robot: Robot, joints: Mapping[str, float] = ELBOWS) -> State:
    return at(robot, np.array([joints.get(name, 0.0) for name in robot.coordinates]))


def test_two_arms_close_their_loop_with_the_box_at_its_pose() -> None:
    robot = two_arms(("grip", "weld"))
    found = solve_poses(robot, elbows(robot), {"box": sc.Pose("box", (0.5, 0.0, 0.4), rpy=(0.0, 0.0, 0.0))}).q
    for frame in ("box", "right_grip"):
        R, p = pose_of(robot, frame, found)
        np.testing.assert_allclose(p, [0.5, 0.0, 0.4], atol=1e-9)
        np.testing.assert_allclose(R, np.eye(3), atol=1e-9)
    lower, upper = np.array(list(joint_limits(robot.tree).values())).T
    assert (found >= lower).all() and (found <= upper).all()


def test_a_pose_out_of_reach_says_which_row_is_off_and_by_how_much() -> None:
    robot = built(limited(arm7(2), None, None))
    # two joints at one point: the tool stays on a sphere of radius 0.107 about (0, 0, 0.333)
    with pytest.raises(TaskError) as error:
        solve_poses(robot, at(robot, 0.3), {"tool": sc.Position("tool", (0.0, 0.407, 0.333))})
    text = str(error.value)
    assert text.startswith(
        "no coordinates inside the joint limits reach the poses: the nearest found are off by tool.y 0.3 m"
    )
    assert text.endswith("(move the pose, or start initial.q elsewhere)")


def test_the_joints_at_their_limits_are_named_where_they_keep_a_pose_out_of_reach() -> None:
    robot = built(limited(arm7(2), 0.0, 0.5))
    with pytest.raises(TaskError, match=r"off by .*; at its limit: joint\d"):
        solve_poses(robot, at(robot), {"tool": sc.Position("tool", (0.107, 0.0, 0.333))})


def test_a_loop_that_stays_open_is_named_with_the_box() -> None:
    robot = two_arms(("grip", "weld"))
    with pytest.raises(TaskError, match=r"off by .*box.y 0\.\d+ m.*grip.1 0\.\d+ m"):
        solve_poses(robot, elbows(robot), {"box": sc.Pose("box", (0.5, 1.2, 0.4), rpy=(0.0, 0.0, 0.0))})


def test_an_unknown_frame_is_refused() -> None:
    robot = built(arm7())
    with pytest.raises(TaskError, match=r"box: there is no frame 'toool' \(did you mean 'tool'\?\)"):
        solve_poses(robot, at(robot), {"box": sc.Position("toool", (0.0, 0.0, 0.0))})


def close(task: dict[str, Any], state: State, fix: tuple[str, ...] = ()) -> tuple[State, Any]:
    return nearest(Model(Masses(forces=""), task, state), state, fix)


def test_the_nearest_point_of_a_circle_lies_on_the_ray_from_its_centre() -> None:
    start = State(0.0, np.array([3.0, 4.0]), np.array([1.0, 0.0]))
    found, left = close({"circle": Holonomic("x**2 + y**2 - 1")}, start)
    np.testing.assert_allclose(found.q, [0.6, 0.8], atol=1e-10)
    np.testing.assert_allclose(found.v, np.array([1.0, 0.0]) - 0.6 * np.array([0.6, 0.8]), atol=1e-9)
    np.testing.assert_allclose([left.violation, left.violation_rate], 0.0, atol=1e-10)


def test_the_nearest_state_follows_a_moving_constraint_at_its_time() -> None:
    found, _ = close({"line": Holonomic("y - x - t**2")}, State(2.0, np.zeros(2), np.zeros(2)))
    np.testing.assert_allclose([found.q, found.v], [[-2.0, 2.0], [-2.0, 2.0]], atol=1e-12)


def test_fixed_coordinates_keep_their_values_and_velocities() -> None:
    start = State(0.0, np.array([0.5, 4.0]), np.array([0.7, 0.0]))
    found, _ = close({"circle": Holonomic("x**2 + y**2 - 1")}, start, ("x",))
    np.testing.assert_allclose(found.q, [0.5, np.sqrt(0.75)], rtol=1e-10)
    np.testing.assert_allclose(found.v, [0.7, -0.7 * 0.5 / np.sqrt(0.75)], rtol=1e-9)
    assert (found.q[0], found.v[0]) == (0.5, 0.7)


def test_a_nonholonomic_row_moves_velocities_only() -> None:
    found, left = close({"knife": Nonholonomic("der(x)*sin(y) - der(y)*cos(y)")}, State(0.0, np.zeros(2), np.ones(2)))
    assert found.q.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found.v, [1.0, 0.0], atol=1e-12)
    assert left.violation[0] == pytest.approx(0.0, abs=1e-12)


def test_dependent_rows_do_no_harm_and_contradicting_rows_keep_a_violation() -> None:
    start = State(0.0, np.array([3.0, 0.0]), np.zeros(2))
    found, left = close({"a": Holonomic("x - 1"), "b": Holonomic("2*x - 2")}, start)
    np.testing.assert_allclose(found.q, [1.0, 0.0], atol=1e-10)
    found, left = close({"a": Holonomic("x - 1"), "b": Holonomic("x - 2")}, start)
    np.testing.assert_allclose(found.q, [1.5, 0.0], atol=1e-8)
    np.testing.assert_allclose(left.violation, [0.5, -0.5], atol=1e-8)
    assert left.worst([*left.rows], "holonomic") is not None


def test_a_violation_that_no_pose_removes_remains() -> None:
    _, left = close({"circle": Holonomic("x**2 + y**2 + 1")}, State(0.0, np.array([0.3, 0.4]), np.zeros(2)))
    assert left.violation[0] == pytest.approx(1.0, abs=1e-3)  # the minimum; steps end where they gain nothing


def test_a_closed_chain_is_assembled_without_the_task() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([55.0, -62.0, 3.0, 60.0, -60.0])
    model = Model(plant, {"level": Holonomic("theta3 - 0.2")}, State(0.0, q, np.zeros(5)))
    found, left = nearest(model, State(0.0, q, np.ones(5)), among=())
    assert np.abs(left.violation[:2]).max() < 1e-10 and np.abs(left.violation_rate[:2]).max() < 1e-10
    assert abs(left.violation[2]) > 0.1
    assert np.linalg.norm(found.q - q) < 0.3


@dataclass(frozen=True)
class ParallelLegs(Masses):
    """Two legs, each closed by a second branch: crank and rod beside a link, all straight down in the zero pose."""

    tilt: float = 1e-8  # [rad] of the cranks in the zero pose
    coordinates: ClassVar = {f"{part}{i}": "rad" for i in (1, 2) for part in ("crank", "rod", "link")}
    actuators: ClassVar = {}

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        legs = {"one": (q[:3], 0.02), "two": (q[3:], -0.015)}
        return {name: self._gap(angles, side) for name, (angles, side) in legs.items()}

    def _gap(self, angles: Array, side: float) -> Array:
        """From the end of the rod to the end of the link, whose joint lies beside that of the crank."""
        crank, rod, link = angles[0] + self.tilt, angles[0] + angles[1], angles[2] - 2 * self.tilt
        x = 0.3 * np.sin(crank) + 0.15 * np.sin(rod) - 0.35 * np.sin(link) - side
        z = -0.3 * np.cos(crank) - 0.15 * np.cos(rod) + 0.35 * np.cos(link) + 0.08
        return np.array([x, z])


@pytest.mark.parametrize("tilt", [0.0, 1e-8, 1e-6, 1e-4])
def test_legs_with_parallel_branches_close_from_a_pose_that_is_nearly_singular(tilt: float) -> None:
    """All links point the same way, so the cranks hardly move the gap in z: a Newton step is 1e6 rad long."""
    plant, state = ParallelLegs(tilt=tilt), State(0.0, np.zeros(6), np.zeros(6))
    found, left = nearest(Model(plant, {}, state), state)
    assert np.abs(left.violation).max() < 1e-10
    assert np.abs(found.q).max() < np.pi / 2
    held, _ = nearest(Model(plant, {}, state), state, ("link2",))
    assert held.q[5] == 0.0
