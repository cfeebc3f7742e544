"""Tasks on the frames of real robots: an arm, a tree with mimic joints, and a free base that carries an arm."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from robot_trees import arm7, built, random_state, random_tree

import servoctl as sc
from servoctl.errors import TaskError
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.types import Array, State
from tests.faces import rows_of

ROBOTS = {
    "arm": (lambda: built(arm7()), "tool", "link3"),
    "tree with mimics": (lambda: built(random_tree(3, 7, mimics=2)), "link6", "link2"),
    "free base": (lambda: built(arm7(3), base="free"), "tool", "link0"),
}
PLACE = ("0.1 + 0.2*sin(t)", 0.3, "t**2")


def place(t: Any) -> Array:
    return np.array([0.1 + 0.2 * np.sin(t), 0.3, t**2])


@pytest.mark.parametrize("name", ROBOTS)
def test_rows_equal_automatic_differentiation_through_the_kinematics(name: str) -> None:
    make, tool, base = ROBOTS[name]
    robot = make()
    n = len(robot.coordinates)

    def pose(q: Array, frame: str) -> tuple[Array, Array]:
        motion = robot.frame_motions([frame], q, np.zeros(n))[frame]
        return motion.rotation, motion.position

    def seen(q: Array) -> tuple[Array, Array]:
        (R, p), (Rb, pb) = pose(q, tool), pose(q, base)
        return Rb.T @ R, Rb.T @ (p - pb)

    def log(E: Array) -> Array:
        angle = np.arccos((E[0, 0] + E[1, 1] + E[2, 2] - 1.0) / 2.0)
        vee = np.array([E[2, 1] - E[1, 2], E[0, 2] - E[2, 0], E[1, 0] - E[0, 1]])
        return angle / (2.0 * np.sin(angle)) * vee

    cases: dict[str, tuple[Constraint, Callable[[Array, Any], Any]]] = {
        "pose": (
            sc.Pose(tool, PLACE, rpy=(0.0, 0.0, 0.0)),
            lambda q, t: np.concatenate([pose(q, tool)[1] - place(t), log(pose(q, tool)[0])]),
        ),
        "relative": (
            sc.Pose(tool, PLACE, rpy=(0.0, 0.0, 0.0), relative_to=base),
            lambda q, t: np.concatenate([seen(q)[1] - place(t), log(seen(q)[0])]),
        ),
        "distance": (
            sc.Distance(tool, base, 0.3),
            lambda q, t: np.sqrt(seen(q)[1] @ seen(q)[1]) - 0.3,
        ),
        "com": (
            sc.CentreOfMass("xyz", PLACE),
            lambda q, t: robot.centre_of_mass(q, np.zeros(n)).position - place(t),
        ),
    }
    q, v = random_state(robot, 5)
    at = State(0.7, q, v)
    for case, (constraint, phi) in cases.items():
        ours = rows_of(robot, {"task": constraint}, at)
        derived = rows_of(robot, {"task": sc.Holonomic(phi)}, at)
        for field in ("A", "b", "violation", "violation_rate"):
            found, expected = getattr(ours, field), getattr(derived, field)
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * scale, err_msg=f"{case}: {field}")


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
