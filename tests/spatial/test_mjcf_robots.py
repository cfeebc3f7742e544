"""MJCF files as people write them, with nested classes, servos and motors: terms and torque limits against MuJoCo."""

from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.mechanics.spatial.mjcf import read_mjcf
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.types import Array

mujoco = pytest.importorskip("mujoco", reason="mujoco is not installed (pip install mujoco)")

DEFAULTS = """<mujoco>
  <default>
    <default class="arm">
      <joint axis="0 0 1" armature="0.1" damping="1" range="-170 170"/>
      <general biastype="affine" gainprm="2000" biasprm="0 -2000 -200" ctrlrange="-2.9 2.9" forcerange="-87 87"/>
      <default class="wrist">
        <joint damping="0.2" range="-100 120" frictionloss="0.3" actuatorfrcrange="-9 11"/>
        <position kp="300" kv="20" forcerange="-12 12"/>
        <default class="tool"><joint range="-30 40" armature="0.02" actuatorfrclimited="false"/></default>
      </default>
      <default class="geared"><motor gear="-50" ctrlrange="-2 2" forcerange="-1.5 1.8"/></default>
      <default class="finger"><joint type="slide" axis="0 1 0" range="0 0.04" damping="3"/></default>
      <default class="collision"><geom group="3" type="capsule" mass="0"/></default>
    </default>
  </default>
</mujoco>"""

ARM = """<mujoco model="arm">
  <compiler angle="degree" eulerseq="zyx" autolimits="true"/>
  <include file="defaults.xml"/>
  <worldbody>
    <body name="base" childclass="arm" pos="0.1 0 0.2" euler="30 20 10">
      <geom class="collision" size="0.1 0.1"/>
      <body name="link1" pos="0 0 0.3">
        <inertial mass="4.9" pos="0.004 0.002 -0.05" fullinertia="0.2 0.203 0.011 -0.0001 0.0068 0.019"/>
        <joint name="joint1"/>
        <geom class="collision" size="0.05 0.1"/>
        <body name="link2" quat="1 -1 0 0">
          <inertial mass="2.6" pos="0 -0.1 0.02" quat="0.9 0.1 0.2 0.3" diaginertia="0.03 0.02 0.012"/>
          <joint name="joint2" ref="20"/>
          <body name="link3" pos="0 -0.3 0" euler="90 0 15">
            <joint name="joint3" class="wrist"/>
            <geom type="capsule" fromto="0 0 0 0.1 0 0.3" size="0.04" density="800"/>
            <geom type="box" size="0.03 0.05 0.02" pos="0.1 0 0.3" mass="0.4"/>
            <body name="hand" pos="0.1 0 0.35">
              <joint name="joint4" class="tool" pos="0 0.01 0.02"/>
              <geom type="ellipsoid" size="0.04 0.05 0.06" mass="0.5"/>
              <body name="left" pos="0 0 0.06">
                <joint name="finger1" class="finger"/><geom type="box" size=".01 .01 .02" mass=".02"/>
              </body>
              <body name="right" pos="0 0 0.06" quat="0 0 0 1">
                <joint name="finger2" class="finger"/><geom type="box" size=".01 .01 .02" mass=".02"/>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="split"><joint joint="finger1" coef="0.5"/><joint joint="finger2" coef="0.5"/></fixed></tendon>
  <equality><joint joint1="finger1" joint2="finger2"/></equality>
  <actuator>
    <motor name="m1" class="geared" joint="joint1"/>
    <general name="a2" class="arm" joint="joint2"/>
    <position name="a3" class="wrist" joint="joint3"/>
    <velocity name="a4" joint="joint4" kv="10" ctrlrange="-1 1" forcerange="-4 5" gear="3"/>
    <general name="grip" class="arm" tendon="split"/>
  </actuator>
</mujoco>"""

