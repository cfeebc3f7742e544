"""Tasks on frames, also of real robots: closed-form rows equal automatic differentiation of the same violation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import servoctl as sc
from servoctl.errors import TaskError
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.placement import rotation_rpy
from servoctl.mechanics.spatial.task import EulerZYZ, FrameConstraint
from servoctl.types import Array, State
from tests.mechanics.free_bodies import FreeBodies
from tests.refused import table
from tests.robot_trees import arm7, built
from tests.small_plants import Masses

PLANT = FreeBodies()
N = len(PLANT.coordinates)
TILTED = Rotation.from_quat([0.3, 0.1, 0.2, 1.0]).as_matrix()
XYZ = (0.3, "0.2 + reach*sin(2*t)", lambda t: 0.1 * t**3)
RPY = ("0.3*t", "0.2*sin(t)", -0.4)


def xyz(t: Any) -> Array:
    return np.array([0.3, 0.2 + 0.4 * np.sin(2 * t), 0.1 * t**3])


def rpy(t: Any) -> Array:
    return rotation_rpy(0.3 * t, 0.2 * np.sin(t), -0.4)


def placed(q: Array, name: str, base: str | None) -> tuple[Array, Array]:
    """Rotation and position of a frame in another one."""
    R, p = PLANT.pose(name, q)
    if base is None:
        return R, p
    Rb, pb = PLANT.pose(base, q)
    return Rb.T @ R, Rb.T @ (p - pb)


def log(E: Array) -> Array:
    """The rotation vector, by the angle alone; singular at 0."""
    angle = np.arccos((E[0, 0] + E[1, 1] + E[2, 2] - 1.0) / 2.0)
    return angle / (2.0 * np.sin(angle)) * np.array([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]])


def shortest_turn(R: Array, axis: Array, direction: Array) -> Array:
    """Rotation vector in the frame's axes of the shortest turn from the direction to the axis."""
    c = R.T @ direction / np.sqrt(direction @ direction)
    angle = np.arccos(c @ axis)
    return angle / np.sin(angle) * np.cross(c, axis)


def zyz(R: Array) -> Array:
    """Xu, Liu 2017, (44), as printed."""
    psi = np.arctan2(np.sqrt(R[2, 0] ** 2 + R[2, 1] ** 2), R[2, 2])
    return np.array([np.arctan2(R[1, 2], R[0, 2]), psi, np.arctan2(R[2, 1], -R[2, 0])])


def quaternion(t: Any) -> Array:
    """(x, y, z, w), not normalised."""
    return np.array([0.3 + 0.1 * t, -0.2, 0.4 * t, 1.5])


def quaternion_matrix(t: Any) -> Array:
    x, y, z, w = quaternion(t) / np.sqrt(quaternion(t) @ quaternion(t))
    v = np.array([x, y, z])
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return (w * w - v @ v) * np.eye(3) + 2.0 * np.outer(v, v) + 2.0 * w * cross


@dataclass(frozen=True)
class SameHeight(FrameConstraint):
    """A task of a user's own: what `residual` returns is differentiated."""

    first: str
    second: str
    speed: float = 0.3

    @property
    def frames(self) -> tuple[str, ...]:
        return (self.first, self.second)

    def residual(self, motions: Any, plant: Plant, t: Any) -> Any:
        one, two = motions[self.first], motions[self.second]
        lean = one.rotation[2, 0] * two.rotation[0, 1]
        gap = one.position[2] - two.position[2] - plant.reach * np.sin(self.speed * t)  # type: ignore[attr-defined]
        return np.array([gap, lean * one.position[0] - t**2])


