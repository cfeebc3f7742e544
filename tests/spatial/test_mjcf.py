"""The MJCF reader against MuJoCo itself, where it is installed, and its refusals."""

import sys
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import ConfigError, MissingPackageError
from servoctl.mechanics.spatial.mjcf import read_mjcf
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from tests.refused import table

pytest.importorskip("mujoco", reason="mujoco is not installed (pip install mujoco)")

ARM = """<mujoco model="arm">
  <compiler angle="radian" autolimits="true"/>
  <option gravity="0 0 -9.81"><flag contact="disable"/></option>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="base" pos="0.1 0.2 0.3" euler="0.1 0.2 0.3">
      <joint name="lift" type="slide" axis="0 0 1" ref="0.2" range="-1 1" damping="0.3"/>
      <joint name="turn" axis="0 0.6 0.8" pos="0.05 0 0.1" ref="0.4"/>
      <geom type="box" size="0.1 0.2 0.3" mass="2"/>
      <body name="fore" pos="0 0.1 0.4" quat="0.8 0.6 0 0">
        <joint name="elbow" axis="1 0 0" pos="0 -0.1 0.05" range="-2 2"/>
        <geom type="capsule" size="0.05 0.2" mass="1" pos="0 0 0.2" euler="0.3 0 0"/>
        <body name="hand" pos="0 0 0.5"><geom type="sphere" size="0.07" mass="0.3" pos="0.02 0 0"/></body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" gear="50" forcerange="-2 2"/></actuator>
</mujoco>"""

FLOATING = """<mujoco>
  <option gravity="0 0 -9.81"><flag contact="disable"/></option>
  <worldbody>
    <body name="floor"><geom type="box" size="1 1 1"/></body>
    <body name="trunk" pos="0 0 0.5">
      <freejoint name="root"/>
      <geom type="box" size="0.2 0.1 0.05" mass="5" pos="0.03 0 0"/>
      <body name="leg" pos="0.2 0 0">
        <joint name="hip" axis="0 1 0"/><geom type="capsule" size="0.02 0.2" mass="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""


def written(folder: Path, content: str) -> Path:
    path = folder / "robot.xml"
    path.write_text(content)
    return path


def plant(path: Path) -> Robot:
    builder = RobotBuilder()
    builder.add(read_mjcf(path))
    return builder.plant()


def test_without_mujoco_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    path = written(tmp_path, ARM)
    with pytest.raises(MissingPackageError) as error:
        read_mjcf(path)
    assert str(error.value) == f"{path}: it needs MuJoCo (pip install 'servoctl[mujoco]')"


def world(inside: str) -> str:
    return f"<mujoco><worldbody>{inside}</worldbody></mujoco>"


@pytest.mark.parametrize(("content", "expected"), [(*words, said) for _, words, said in table("mjcf")])
def test_a_wrong_file_is_refused_in_a_sentence_for_each_mistake(
    content: str, expected: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, eval(content, {"world": world, "ARM": ARM}))
    with pytest.raises(ConfigError) as error:
        read_mjcf(path)
    for problem, sentence in zip(error.value.problems, expected, strict=True):
        assert problem.startswith(f"{path}: {sentence}") and "\n" not in problem
    assert not Path("MUJOCO_LOG.TXT").exists()


def test_limits_and_efforts_are_read(tmp_path: Path) -> None:
    joints = {joint.name: joint for joint in read_mjcf(written(tmp_path, ARM)).joints}
    assert (joints["lift"].lower, joints["lift"].upper, joints["lift"].damping) == (-1.0, 1.0, 0.3)
    assert (joints["turn"].kind, joints["turn"].lower, joints["turn"].effort) == ("continuous", None, None)
    assert (joints["elbow"].kind, joints["elbow"].effort) == ("revolute", (-100.0, 100.0))


def test_geoms_are_shapes(tmp_path: Path) -> None:
    links = {link.name: link for link in read_mjcf(written(tmp_path, ARM)).links}
    assert [(shape.kind, shape.size) for shape in links["base"].shapes] == [("box", (0.2, 0.4, 0.6))]
    assert [shape.kind for shape in links["fore"].shapes] == ["cylinder", "sphere", "sphere"]
    assert links["world"].shapes == ()  # planes are not drawn


def test_a_free_joint_at_the_root_is_a_free_base(tmp_path: Path) -> None:
    path = written(tmp_path, FLOATING)
    description = read_mjcf(path)
    assert (description.base, description.links[0].name) == ("free", "trunk")
    assert description.notes == ("floor: a body that does not move is left out beside a free one",)
    robot = plant(path)
    assert list(robot.coordinates)[-1] == "hip"


LEFT_OUT = """<mujoco>
  <option gravity="0 0 -1.62"/>
  <worldbody>
    <body name="a" gravcomp="1">
      <joint name="j" stiffness="3" armature="0.1" frictionloss="0.2"/><geom size="0.1"/>
      <body name="b"><joint name="k"/><geom size="0.1"/></body>
    </body>
  </worldbody>
  <equality>
    <joint name="geared" joint1="j" joint2="k"/><joint name="more" joint1="j" polycoef="0 1 2 0 0" joint2="k"/>
  </equality>
  <tendon><fixed name="rope"><joint joint="j" coef="1"/></fixed></tendon>