LEGS = """<mujoco model="legs">
  <compiler angle="radian"/>
  <default>
    <default class="legs">
      <joint axis="0 1 0" damping="2" armature="0.01" frictionloss="0.2"/>
      <motor ctrlrange="-23.7 23.7"/>
      <default class="hip"><joint range="-1.5 3.4"/></default>
      <default class="knee"><joint range="-2.7 -0.8" pos="0 0 1e-2"/><motor ctrlrange="-45.4 45.4" gear=".5"/></default>
      <default class="foot"><geom size="0.022" pos="-0.002 0 -0.213" mass="0.1"/></default>
    </default>
  </default>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="trunk" pos="0 0 0.445" childclass="legs">
      <inertial pos="0.02 0 -0.005" quat="0 0.71 0 0.7" mass="6.9" diaginertia="0.107 0.098 0.024"/>
      <freejoint/>
      <geom type="box" size="0.18 0.05 0.06"/>
      <body name="left_thigh" pos="0 0.1 0">
        <joint name="left_hip" class="hip"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.213" mass="1.1"/>
        <body name="left_calf" pos="0 0 -0.213">
          <joint name="left_knee" class="knee"/><geom class="foot"/>
        </body>
      </body>
      <body name="right_thigh" pos="0 -0.1 0">
        <joint name="right_hip" class="hip"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.213" mass="1.1"/>
        <body name="right_calf" pos="0 0 -0.213">
          <joint name="right_knee" class="knee"/><geom class="foot"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor class="hip" name="LH" joint="left_hip"/><motor class="knee" name="LK" joint="left_knee"/>
    <motor class="hip" name="RH" joint="right_hip"/><motor class="knee" name="RK" joint="right_knee"/>
    <motor name="extra" joint="right_knee" gear="2" ctrlrange="-3 4"/>
  </actuator>
</mujoco>"""

SEVEN = """<mujoco model="seven">
  <compiler autolimits="true" eulerseq="XYZ"/>
  <default>
    <joint armature="0.2" damping="0.5" axis="0 0 1"/>
    <default class="large"><position kp="2000" kv="100" forcerange="-105 105"/></default>
    <default class="small"><general gaintype="fixed" biastype="affine" gainprm="500" biasprm="0 -500 -50"/></default>
  </default>
  <worldbody>BODIES</worldbody>
  <actuator>ACTUATORS</actuator>
</mujoco>"""


def seven() -> str:
    """A chain of seven joints with turned bodies, inertias of geoms and of inertials in turns."""
    bodies, actuators = "", ""
    for i in range(7, 0, -1):
        mass = (
            f'<inertial mass="{8 - i}" pos="0.01 0.02 {0.01 * i}" euler="10 {10 * i} 5" diaginertia="0.04 0.03 0.02"/>'
        )
        geom = f'<geom type="cylinder" size="0.0{i} 0.1" density="{500 + 50 * i}" euler="0 {15 * i} 0"/>'
        limits = 'range="-120 130"' if i % 2 else ""
        joint = f'<joint name="joint_{i}" {limits}/>'
        bodies = f'<body pos="0 0.02 0.2" euler="{90 - 20 * i} 10 {5 * i}">{joint}{(geom, mass)[i % 2]}{bodies}</body>'
        kind = "position" if i < 5 else "general"
        actuators += f'<{kind} joint="joint_{i}" class="{"large" if i < 5 else "small"}" ctrlrange="-3 3"/>'
    return SEVEN.replace("BODIES", bodies).replace("ACTUATORS", actuators)


FILES = {"arm": ARM, "legs": LEGS, "seven": seven()}
EVERY = pytest.mark.parametrize("name", FILES)


def written(folder: Path, name: str) -> Path:
    (folder / "defaults.xml").write_text(DEFAULTS)
    path = folder / f"{name}.xml"
    path.write_text(FILES[name])
    return path


def plant(path: Path, motors: list[str] | None = None) -> Robot:
    builder = RobotBuilder()
    builder.add(read_mjcf(path), motors=motors)
    return builder.plant()