CASES: dict[str, tuple[Constraint, Callable[[Array, Any], Any]]] = {
    "position": (sc.Position("one", XYZ), lambda q, t: PLANT.pose("one", q)[1] - xyz(t)),
    "position by a function": (sc.Position("one", xyz), lambda q, t: PLANT.pose("one", q)[1] - xyz(t)),
    "position in another frame": (
        sc.Position("one", XYZ, relative_to="two"),
        lambda q, t: placed(q, "one", "two")[1] - xyz(t),
    ),
    "orientation": (sc.Orientation("one", rpy=RPY), lambda q, t: log(rpy(t).T @ PLANT.pose("one", q)[0])),
    "orientation by a quaternion": (
        sc.Orientation("one", quaternion=quaternion),
        lambda q, t: log(quaternion_matrix(t).T @ PLANT.pose("one", q)[0]),
    ),
    "orientation in another frame": (
        sc.Orientation("one", rpy=RPY, relative_to="two"),
        lambda q, t: log(rpy(t).T @ placed(q, "one", "two")[0]),
    ),
    "pose": (
        sc.Pose("two", XYZ, rpy=RPY),
        lambda q, t: np.concatenate([PLANT.pose("two", q)[1] - xyz(t), log(rpy(t).T @ PLANT.pose("two", q)[0])]),
    ),
    "pose in another frame": (
        sc.Pose("two", XYZ, quaternion=(0.3, 0.1, 0.2, 1.0), relative_to="one"),
        lambda q, t: np.concatenate(
            [
                placed(q, "two", "one")[1] - xyz(t),
                log(TILTED.T @ placed(q, "two", "one")[0]),
            ]
        ),
    ),
    "distance of two frames": (
        sc.Distance("one", "two", "0.5 + 0.1*t"),
        lambda q, t: np.linalg.norm(PLANT.pose("one", q)[1] - PLANT.pose("two", q)[1]) - 0.5 - 0.1 * t,
    ),
    "distance to a point": (
        sc.Distance("one", XYZ, 0.5),
        lambda q, t: np.linalg.norm(PLANT.pose("one", q)[1] - xyz(t)) - 0.5,
    ),
    "centre of mass": (
        sc.CentreOfMass(("z", "x"), ("0.1*t**2", 0.2)),
        lambda q, t: ((q[:3] + q[6:9]) / 2)[[2, 0]] - np.array([0.1 * t**2, 0.2]),
    ),
    "posture": (
        sc.Posture({"two_b": "sin(t)", "one_x": 0.3}),
        lambda q, t: np.array([q[10] - np.sin(t), q[0] - 0.3]),
    ),
    "ZYZ angles": (
        EulerZYZ("one", ("0.2*t", 0.4, "-0.3*sin(t)")),
        lambda q, t: zyz(PLANT.pose("one", q)[0]) - np.array([0.2 * t, 0.4, -0.3 * np.sin(t)]),
    ),
    "ZYZ angles in another frame": (
        EulerZYZ("two", ("0.2*t", 0.4, -0.3), relative_to="one"),
        lambda q, t: zyz(placed(q, "two", "one")[0]) - np.array([0.2 * t, 0.4, -0.3]),
    ),
    "a task of one's own": (
        SameHeight("one", "two"),
        lambda q, t: np.array(
            [
                q[2] - q[8] - 0.4 * np.sin(0.3 * t),
                PLANT.pose("one", q)[0][2, 0] * PLANT.pose("two", q)[0][0, 1] * q[0] - t**2,
            ]
        ),
    ),
}


def model(constraint: Constraint, plant: Plant = PLANT) -> Model:
    n = len(plant.coordinates)
    return Model(plant, {"tool": constraint}, State(0.0, np.linspace(0.1, 0.7, n), np.zeros(n)))


def rows_at(constraint: Constraint, states: list[State]) -> list[Rows]:
    made = model(constraint)
    return [made.matrices(state).task for state in states]


def some_states(count: int = 6) -> list[State]:
    random = np.random.default_rng(3)
    return [
        State(random.uniform(0.2, 2.0), random.uniform(-0.8, 0.8, N), random.standard_normal(N)) for _ in range(count)
    ]