</mujoco>"""


def test_what_is_left_out_is_a_note(tmp_path: Path) -> None:
    assert read_mjcf(written(tmp_path, LEFT_OUT)).notes == (
        "more: equality of joints is left out: its polynomial is not a line",
        "option: the file's gravity, [0, 0, -1.62], is not read (give it as `gravity`)",
        "j: its stiffness is left out",
        "a: its gravity compensation is left out",
        "rope: tendon is left out (close loops with `loops`)",
    )


@pytest.mark.parametrize(("entry", "count"), [("{mjcf: robot.xml}", 8), ("{mjcf: robot.xml, base: fixed}", 1)])
def test_the_base_of_a_config_is_as_the_file_says_unless_the_config_says_more(
    tmp_path: Path, entry: str, count: int
) -> None:
    written(tmp_path, FLOATING)
    (tmp_path / "fall.yaml").write_text(
        f"plant: {{robot: {entry}}}\ninitial: {{v: 0}}\nlaw: none\nrun: {{duration: 0.1}}\n"
    )
    run = sc.load(tmp_path / "fall.yaml", engine="numpy")
    assert len(run.loop.system.model.plant.coordinates) == count


LINKED = """<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="crank" pos="0 0 0"><joint name="drive" axis="0 1 0" armature="0.05" frictionloss="0.4"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02" mass="0.5"/>
      <body name="rod" pos="0 0 0.2"><joint name="knee" axis="0 1 0" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02" mass="0.7"/></body></body>
    <body name="rocker" pos="0.5 0 0"><joint name="swing" axis="0 1 0" ref="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02" mass="0.5"/></body>
    <body name="slave" pos="0 1 0"><joint name="follower" axis="0 1 0" ref="0.3" armature="0.02" frictionloss="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02" mass="0.5"/></body>
  </worldbody>
  <equality>
    <connect name="pin" body1="rod" body2="rocker" anchor="0.5 0 0"/>
    <joint name="belt" joint1="follower" joint2="drive" polycoef="0.1 -2 0 0 0"/>
  </equality>
  <actuator><motor name="m" joint="drive" gear="10" ctrlrange="-0.5 0.05"/></actuator>