def turn_of(p: Array) -> Array:
    """4 E^T of a unit quaternion's rates: angular velocity in body axes, shape (3, 4)."""
    w, x, y, z = p
    return 2 * np.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])


@EVERY
def test_mass_matrix_and_bias_at_random_states_are_those_of_mujoco(tmp_path: Path, name: str) -> None:
    path, random = written(tmp_path, name), np.random.default_rng(3)
    robot, model = plant(path), mujoco.MjModel.from_xml_path(str(path))
    names = list(robot.coordinates)
    for _ in range(10):
        q = random.uniform(-2, 2, len(names))
        to_mujoco = np.zeros((model.nv, len(names)))  # our rates -> rates of MuJoCo
        if name == "legs":
            q[3:7] /= np.linalg.norm(q[3:7])
            to_mujoco[:3, :3], to_mujoco[3:6, 3:7] = np.eye(3), turn_of(q[3:7])
        for i in range(model.njnt):
            if model.jnt_type[i] in (2, 3):
                joint = model.joint(i).name.replace("finger1", "finger2")  # which finger1 follows
                to_mujoco[model.jnt_dofadr[i], names.index(joint)] = 1.0
        rates = random.uniform(-3, 3, model.nv)
        v = np.linalg.lstsq(to_mujoco, rates, rcond=None)[0]
        data = mujoco.MjData(model)
        data.qvel[:] = to_mujoco @ v
        data.qpos[:] = q if name == "legs" else to_mujoco @ q
        mujoco.mj_forward(model, data)
        M = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, M)
        bias = data.qfrc_bias - data.qfrc_passive
        if name == "legs":  # M of the quaternion has no rank: compare on rates that exist
            tangent = np.linalg.pinv(to_mujoco)
            np.testing.assert_allclose(tangent.T @ robot.mass_matrix(q, 0.0) @ tangent, M, rtol=1e-10, atol=1e-11)
            rest = robot.force(q, np.zeros(len(q)), 0.0)
            data.qvel[:] = 0.0
            mujoco.mj_forward(model, data)
            bias = data.qfrc_bias - data.qfrc_passive
            np.testing.assert_allclose(-tangent.T @ rest, bias, rtol=1e-10, atol=1e-10)
        else:
            projected = to_mujoco.T @ M @ to_mujoco
            np.testing.assert_allclose(robot.mass_matrix(q, 0.0), projected, rtol=1e-10, atol=1e-11)
            np.testing.assert_allclose(-robot.force(q, v, 0.0), to_mujoco.T @ bias, rtol=1e-10, atol=1e-10)


def largest_torque(path: Path, joint: str, sign: float) -> float:
    """Torque that MuJoCo puts on a joint when everything asks for more than it can give."""
    model = mujoco.MjModel.from_xml_path(str(path))
    data, dof = mujoco.MjData(model), int(model.joint(joint).dofadr[0])
    data.qpos[model.joint(joint).qposadr] = data.qvel[dof] = -1e6 * sign  # far behind the setpoint of a servo
    data.ctrl[:] = 1e9 * sign * np.sign(model.actuator_gear[:, 0])
    mujoco.mj_fwdPosition(model, data)
    mujoco.mj_fwdVelocity(model, data)
    mujoco.mj_fwdActuation(model, data)
    return float(data.qfrc_actuator[dof])


EFFORTS: dict[str, dict[str, tuple[float, float] | None]] = {
    "arm": {"joint1": (-90, 75), "joint2": (-87, 87), "joint3": (-9, 11), "joint4": (-12, 15), "finger2": None},
    "legs": {"left_hip": (-23.7, 23.7), "left_knee": (-22.7, 22.7), "right_knee": (-28.7, 30.7)},
    "seven": {"joint_1": (-105, 105), "joint_4": (-105, 105), "joint_5": None, "joint_7": None},
}