@pytest.mark.parametrize("name", CASES)
def test_closed_form_rows_equal_automatic_differentiation_of_the_violation(name: str) -> None:
    constraint, phi = CASES[name]
    states = some_states()
    for ours, derived in zip(rows_at(constraint, states), rows_at(sc.Holonomic(phi), states), strict=True):
        for field in ("A", "b", "violation", "violation_rate"):
            np.testing.assert_allclose(getattr(ours, field), getattr(derived, field), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_a_waiting_task_stays_at_time_0_without_a_rate_and_moves_later(name: str) -> None:
    constraint, phi = CASES[name]
    waiting = constraint.standing()
    for state in some_states(2):
        before = State(-state.t, state.q, state.v)
        held = rows_at(sc.Holonomic(lambda q, t: phi(q, 0.0)), [before])[0]
        found = rows_at(waiting, [before, state])
        later = rows_at(constraint, [state])[0]
        for field in ("A", "b", "violation", "violation_rate"):
            np.testing.assert_allclose(getattr(found[0], field), getattr(held, field), rtol=1e-10, atol=1e-11)
            np.testing.assert_allclose(getattr(found[1], field), getattr(later, field), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("axis", ["x", "y", "z", "-x", (0.3, -2.0, 0.4)])
@pytest.mark.parametrize("base", [None, "two"])
def test_an_axis_gives_the_shortest_turn_in_two_rows(axis: Any, base: str | None) -> None:
    letters = {"x": [1.0, 0, 0], "y": [0, 1.0, 0], "z": [0, 0, 1.0], "-x": [-1.0, 0, 0]}
    unit = np.array(letters.get(axis, axis) if isinstance(axis, str) else axis, dtype=float)
    unit = unit / np.linalg.norm(unit)
    states = some_states()
    ours = rows_at(sc.Axis("one", axis, ("t", "1 + t**2", -0.5), relative_to=base), states)

    def turn(q: Array, t: Any) -> Array:
        return shortest_turn(placed(q, "one", base)[0], unit, np.array([t, 1 + t**2, -0.5]))

    derived = rows_at(sc.Holonomic(turn), states)
    for found, expected in zip(ours, derived, strict=True):
        assert found.A.shape == (2, N)
        # two components of a vector at right angles to the axis: the same up to the choice of two directions there
        for part in ("A", "b", "violation", "violation_rate"):
            two, three = getattr(found, part), getattr(expected, part)
            np.testing.assert_allclose(two.T @ two, three.T @ three, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.violation @ found.A, expected.violation @ expected.A, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.violation @ found.b, expected.violation @ expected.b, rtol=1e-9, atol=1e-10)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_length_of_a_direction_does_not_matter() -> None:
    short, long = (rows_at(sc.Axis("one", "z", (-size, 0.0, size)), some_states(2)) for size in (1.0, 1e308))
    for one, other in zip(short, long, strict=True):
        np.testing.assert_allclose(other.A, one.A, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(other.violation, one.violation, rtol=1e-14, atol=1e-14)


def test_at_the_target_every_row_is_finite_and_has_full_rank() -> None:
    q = np.zeros(N)
    for constraint, rank in (
        (sc.Pose("one", (0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)), 6),
        (sc.Pose("one", (0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0), relative_to="two"), 6),
        (sc.Axis("one", "z", (0.0, 0.0, 2.0)), 2),
    ):
        rows = rows_at(constraint, [State(0.0, q, np.ones(N))])[0]
        assert np.isfinite(rows.A).all() and np.isfinite(rows.b).all()
        assert rows.violation == pytest.approx(np.zeros(len(rows.b)), abs=1e-15)
        assert np.linalg.matrix_rank(rows.A) == rank


def test_rows_are_named_by_what_they_measure() -> None:
    task = {
        "box": sc.Pose("one", (0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)),
        "at": sc.Position("one", (0.0, 0.0, 0.0)),
        "turned": sc.Orientation("one", rpy=(0.0, 0.0, 0.0)),
        "up": sc.Axis("one", "z", (0.0, 0.0, 1.0)),
        "apart": sc.Distance("one", "two", 0.4),
        "balance": sc.CentreOfMass(("x", "y"), (0.0, 0.0)),
        "level": sc.CentreOfMass(("z",), (0.0,)),
        "rest": sc.Posture({"one_x": 0.0, "one_y": 0.0}),
        "lift": sc.Posture({"one_z": 0.0}),
    }
    q = np.linspace(0.1, 0.9, N)
    found = Model(PLANT, task, State(0.0, q, np.zeros(N))).task_rows
    assert [row.name for row in found] == [
        *["box.x", "box.y", "box.z", "box.rx", "box.ry", "box.rz"],
        *["at.x", "at.y", "at.z", "turned.rx", "turned.ry", "turned.rz", "up.0", "up.1", "apart"],
        *["balance.x", "balance.y", "level", "rest.0", "rest.1", "lift"],
    ]
    assert {row.kind for row in found} == {"holonomic"} and all(row.degree == 2 for row in found)


def test_the_pose_error_is_the_position_and_the_rotation_vector() -> None:
    turn = np.array([0.3, -0.5, 0.8])
    a, b, c = Rotation.from_rotvec(turn).as_euler("XYZ")  # intrinsic x, y, z: the coordinates of the stand-in
    q = np.concatenate([[1.0, 2.0, 3.0, a, b, c], np.zeros(6)])
    rows = rows_at(sc.Pose("one", (0.5, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)), [State(0.0, q, np.zeros(N))])[0]
    np.testing.assert_allclose(rows.violation, [0.5, 2.0, 3.0, *turn], atol=1e-14)


@pytest.mark.parametrize(("call", "sentence"), [(*call, *said) for _, call, said in table("frame_tasks")])
def test_a_task_that_is_wrong_or_does_not_fit_the_robot_is_refused_by_name(call: str, sentence: str) -> None:
    with pytest.raises(TaskError) as error:
        model(eval(call))
    assert str(error.value).startswith(sentence)


def test_only_a_robot_has_frames_and_a_centre_of_mass() -> None:
    with pytest.raises(TaskError, match=r"tool: expected a robot, got Masses \(only a robot has frames\)"):
        model(sc.Position("one", (0, 0, 0)), Masses("x", "u"))
    with pytest.raises(TaskError, match=r"tool: expected a robot, got Masses \(only a robot has a centre of mass\)"):
        model(sc.CentreOfMass(("x",), (0,)), Masses("x", "u"))
    assert (
        model(sc.Posture({"x": 0.2}), Masses("x", "u")).matrices(State(0.0, np.ones(1), np.ones(1))).task.violation
        == 0.8
    )


SINGULAR: dict[str, tuple[Constraint, Array]] = {
    "half a turn from its reference": (sc.Orientation("one", rpy=(0.0, 0.0, 0.0)), np.radians([0, 0, 0, 176, 0, 0])),
    "at sin(psi) = 0, where ZYZ angles are undefined": (EulerZYZ("one", (0.0, 0.5, 0.0)), np.radians([0] * 5 + [30])),
    "its axis points opposite to its direction, or the direction passes through zero": (
        sc.Axis("one", "z", (0.0, 0.0, 1.0)),
        np.radians([0, 0, 0, 0, 176, 0]),
    ),
    "its value is not above 0, or its two points are in one place, so that it has no direction": (
        sc.Distance("one", (0.2, 0.3, 0.4), 0.5),
        np.array([0.2, 0.3, 0.4, 0.0, 0.0, 0.0]),
    ),
}
LAW = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=3.0, beta=4.0))


@pytest.mark.parametrize("sentence", SINGULAR)
def test_a_start_in_a_singular_pose_is_refused_in_one_sentence_that_names_the_task(sentence: str) -> None:
    constraint, q = SINGULAR[sentence]
    with pytest.raises(TaskError) as error:
        sc.simulate(FreeBodies(count=1), {"tool": constraint}, LAW, q=q, duration=0.1)
    assert str(error.value).startswith(f"tool: {sentence} at the start, one_x = ")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("engine", ["numpy", "vm"])
def test_a_run_that_reaches_half_a_turn_stops_with_a_sentence_that_names_the_task(engine: str) -> None:
    task = {"tool": sc.Orientation("one", rpy=(0.0, 0.0, 0.0))}
    q, v = {f"one_{x}": 0.0 for x in "xyzabc"} | {"one_a": np.radians(165)}, {"one_a": 40.0}
    run = sc.simulate(FreeBodies(count=1), task, LAW, q=q, v=v, duration=0.1, engine=engine)
    assert "tool: half a turn from its reference at t = 0.00" in run.summary()["error"]
    assert run.t[-1] == pytest.approx(np.radians(174.27 - 165) / 40, abs=2e-3)


def test_a_distance_whose_value_falls_to_0_ends_the_run_and_one_of_a_bound_does_not() -> None:
    q = dict(zip([f"one_{x}" for x in "xyzabc"], [0.5, 0, 0, 0, 0, 0], strict=True))
    falling = sc.Distance("one", (0.0, 0.0, 0.0), "0.5 - t")
    run = sc.simulate(FreeBodies(count=1), {"tool": falling}, LAW, q=q, v={"one_x": -1.0}, duration=1.0, step=0.01)
    assert "tool: its value is not above 0" in run.summary()["error"]
    assert run.t[-1] == pytest.approx(0.5, abs=0.011)
    least = sc.DistanceBound("one", (0.0, 0.0, 0.0), "0.5 - t")
    state = State(1.0, np.array(list(q.values())), np.zeros(6))
    assert Model(FreeBodies(count=1), {"least": least}, state).matrices(state).task.violation == pytest.approx(1.0)


@pytest.mark.parametrize("degrees", [30.0, 150.0])
def test_an_orientation_error_obeys_the_polynomial_of_its_correction(degrees: float) -> None:
    axis = np.array([2.0, -1.0, 2.0]) / 3.0
    start = Rotation.from_euler("xyz", [0.3, 0.2, -0.4]) * Rotation.from_rotvec(np.radians(degrees) * axis)
    q = dict(zip(PLANT.coordinates, [0.1, 0.2, 0.3, *start.as_euler("XYZ")], strict=False))
    task = {"tool": sc.Orientation("one", rpy=("0.3 + 0.5*sin(t)", "0.2 - t**2", "-0.4*cos(2*t)"))}
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5.0, beta=5.0))
    run = sc.simulate(FreeBodies(count=1), task, law, q=q, duration=2.0, engine="vm")
    # phi'(0) is not 0, because the reference moves: phi = (phi0 + (phi0' + 5 phi0) t) exp(-5 t)
    phi = np.array([run[f"violation.tool.{part}"] for part in ("rx", "ry", "rz")]).T
    first = Model(FreeBodies(count=1), task, State(0.0, run.q[0], run.v[0])).matrices(State(0.0, run.q[0], run.v[0]))
    rate = first.task.violation_rate
    expected = (phi[0] + np.outer(run.t, rate + 5.0 * phi[0])) * np.exp(-5.0 * run.t)[:, None]
    assert np.linalg.norm(phi[0]) == pytest.approx(np.radians(degrees), abs=1e-12)
    np.testing.assert_allclose(phi, expected, atol=1e-8)


