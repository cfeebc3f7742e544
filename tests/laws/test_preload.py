"""Prescribed loop reactions against the saddle point of the whole problem, with the geometric rows of the loop."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import servoctl as sc
from plants.coordinated_robots import CoordinatedRobots
from servoctl.errors import TaskError
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial.loops import LOOP_ROWS
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.mechanics.spatial.pose_solver import solve_poses
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import Array, Command, State, Status
from tests.faces import passive_rows_of
from tests.robot_trees import ELBOWS, arm7, built, two_arms

COMPONENTS = ("x", "y", "z", "rx", "ry", "rz")
TASK = {"box": sc.Pose("box", (0.5, 0.0, "0.4 + 0.1*(1 - cos(t))"), rpy=(0.0, 0.0, 0.0))}
GRIP = {"grip": {"y": -30.0, "rz": 2.0}}


@cache
def start_of(robot: Robot) -> State:
    """The box at its pose with the loops closed, and velocities that the loops allow."""
    q = np.array([ELBOWS.get(name, 0.0) for name in robot.coordinates])
    weld = two_arms(("grip", "weld"))
    at = solve_poses(weld, State(0.0, q, np.zeros(14)), {"box": sc.Pose("box", (0.5, 0.0, 0.4), rpy=(0.0, 0.0, 0.0))})
    A = passive_rows_of(robot, at).A
    v = np.random.default_rng(0).standard_normal(14)
    return State(0.0, at.q, v - np.linalg.pinv(A) @ (A @ v))


class Case(NamedTuple):
    """A law at one state."""

    model: Model
    law: AttachedConstraintFollowing
    terms: Terms
    command: Command

    @property
    def reaction(self) -> Array:
        """The wrench that the equations of motion leave for the grip, shape (6,), without our multipliers."""
        m = self.terms.matrices
        force = m.M @ self.terms.acceleration(self.command.u) - m.Q - m.B @ self.command.u
        found: Array = np.linalg.lstsq(geometric(self.model.plant, self.terms.state)[0].T, force, rcond=None)[0]
        return found


def case(robot: Robot, task: Any = TASK, at: State | None = None, **fields: Any) -> Case:
    state = at or start_of(robot)
    model = Model(robot, task, state)
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=10.0, beta=10.0), **fields)
    model = law.prepare(model)
    bound = law.attach(model)
    terms = assemble(state, model.matrices(state), bound.passive_rank_tolerance)
    return Case(model, bound, terms, bound.command(terms, np.zeros(0)))


def cross(a: Array) -> Array:
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def geometric(robot: Any, state: State) -> tuple[Array, Array]:
    """G and g of G q'' = g: no acceleration of the grip relative to the box, in its axes; G^T takes a wrench."""
    motions = robot.frame_motions(["box", "right_grip"], state.q, state.v)
    box, grip = motions["box"], motions["right_grip"]
    R, d = np.array(box.rotation, dtype=float).T, np.array(grip.position - box.position, dtype=float)
    linear = R @ (grip.linear - box.linear + cross(d) @ box.angular)
    angular = R @ (grip.angular - box.angular)
    w, rate = box.angular_velocity, grip.velocity - box.velocity
    drift = R @ (
        grip.drift - box.drift - np.cross(box.angular_drift, d) - 2 * np.cross(w, rate) + np.cross(w, np.cross(w, d))
    )
    turn = R @ (grip.angular_drift - box.angular_drift - np.cross(w, grip.angular_velocity))
    G, g = np.vstack([linear, angular]), -np.concatenate([drift, turn])
    return G.astype(float), g.astype(float)


def saddle_point(at: Case, rows: Any, wrench: dict[str, float], extra: Any = None) -> Array:
    """u of least norm with M a = Q + B u + G^T w, G a = g, the task and the prescribed components of w."""
    m, (G, g) = at.terms.matrices, geometric(at.model.plant, at.terms.state)
    kept = [COMPONENTS.index(row) for row in rows]
    G, g = G[kept], g[kept]
    T, e = m.task.A, m.task.b + at.law.correction.acceleration(at.terms, np.zeros(0))
    S = np.array([[float(row == name) for row in rows] for name in wrench]).reshape(-1, len(rows))
    n, inputs, k = len(m.M), m.B.shape[1], len(kept)
    zeros = np.zeros
    K = np.block(
        [
            [m.M, -m.B, -G.T],
            [G, zeros((k, inputs + k))],
            [T, zeros((len(T), inputs + k))],
            [zeros((len(S), n + inputs)), S],
        ]
    )
    rhs = np.concatenate([m.Q, g, e, list(wrench.values())])
    H = zeros((K.shape[1], K.shape[1]))
    H[n : n + inputs, n : n + inputs] = np.eye(inputs)
    whole = np.block([[H, K.T], [K, zeros((len(rhs), len(rhs)))]])
    found = np.linalg.lstsq(whole, np.concatenate([zeros(len(H)), rhs]), rcond=None)[0]
    u: Array = found[n : n + inputs]
    return u


PRELOADS: dict[str, dict[str, float]] = {
    "weld": {"y": -30.0, "rz": 2.0},
    "hinge": {"y": -30.0, "rx": 1.5},
    "slide": {"x": 12.0, "rz": -2.0},
    "point": {"y": -30.0, "z": 4.0},
}


@pytest.mark.parametrize("kind", PRELOADS)
def test_the_inputs_equal_an_independent_saddle_point_solution(kind: str) -> None:
    at = case(two_arms(("grip", kind)), preload={"grip": PRELOADS[kind]})
    expected = saddle_point(at, LOOP_ROWS[kind], PRELOADS[kind])
    assert Status.from_code(at.command.status) is Status.OK
    np.testing.assert_allclose(at.command.u, expected, rtol=1e-9, atol=1e-9)
    for name, value in PRELOADS[kind].items():
        assert at.reaction[COMPONENTS.index(name)] == pytest.approx(value, abs=1e-8)
    assert at.command.residual == pytest.approx(np.zeros(6), abs=1e-9)
    assert at.command.rank == 6


def test_without_a_preload_the_inputs_are_the_least_ones() -> None:
    robot = two_arms(("grip", "weld"))
    at = case(robot)
    np.testing.assert_allclose(at.command.u, saddle_point(at, COMPONENTS, {}), rtol=1e-9, atol=1e-9)
    assert abs(at.reaction[1] + 30.0) > 1.0


@pytest.mark.parametrize(
    "fields",
    [
        {"allocation": "constraint_force"},
        {"allocation": "weighted", "weights": {"left_joint2": 7.0}},
        {"allocation": "least_acceleration", "feedback_allocation": "minimum_norm"},
        {"null_space": {"left_joint3": "5.0"}},
        {"secondary": sc.Secondary(damping=3.0)},
        {"priorities": {"rest": 2}},
    ],
    ids=str,
)
def test_every_allocation_and_aim_keeps_task_and_preload(fields: dict[str, Any]) -> None:
    task = TASK | ({"rest": sc.Posture({"left_joint3": 0.0})} if "priorities" in fields else {})
    at = case(two_arms(("grip", "weld")), task, preload=GRIP, **fields)
    assert at.reaction[[1, 5]] == pytest.approx([-30.0, 2.0], abs=1e-7)
    assert at.command.residual == pytest.approx(np.zeros(len(at.model.task_rows)), abs=1e-7)
    assert at.command.rank == len(at.model.task_rows)


def test_limits_take_the_preload_before_the_task() -> None:
    robot = two_arms(("grip", "weld"))
    free = case(robot, preload={"grip": {"y": -3000.0}})
    assert np.abs(free.command.u).max() > 300.0
    held = case(robot, preload={"grip": {"y": -3000.0}}, limits={name: 120.0 for name in robot.actuators})
    assert np.abs(held.command.u).max() == pytest.approx(120.0)
    assert Status.from_code(held.command.status) is Status.OK
    assert held.command.residual == pytest.approx(np.zeros(6), abs=1e-7)
    assert -3000.0 < held.reaction[1] < case(robot).reaction[1]


def test_rows_of_lower_priority_give_way_to_the_preload() -> None:
    robot = two_arms(("grip", "weld"))
    task = TASK | {"rest": sc.Posture(dict.fromkeys(list(robot.coordinates), 0.0))}
    at = case(robot, task, priorities={"rest": 2}, preload=GRIP)
    assert at.reaction[[1, 5]] == pytest.approx([-30.0, 2.0], abs=1e-7)
    assert at.command.residual[:6] == pytest.approx(np.zeros(6), abs=1e-7)
    assert np.abs(at.command.residual[6:]).max() > 1e-3
    # with every task a wish, the preload comes first
    at = case(robot, TASK, priorities={"box": 2}, preload=GRIP)
    assert at.reaction[[1, 5]] == pytest.approx([-30.0, 2.0], abs=1e-7)


@pytest.mark.parametrize("engine", ["numpy", "vm"])
def test_a_run_keeps_the_preload_at_every_step(engine: str) -> None:
    robot = two_arms(("grip", "weld"))
    start = start_of(robot)
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=10.0, beta=10.0), preload=GRIP)
    run = sc.simulate(robot, TASK, law, q=start.q, duration=0.02, step=0.002, engine=engine)
    for i in (0, -1):
        state = State(float(run.t[i]), run.q[i], run.v[i])
        at = case(robot, at=state, preload=GRIP)
        np.testing.assert_allclose(run.u[i], at.command.u, rtol=1e-8, atol=1e-8)
        assert at.reaction[[1, 5]] == pytest.approx([-30.0, 2.0], abs=1e-6)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown loop": (
        {"preload": {"gripp": {"y": 1.0}}},
        "law.preload: there is no loop 'gripp' (did you mean 'grip'?)",
    ),
    "unknown component": (
        {"preload": {"grip": {"w": 1.0}}},
        "law.preload.grip: there is no component 'w' (known: x, y, z, rx, ry)",
    ),
    "free of the loop": (
        {"preload": {"grip": {"rz": 1.0}}},
        "law.preload.grip.rz: a hinge transmits none (it has x, y, z, rx, ry)",
    ),
    "not finite": (
        {"preload": {"grip": {"y": float("nan")}}},
        "law.preload.grip.y: expected a finite number, got nan",
    ),
    "unprojected": (
        {"preload": {"grip": {"y": 1.0}}, "allocation": "unprojected"},
        "law.allocation: unprojected knows no preload (use another allocation)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_preload_that_does_not_fit_is_refused_in_one_sentence(name: str) -> None:
    fields, text = MISTAKES[name]
    with pytest.raises(TaskError) as error:
        case(two_arms(("grip", "hinge")), **fields)
    assert str(error.value) == text


def test_only_loops_of_a_robot_have_a_preload() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([60.0, -60.0, 0.0, 60.0, -60.0])
    state = State(0.0, q, np.zeros(5))
    law = sc.ConstraintFollowing(preload={"chain": {"x": 1.0}})
    with pytest.raises(TaskError, match=r"law.preload: CoordinatedRobots has no loops \(only those of a robot"):
        law.attach(law.prepare(Model(plant, {"level": sc.Holonomic("theta3")}, state)))


def test_a_reaction_that_is_not_unique_is_refused_by_name() -> None:
    robot = two_arms(("grip", "weld"), ("second", "point"))
    with pytest.raises(TaskError) as error:
        case(robot, preload={"grip": {"y": 1.0, "rz": 1.0}})
    # the second loop shares the force, and not the moment
    assert str(error.value) == (
        "law.preload.grip.y: this reaction is not unique, because mechanism rows depend on each other "
        "(rank 6 of 9: open a loop, or close it with fewer rows)"
    )
    assert case(robot, preload={"grip": {"rz": 1.0}}).command.status == Status.OK.code


def test_a_preload_for_which_the_tasks_leave_no_freedom_is_refused() -> None:
    arm = arm7()
    builder = RobotBuilder()
    builder.add(replace(arm, name="arm"))
    builder.loop("pin", "point", "tool", "world")
    robot = builder.plant()
    state = solve_poses(robot, State(0.0, np.full(7, 0.3), np.zeros(7)), {})
    task = {"rest": sc.Posture({f"joint{i}": float(state.q[i - 1]) for i in (1, 2, 3, 4)})}
    robot = replace_motors(robot, ("joint1", "joint2", "joint3", "joint4"))
    assert case(robot, task, at=state).command.rank == 3  # of the four inputs
    with pytest.raises(TaskError) as error:
        case(robot, task, at=state, preload={"pin": {"x": 1.0, "z": 2.0}})
    assert str(error.value) == (
        "law.preload: pin.x, pin.z: the actuators can prescribe 1 of 2 beside the tasks of priority 1 "
        "(prescribe fewer, or give tasks a lower priority)"
    )


def replace_motors(robot: Robot, motors: tuple[str, ...]) -> Robot:
    return replace(robot, tree=replace(robot.tree, motors=motors))


def test_a_robot_without_a_loop_is_told_that_there_is_none() -> None:
    robot = built(arm7())
    state = State(0.0, np.full(7, 0.3), np.zeros(7))
    with pytest.raises(TaskError, match=r"law.preload: there is no loop 'grip' \(none is known here\)"):
        case(robot, {"rest": sc.Posture({"joint1": 0.0})}, at=state, preload={"grip": {"x": 1.0}})