@pytest.mark.parametrize(("name", "joint"), [(name, joint) for name, joints in EFFORTS.items() for joint in joints])
def test_limits_of_torques_are_those_that_mujoco_keeps(tmp_path: Path, name: str, joint: str) -> None:
    path, expected = written(tmp_path, name), EFFORTS[name][joint]
    (effort,) = (each.effort for each in read_mjcf(path).joints if each.name == joint)
    assert effort == (None if expected is None else pytest.approx(expected, rel=1e-15))
    reached = [largest_torque(path, joint, sign) for sign in (-1.0, 1.0)]
    if expected is not None:
        assert reached == pytest.approx(expected, rel=1e-15)
    elif joint != "finger2":  # a tendon pulls that one, and its limit is not one of the joint
        assert reached[0] < -1e6 and reached[1] > 1e6, "the range of a servo's setpoint limits no torque"


def test_ranges_of_classes_are_in_radians_and_from_the_nearest_class(tmp_path: Path) -> None:
    joints = {joint.name: joint for joint in read_mjcf(written(tmp_path, "arm")).joints}
    degrees = {name: np.degrees([joint.lower, joint.upper]).tolist() for name, joint in joints.items() if joint.upper}
    assert degrees["joint2"] == pytest.approx([-170, 170]) and degrees["joint4"] == pytest.approx([-30, 40])
    assert (joints["joint3"].damping, joints["joint3"].friction, joints["joint3"].armature) == (0.2, 0.3, 0.1)
    assert (joints["joint4"].damping, joints["joint4"].friction, joints["joint4"].armature) == (0.2, 0.3, 0.02)
    assert (joints["finger2"].kind, joints["finger2"].upper, joints["finger1"].mimic) == ("prismatic", 0.04, "finger2")


def test_what_servos_and_tendons_have_is_said_once_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "arm")
    assert read_mjcf(path).driven == ("joint1", "joint2", "joint3", "joint4")
    assert plant(path).tree.notes == (
        "a2, a3: the gains of a position servo are left out (the law commands the torque of its joint)",
        "a4: the gains of a velocity servo are left out (the law commands the torque of its joint)",
        "grip: an actuator on a tendon is left out (motors are on hinges and slides)",
        "contact: contacts are left out: nothing stops the bodies (give `bounds`, `loops`)",
        "split: tendon is left out (close loops with `loops`)",
        "finger2: a motor here, but none in the file (motors: [joint1, joint2, joint3, joint4] has those of the file)",
    )
    assert "a motor here" not in " ".join(plant(path, ["joint1"]).tree.notes)
    assert plant(written(tmp_path, "legs")).tree.notes == (
        "contact: contacts are left out: nothing stops the bodies (give `bounds`, `loops`)",
    )


MORE = """<mujoco>
  <option density="1.2"/>
  <worldbody>
    <body name="a"><freejoint name="root"/><geom size="0.1"/>
      <body name="b"><joint name="j" damping="1"/><geom size="0.1"/><site name="s"/>
        <body name="c"><joint name="k" stiffness="2"/><geom size="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <equality><joint joint1="j" joint2="k"/></equality>
  <actuator>
    <motor name="wrench" joint="root"/><motor name="thrust" site="s"/><adhesion name="glue" body="b" ctrlrange="0 1"/>
    <general name="slow" joint="k" dyntype="filter" dynprm="0.1"/><damper name="drag" joint="j" kv="2" ctrlrange="0 1"/>
  </actuator>
</mujoco>"""


def test_a_site_is_a_frame(tmp_path: Path) -> None:
    path, q = written(tmp_path, "arm"), np.array([0.1, 0.2, 0.3, -0.4, 0.01])
    sites = '<site name="pinch" pos="0.01 0 0.1" euler="10 20 30"/><site name="link1"/><site/>'
    path.write_text(ARM.replace('<geom type="ellipsoid"', sites + '<geom type="ellipsoid"'))
    robot, model = plant(path), mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    data.qpos[:] = [*q, q[-1]]
    mujoco.mj_kinematics(model, data)
    frame = robot.frame_motions(["pinch"], q, np.zeros(5))["pinch"]
    np.testing.assert_allclose(frame.position, data.site("pinch").xpos, atol=1e-14)
    np.testing.assert_allclose(frame.rotation, data.site("pinch").xmat.reshape(3, 3), atol=1e-14)
    assert "link1: a site is left out: its name is taken (rename it)" in robot.tree.notes