@pytest.mark.parametrize("angles", [(0.3, 1.2, -0.4), (3.0, 0.2, -3.0), (-2.9, 3.0, 0.1)])
def test_zyz_angles_are_those_of_an_independent_program_and_their_error_is_wrapped(angles: Any) -> None:
    R = Rotation.from_euler("ZYZ", angles)  # intrinsic
    q = np.concatenate([[0.0] * 3, R.as_euler("XYZ"), np.zeros(6)])
    wanted = np.array(angles) + np.array([6.0, 0.1, -6.1])  # almost a whole turn away
    rows = rows_at(EulerZYZ("one", tuple(wanted)), [State(0.0, q, np.zeros(N))])[0]
    np.testing.assert_allclose(rows.violation, [2 * np.pi - 6.0, -0.1, 6.1 - 2 * np.pi], atol=1e-12)
    # the unwrapped derivatives are those of the angles themselves
    derived = rows_at(sc.Holonomic(lambda q, t: zyz(PLANT.pose("one", q)[0])), [State(0.0, q, np.ones(N))])[0]
    moving = rows_at(EulerZYZ("one", tuple(wanted)), [State(0.0, q, np.ones(N))])[0]
    np.testing.assert_allclose(moving.A, derived.A, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moving.b, derived.b, rtol=1e-9, atol=1e-10)