</mujoco>"""


def test_equalities_of_a_file_are_loops_and_mimic_joints(tmp_path: Path) -> None:
    description = read_mjcf(written(tmp_path, LINKED))
    follower = next(joint for joint in description.joints if joint.name == "follower")
    # MuJoCo: q - 0.3 = 0.1 - 2 q_drive
    assert (follower.mimic, follower.multiplier, follower.offset) == ("drive", -2.0, pytest.approx(0.4, abs=1e-15))
    assert [(loop.name, loop.kind, loop.links) for loop in description.loops] == [("pin", "point", ("rod", "rocker"))]
    assert description.notes == ()
    robot = plant(written(tmp_path, LINKED))
    assert list(robot.coordinates) == ["drive", "knee", "swing"]
    rows = robot.passive_constraints(np.array([0.0, 0.0, 0.1]), 0.0)
    closed = rows["pin"].rows(robot, 0.0, np.array([0.0, 0.0, 0.1]), np.zeros(3)).violation
    np.testing.assert_allclose(np.asarray(closed, dtype=float), 0.0, atol=1e-15)  # as drawn: swing starts at its ref
    # the rotor of the follower counts by its transmission squared
    assert robot.tree.armature("drive") == pytest.approx(0.05 + 4 * 0.02, rel=1e-15)
    assert robot.tree.friction("drive") == pytest.approx(0.4 + 2 * 0.1, rel=1e-15)


def test_a_chain_of_equalities_follows_the_joint_with_the_motor(tmp_path: Path) -> None:
    belts = """<joint name="belt" joint1="follower" joint2="knee" polycoef="0.1 -2 0 0 0"/>
    <joint name="chain" joint1="swing" joint2="drive" polycoef="0 3 0 0 0"/>
    <joint name="shaft" joint1="drive" joint2="follower" polycoef="0 4 0 0 0"/>
    <joint name="twice" joint1="swing" joint2="knee" polycoef="0 1 0 0 0"/>"""
    before, after = LINKED.index("<connect"), LINKED.index("</equality>")
    description = read_mjcf(written(tmp_path, LINKED[:before] + belts + LINKED[after:]))
    found = {j.name: (j.multiplier, round(j.offset, 14)) for j in description.joints if j.mimic == "drive"}
    # 3 q_drive = q_swing - 0.1,   q_drive = 4 (q_follower - 0.3),   q_follower - 0.3 = 0.1 - 2 q_knee
    assert found == {"swing": (3.0, 0.1), "follower": (0.25, 0.3), "knee": (-0.125, 0.05)}
    assert description.notes == ("twice: equality of joints is left out: one of them follows the other already",)


def test_limits_of_a_robot_keep_both_ends_of_the_range_of_a_motor(tmp_path: Path) -> None:
    written(tmp_path, LINKED)
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {mjcf: robot.xml, motors: [drive]}, friction: robot, armature: {drive: 0.3}}\n"
        "initial: {q: {swing: 0.1}}\n"
        "task: [{name: turn, holonomic: drive - 0.1*sin(t)}]\n"
        "law: {correction: {baumgarte: {alpha: 5, beta: 5}}, limits: robot}\nrun: {duration: 0.1, period: 0.01}\n"
    )
    run = sc.load(tmp_path / "c.yaml", engine="vm")
    plant = run.loop.system.model.plant
    assert (run.system.law.allocation.lower, run.system.law.allocation.upper) == ((-5.0,), (0.5,))  # type: ignore[union-attr]
    assert plant.friction_coulomb == (pytest.approx(0.6),)
    assert plant.armature == (0.3,)


def test_rotors_of_a_robot_are_no_list_of_parameters(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(ARM.replace('name="lift"', 'name="lift" armature="3"'))
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {mjcf: robot.xml}}\ninitial: {}\nlaw: none\nrun: {duration: 0.1}\n"
    )
    expected = r"plant.parameters.armature: rotors are given by actuator \(give plant.armature: \{\w+: 0.02\}"
    for value in ("[0.1, 0.2]", "[0.1]", "0.3"):
        with pytest.raises(ConfigError, match=expected):
            sc.load(tmp_path / "c.yaml", [f"plant.parameters.armature={value}"])


def test_a_free_base_for_bodies_on_the_world_is_refused_with_what_to_do(tmp_path: Path) -> None:
    arm = '<body><joint name="h" axis="0 1 0"/><geom type="sphere" size="0.1" mass="1"/></body>'
    written(tmp_path, world(arm))
    config = tmp_path / "c.yaml"
    config.write_text("plant: {robot: {mjcf: robot.xml, base: free}}\ninitial: {v: 0}\nlaw: none\nrun: {duration: 1}\n")
    with pytest.raises(ConfigError, match="base: free: the file's root is the world itself \\(leave base out, or give"):
        sc.load(config)