STANDING = """<mujoco>
  <option><flag contact="disable"/></option>
  <worldbody>
    <body name="floor" pos="1 0 -0.5" euler="0 0 90">
      <geom type="box" size="1 1 .1"/><body name="plate" pos="0.1 0 0" euler="20 0 0"><geom size="0.1"/></body>
    </body>
    <body name="target" mocap="true"/>
    <body name="trunk" pos="0 0 1"><freejoint/><geom type="box" size=".2 .1 .05"/>
      <body name="leg" pos="0 0 -.2">
        <joint name="k" axis="0 1 0"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.4"/>
      </body>
    </body>
  </worldbody>
  <equality>
    <connect name="foot" body1="leg" body2="plate" anchor="0 0 -.4"/><weld name="glue" body1="floor" body2="leg"/>
    <weld name="drag" body1="target" body2="trunk"/><connect name="still" body1="plate" body2="floor" anchor="0 0 0"/>
  </equality>
</mujoco>"""


def test_a_foot_stands_on_a_body_that_does_not_move(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(STANDING)
    robot, q = plant(tmp_path / "robot.xml"), np.array([0, 0, 1, 1, 0, 0, 0, 0.0])
    rows = robot.passive_constraints(q, 0.0)
    for name in ("foot", "glue"):  # MuJoCo closes equalities of bodies at its start
        violation = rows[name].rows(robot, 0.0, q, np.zeros(8)).violation
        np.testing.assert_allclose(np.asarray(violation, dtype=float), 0.0, atol=1e-15)
    assert robot.tree.notes[:2] == (
        "drag: equality is left out: it pulls towards a mocap body, which a program moves",
        "still: equality is left out: both ends are on world",
    )


def test_a_changed_file_that_is_included_is_read_again(tmp_path: Path) -> None:
    written(tmp_path, "arm")
    config = tmp_path / "c.yaml"
    config.write_text("plant: {robot: {mjcf: arm.xml}}\ninitial: {}\nlaw: none\nrun: {duration: 0.1}\n")
    before = sc.load(config, engine="numpy").loop.system.model.plant
    (tmp_path / "defaults.xml").write_text(DEFAULTS.replace('damping="3"', 'damping="35"'))
    after = sc.load(config, engine="numpy").loop.system.model.plant
    assert [tree.joints[-1].damping for tree in (before.tree, after.tree)] == [3.0, 35.0]  # type: ignore[attr-defined]


def test_other_actuators_and_forces_are_named(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(MORE)
    notes = set(read_mjcf(tmp_path / "robot.xml").notes)
    assert notes >= {
        "option: the density and the viscosity of the air around are left out",
        "wrench: an actuator on a free joint is left out (motors are on hinges and slides)",
        "thrust: an actuator on a site is left out (motors are on hinges and slides)",
        "glue: an actuator on a body is left out (motors are on hinges and slides)",
        "slow: its activation is left out: torques act at once (give `realism.lag`)",
        "drag: the gains of an actuator that is no motor are left out (the law commands the torque of its joint)",
        "k: its stiffness is left out",
        "j: its actuator is left out: the joint follows another one",
    }


def test_a_servo_without_a_limit_of_its_force_gives_no_limits(tmp_path: Path) -> None:
    written(tmp_path, "seven")
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {mjcf: seven.xml}}\ninitial: {}\n"
        "task: [{name: turn, holonomic: joint_1}]\nlaw: {limits: robot}\nrun: {duration: 0.1}\n"
    )
    expected = r"law.limits: robot: the file gives no effort for joint_5, joint_6, joint_7 \(give it there"
    with pytest.raises(sc.errors.ConfigError, match=expected):
        sc.load(tmp_path / "c.yaml", engine="numpy")