class Ramp:
    """A function of time that stands for a column of a file."""

    def __call__(self, t: Any) -> Any:
        return 0.3 * t**2

    def rate(self, t: Any) -> Any:
        return 0.6 * t

    def beyond(self, t: float) -> str | None:
        return None


def test_targets_use_functions_of_time_by_name() -> None:
    signals = {"path_x": Ramp(), "unused": Ramp()}
    state = some_states(1)[0]
    for constraint, same in (
        (sc.Position("one", ("path_x", "1 + der(path_x)", 0.2)), sc.Position("one", ("0.3*t**2", "1 + 0.6*t", 0.2))),
        (sc.Orientation("one", rpy=("path_x", 0.0, 0.1)), sc.Orientation("one", rpy=("0.3*t**2", 0.0, 0.1))),
        (sc.Posture({"one_x": "path_x"}), sc.Posture({"one_x": "0.3*t**2"})),
        (sc.Distance("one", "two", "1 + path_x"), sc.Distance("one", "two", "1 + 0.3*t**2")),
    ):
        bound = constraint.with_signals(signals)
        assert list(bound.signals) == ["path_x"] and not constraint.signals
        found, expected = (rows_at(each, [state])[0] for each in (bound, same))
        for field in ("A", "b", "violation", "violation_rate"):
            np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-12, atol=1e-13)
        with pytest.raises(TaskError, match=r"unknown word 'path_x'|'path_x' is not a coordinate"):
            model(constraint)


