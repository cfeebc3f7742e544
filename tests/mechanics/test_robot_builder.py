"""Robots from descriptions: names, merged links, payloads, frames, parameters, and what is refused."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.engine.parameters import parameter_names, structure
from servoctl.errors import ConfigError, PlantError
from servoctl.mechanics.model import Model
from servoctl.mechanics.spatial.description import Description, JointDescription, LinkDescription, inertia_note
from servoctl.mechanics.spatial.placement import Inertial, Placement
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import State
from tests.robot_trees import arm7, built, random_state, random_tree

ROD = Inertial(1.0, (0.0, 0.0, 0.2), (0.01, 0.01, 0.001, 0.0, 0.0, 0.0))
OFFSET = Placement.at((0.0, 0.0, 0.3))


def chain(*joints: JointDescription, massive: tuple[str, ...] = (), name: str = "chain") -> Description:
    """Links `base`, then the child of each joint; the ones named have mass."""
    names = ["base", *(joint.child for joint in joints)]
    return Description(name, tuple(LinkDescription(n, ROD if n in massive else None) for n in names), joints)


def hinge(name: str, parent: str, child: str, **options: Any) -> JointDescription:
    return JointDescription(name, "revolute", parent, child, OFFSET, **options)


def refusal(make: Callable[[RobotBuilder], None]) -> list[str]:
    builder = RobotBuilder()
    make(builder)
    with pytest.raises(PlantError) as caught:
        builder.plant()
    assert str(caught.value) == "\n".join(builder.problems)
    return builder.problems


def test_coordinates_and_actuators_have_the_names_of_joints() -> None:
    robot = built(arm7(3), motors=["joint1", "joint3"])
    assert dict(robot.coordinates) == {"joint1": "rad", "joint2": "rad", "joint3": "rad"}
    assert dict(robot.actuators) == {"joint1": "N m", "joint3": "N m"}
    np.testing.assert_array_equal(robot.actuation(np.zeros(3), 0.0), [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])


def test_a_slide_is_a_coordinate_in_metres() -> None:
    robot = built(chain(JointDescription("z", "prismatic", "base", "a"), massive=("a",)))
    assert dict(robot.coordinates) == {"z": "m"}
    assert dict(robot.actuators) == {"z": "N"}


def test_two_robots_have_prefixes() -> None:
    builder = RobotBuilder()
    builder.add(arm7(2), "left")
    builder.add(arm7(2), "right", base="free")
    robot = builder.plant()
    ends = ["x", "y", "z", "qw", "qx", "qy", "qz"]
    joints = [f"left_joint{i}" for i in (1, 2)], [f"right_joint{i}" for i in (1, 2)]
    assert list(robot.coordinates) == [*joints[0], *(f"right_base_{end}" for end in ends), *joints[1]]
    assert list(robot.actuators) == [*joints[0], *joints[1]]
    assert {"left_link0_m", "right_link2_I[5]", "gravity[2]"} <= set(parameter_names(robot))
    assert {"world", "left_tool", "right_link0"} <= {frame.name for frame in robot.tree.frames}


def test_names_become_identifiers() -> None:
    joints = hinge("shoulder-pan", "base", "upper arm"), hinge("der", "upper arm", "2nd"), hinge("class", "2nd", "tip")
    robot = built(chain(*joints, massive=("tip",)))
    assert list(robot.coordinates) == ["shoulder_pan", "der_", "class_"]
    assert [frame.name for frame in robot.tree.frames] == ["world", "base", "upper_arm", "_2nd", "tip"]


def test_two_names_that_become_one_are_shown_both() -> None:
    joints = hinge("a-b", "base", "x"), hinge("a.b", "x", "y")
    assert refusal(lambda builder: builder.add(chain(*joints, massive=("y",)))) == [
        "chain: joint 'a.b': its name 'a_b' is also that of chain: joint 'a-b' (rename one of them)"
    ]


def test_a_joint_may_not_have_the_name_of_a_parameter() -> None:
    joints = hinge("tip_m", "base", "tip"), hinge("gravity", "tip", "end")
    assert refusal(lambda builder: builder.add(chain(*joints, massive=("tip", "end")))) == [
        "chain: joint 'gravity': its name 'gravity' is also that of the plant's gravity (rename one of them)",
        "chain: link 'tip': parameter 'm': its name 'tip_m' is also that of chain: joint 'tip_m' (rename one of them)",
    ]


def test_a_root_without_mass_that_is_called_world_is_the_world() -> None:
    joint = JointDescription("j", "revolute", "world", "a", OFFSET)
    description = Description("r", (LinkDescription("world"), LinkDescription("a", ROD)), (joint,))
    robot = built(description, at=Placement.at((1.0, 0.0, 0.0)))
    motions = robot.frame_motions(["world", "a"], np.zeros(1), np.zeros(1))
    np.testing.assert_array_equal(motions["world"].position, np.zeros(3))
    np.testing.assert_allclose(motions["a"].position, [1.0, 0.0, 0.3])


def test_a_link_that_moves_must_have_mass_on_it_or_behind_it() -> None:
    massless = chain(hinge("j1", "base", "a"), hinge("j2", "a", "b"), hinge("j3", "b", "c"), massive=("b",))
    assert refusal(lambda builder: builder.add(massless, "left")) == [
        "left: link 'c' on joint 'j3': it moves no mass, nor does a link behind it "
        "(give it mass: an <inertial> in its file, or a payload in `bodies`)"
    ]


def test_links_without_mass_may_lie_between() -> None:
    robot = built(chain(hinge("j1", "base", "a"), hinge("j2", "a", "b", axis=(0.0, 1.0, 0.0)), massive=("b",)))
    q, _ = random_state(robot, 0)
    assert np.linalg.eigvalsh(robot.mass_matrix(q, 0.0))[0] > 1e-6


def test_a_payload_gives_a_link_its_mass() -> None:
    builder = RobotBuilder()
    builder.add(chain(hinge("j1", "base", "a")))
    builder.body("box", "a", Placement.at((0.0, 0.5, 0.0)), 3.0, size=(0.3, 0.4, 0.2))
    robot = builder.plant()
    assert parameter_names(robot)[3:] == ["box_m", "box_com[0]", "box_com[1]", "box_com[2]"]
    # about x through the joint: m (y^2 + z^2)/12 + m d^2
    inertia = 3.0 * (0.4**2 + 0.2**2) / 12 + 3.0 * 0.5**2
    np.testing.assert_allclose(robot.mass_matrix(np.zeros(1), 0.0), [[inertia]])
    heavier = replace(robot, box_m=6.0)
    np.testing.assert_allclose(heavier.mass_matrix(np.zeros(1), 0.0), [[2.0 * inertia]])


def test_a_free_base_without_mass_is_refused() -> None:
    assert refusal(lambda builder: builder.add(chain(), base="free")) == [
        "chain: no link on its free base has mass (give it mass: an <inertial> in its file, or a payload in `bodies`)"
    ]


def test_a_mimic_joint_needs_no_mass_of_its_own() -> None:
    fingers = hinge("f1", "base", "a"), hinge("f2", "base", "b", mimic="f1", multiplier=-1.0)
    robot = built(chain(*fingers, massive=("a",)))
    assert list(robot.coordinates) == ["f1"]


def test_chains_of_mimic_joints_end_at_the_free_one() -> None:
    joints = (
        hinge("c", "base", "z", mimic="b", multiplier=2.0, offset=0.1),
        hinge("b", "base", "y", mimic="a", multiplier=-3.0, offset=0.5),
        hinge("a", "base", "x"),
    )
    robot = built(chain(*joints, massive=("x", "y", "z")))
    follower = robot.tree.joints[0]
    assert (follower.follows, follower.multiplier, follower.offset) == (2, -6.0, 1.1)
    angle = robot.frame_motions(["z"], np.array([0.2]), np.array([1.0]))["z"].rotation
    turned = 2.0 * (-3.0 * 0.2 + 0.5) + 0.1  # about x
    np.testing.assert_allclose(angle[1:, 1], [np.cos(turned), np.sin(turned)])


def test_a_mimic_joint_counts_its_damping_on_the_one_that_it_follows() -> None:
    joints = (
        hinge("a", "base", "x", damping=0.4),
        hinge("b", "base", "y", mimic="a", multiplier=-3.0, damping=0.2),
    )
    robot = built(chain(*joints, massive=("x", "y")))
    at_rest, moving = (robot.force(np.zeros(1), np.array([rate]), 0.0) for rate in (0.0, 2.0))
    np.testing.assert_allclose(moving - at_rest, [-2.0 * (0.4 + 9.0 * 0.2)])
    assert robot.energy(np.zeros(1), np.zeros(1), 0.0) is None


def test_mimics_that_follow_each_other_are_refused() -> None:
    joints = hinge("a", "base", "x", mimic="b"), hinge("b", "base", "y", mimic="a")
    assert refusal(lambda builder: builder.add(chain(*joints, massive=("x", "y"))))[:2] == [
        "joint 'a': mimic: 'a' is not a joint that moves by itself",
        "joint 'b': mimic: 'b' is not a joint that moves by itself",
    ]


def test_fixed_links_keep_their_parameters_and_move_as_one() -> None:
    joints = hinge("j", "base", "a"), JointDescription("f", "fixed", "a", "b", Placement.at((0.0, 0.4, 0.0)))
    robot = built(chain(*joints, massive=("a", "b")))
    assert len(robot.tree.joints) == 1
    separate = robot.mass_matrix(np.zeros(1), 0.0)
    assert replace(robot, b_m=3.0).mass_matrix(np.zeros(1), 0.0)[0, 0] == pytest.approx(
        separate[0, 0] + 2.0 * (0.4**2 + 0.2**2)
    )


def test_frames_may_be_added_in_any_order() -> None:
    builder = RobotBuilder()
    builder.frame("tip", "middle", Placement.at((0.1, 0.0, 0.0)))
    builder.frame("middle", "a", Placement.at((0.0, 0.0, 0.0), (0.0, 0.0, np.pi / 2)))
    builder.add(chain(hinge("j", "base", "a"), massive=("a",)))
    robot = builder.plant()
    motion = robot.frame_motions(["tip"], np.zeros(1), np.zeros(1))["tip"]
    np.testing.assert_allclose(motion.position, [0.0, 0.1, 0.3], atol=1e-15)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    def make(builder: RobotBuilder) -> None:
        builder.add(arm7(2), motors=["joint1", "joint4"], base="loose")  # type: ignore[arg-type]
        builder.add(arm7(1), "other", at=OFFSET, base="free")
        builder.body("box", "tol", OFFSET, -1.0, size=(0.1, 0.2, 0.0))
        builder.body("ball", "tool", OFFSET, 1.0, size=(0.1, 0.2, 0.3), com=(0.0, 0.0, 0.0))
        builder.body("link0", "tool", OFFSET, 1.0, inertia=(1.0, 1.0))
        builder.frame("a", "b", OFFSET)
        builder.frame("b", "a", OFFSET)
        builder.frame("my grip", "tool", OFFSET)
        builder.loop("shut", "glue", "tool", "bx")
        builder.loop("shut", "weld", "tool", "tool")

    assert refusal(make) == [
        "arm: base: expected fixed or free, got 'loose'",
        "arm: motors: joint4: there is no such joint (did you mean 'joint2'?)",
        "other: at: a free base has no fixed place (give its start in initial.q)",
        "bodies: box: m: expected a positive mass [kg], got -1",
        "bodies: box: size: expected three positive lengths [m], got [0.1, 0.2, 0.0]",
        "bodies: ball: size gives centre of mass and inertia already (leave out com and inertia)",
        "bodies: link0: inertia: expected 6 numbers, got 2",
        "loops: shut: there is no 'glue' (known: weld, hinge, slide, point)",
        "loops: shut: its name 'shut' is also that of loops: shut (rename one of them)",
        "bodies: link0: its name 'link0' is also that of arm: link 'link0' (rename one of them)",
        "frames: my grip: it is no name (write it as 'my_grip')",
        "bodies: box: on: there is no frame 'tol' (did you mean 'tool'?)",
        "loops: shut: there is no frame 'bx' (did you mean 'box'?)",
        "loops: shut: both frames are 'tool' (a loop joins two frames)",
    ]


def test_frames_that_carry_each_other_are_refused() -> None:
    def make(builder: RobotBuilder) -> None:
        builder.add(arm7(1))
        builder.frame("a", "b", OFFSET)
        builder.frame("b", "a", OFFSET)

    assert refusal(make) == ["frames: on: they carry each other, a on b, b on a (put one of them on a link)"]


def test_an_inertia_of_a_payload_that_no_body_has_is_noted() -> None:
    builder = RobotBuilder()
    builder.add(arm7(1))
    builder.body("box", "tool", OFFSET, 1.0, inertia=(1.0, 0.1, 0.1, 0.0, 0.0, 0.0))
    assert builder.plant().tree.notes == (
        "bodies: box: no rigid body has this inertia: its principal moments are 0.1, 0.1, 1 kg m^2 "
        "(the largest may be at most the sum of the others)",
    )
    assert inertia_note((1.0, 1.0, -0.1, 0.0, 0.0, 0.0)) == (
        "no rigid body has this inertia: its principal moments are -0.1, 1, 1 kg m^2 (none may be negative)"
    )
    assert inertia_note((1.0, 0.5, 0.5, 0.0, 0.0, 0.0)) is None


def test_parameters_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(PlantError, match=r"^arm: gravity: expected 3 numbers, got 2\narm: link0_com: expected 3"):
        replace(built(arm7(1)), gravity=(0.0, 0.0), link0_com=(0.0,))
    with pytest.raises(PlantError, match=r"^arm: link1_m: expected a mass of at least 0 kg, got -1$"):
        replace(built(arm7(1)), link1_m=-1.0)


def test_other_parameters_need_no_new_tracing() -> None:
    robot = built(arm7(3))
    q, v = random_state(robot, 0)
    model = Model(robot, {}, State(0.0, q, v))
    other = replace(robot, link2_m=9.0, gravity=(0.0, 1.0, 0.0))
    assert structure(other) == structure(robot)
    same = model.of(other, {}, State(0.0, q, v))
    np.testing.assert_allclose(same.matrices(State(0.0, q, v)).Q, other.force(q, v, 0.0), atol=1e-12)
    assert not np.allclose(other.force(q, v, 0.0), robot.force(q, v, 0.0))


def test_a_robot_survives_pickling() -> None:
    robot = replace(built(random_tree(0, 4, mimics=1)), link0_m=7.5)
    copy = pickle.loads(pickle.dumps(robot))
    assert copy == robot and type(copy) is type(robot) and structure(copy) == structure(robot)


def test_the_skeleton_runs_from_base_to_tips() -> None:
    robot = built(arm7())
    (line,) = robot.links(np.zeros(7)).values()
    np.testing.assert_allclose(line[[0, 1, -1]], [[0, 0, 0], [0, 0, 0.333], [0.088, 0, 0.926]], atol=1e-12)
    joints = hinge("a", "base", "trunk"), hinge("b", "trunk", "left"), hinge("c", "trunk", "right")
    lines = built(chain(*joints, massive=("left", "right"))).links(np.zeros(3))
    assert list(lines) == ["left", "right"]
    np.testing.assert_allclose(lines["left"], [[0, 0, 0.3], [0, 0, 0.6]])


def test_the_skeleton_has_the_same_points_where_links_meet() -> None:
    slide = JointDescription("slide", "prismatic", "trunk", "tool", Placement.at((0.0, 0.0, 0.0)))
    robot = built(chain(hinge("turn", "base", "trunk"), slide, massive=("tool",)))
    apart, together = ([*robot.links(np.array([0.0, slid])).values()] for slid in (0.2, 0.0))
    assert [line.shape for line in apart] == [line.shape for line in together] == [(3, 3)]
    np.testing.assert_array_equal(together[0][1], together[0][2])


def test_names_that_do_not_exist_are_met_with_the_nearest() -> None:
    robot = built(arm7(2))
    with pytest.raises(PlantError, match=r"^there is no frame 'tol' \(did you mean 'tool'\?\)$"):
        robot.frame_motions(["tol"], np.zeros(2), np.zeros(2))
    with pytest.raises(PlantError, match=r"^there is no joint 'joint3' \(did you mean 'joint2'\?\)$"):
        robot.tree.joint("joint3")
    with pytest.raises(PlantError, match=r"^r: there is no centre of mass: nothing has mass$"):
        built(Description("r", (LinkDescription("a"),), ())).centre_of_mass(np.zeros(0), np.zeros(0))


def test_a_robot_runs_under_a_law() -> None:
    """Two arms hold their joints by computed torques."""
    robot: Robot = built(arm7(2))
    law = servoctl.ConstraintFollowing(correction=servoctl.Baumgarte(5.0, 5.0))
    task = {"one": servoctl.Holonomic("joint1 - 0.2*sin(t)"), "two": servoctl.Holonomic("joint2 - 0.5")}
    run = servoctl.simulate(robot, task, law, q=[0.0, 0.5], v=[0.2, 0.0], duration=0.2)
    assert np.abs(run["violation.one"]).max() < 1e-9


def test_a_start_in_python_may_leave_out_joints_of_a_robot() -> None:
    first = hinge("a", "base", "trunk", lower=0.2, upper=1.0)
    robot = built(chain(first, hinge("b", "trunk", "tip"), massive=("tip",)))
    run = servoctl.simulate(robot, {}, None, q={"b": 0.5}, duration=0.001)
    assert [run["q.a"][0], run["q.b"][0]] == [0.2, 0.5]  # a: 0, moved inside its limits
    with pytest.raises(ConfigError, match=r"q\.c: there is no coordinate 'c'"):
        servoctl.simulate(robot, {}, None, q={"c": 0.5}, duration=0.001)