@pytest.mark.parametrize(("degrees", "warns"), [(149.0, False), (151.0, True), (-170.0, True)])
def test_a_start_far_from_the_reference_is_warned_of(degrees: float, warns: bool) -> None:
    task = {
        "tool": sc.Pose("one", (0.0, 0.0, 0.0), rpy=(0.0, 0.0, 0.0)),
        "up": sc.Axis("one", "z", (0.0, 0.0, 1.0)),
    }
    q = {f"one_{x}": 0.0 for x in "xyzabc"} | {"one_a": np.radians(degrees)}
    run = sc.simulate(FreeBodies(count=1), task, LAW, q=q, duration=0.002, engine="vm")
    found = [text for text in run.metadata["warnings"] if "from its reference at the start" in text]
    assert [text.split(":")[0] for text in found] == (["task.tool", "task.up"] if warns else [])
    for text in found:
        assert f": {abs(degrees):.0f} deg from its reference at the start: from 174 deg on, the error has no" in text


def test_closed_form_rows_take_a_third_of_the_operations_of_differentiation() -> None:
    robot = built(arm7())
    q = np.full(7, 0.4)
    at = State(0.0, q, np.ones(7))

    def place(q: Array, t: Any) -> Array:
        return robot.frame_motions(["tool"], q, np.zeros(7))["tool"].position - np.array([0.3, 0.1, t])

    ours = Model(robot, {"tool": sc.Position("tool", (0.3, 0.1, "t"))}, at).rows_kernel
    derived = Model(robot, {"tool": sc.Holonomic(place)}, at).rows_kernel
    assert ours.function.n_instructions() < 0.5 * derived.function.n_instructions()
    pose = Model(robot, {"tool": sc.Pose("tool", (0.3, 0.1, "t"), rpy=(0.0, 0.0, 0.0))}, at).rows_kernel
    assert pose.function.n_instructions() < 1200


def test_unknown_frames_of_a_robot_are_all_named_at_once() -> None:
    robot = built(arm7())
    at = State(0.0, np.zeros(7), np.zeros(7))
    task = {
        "a": sc.Position("tol", (0, 0, 0)),
        "b": sc.Distance("tool", "link33", 0.2),
        "c": sc.Posture({"joint77": 0.0}),
    }
    with pytest.raises(TaskError) as error:
        Model(robot, task, at)
    assert str(error.value).splitlines() == [
        "a: there is no frame 'tol' (did you mean 'tool'?)",
        "b: there is no frame 'link33' (did you mean 'link3'?)",
        "c: there is no joint 'joint77' (did you mean 'joint7'?)",
    ]
