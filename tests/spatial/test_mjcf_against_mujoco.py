"""MJCF files against MuJoCo: as people write them, with classes, servos and motors, and random ones.

Random files have several joints per body, turned bodies, free bases, loops, and joints that follow.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.mechanics.spatial.description import Description
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

LEG = """<mujoco model="leg">
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
      <body name="thigh" pos="0 0.1 0">
        <joint name="hip" class="hip"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.213" mass="1.1"/>
        <body name="calf" pos="0 0 -0.213">
          <joint name="knee" class="knee"/><geom class="foot"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor class="hip" name="H" joint="hip"/><motor class="knee" name="K" joint="knee"/>
    <motor name="extra" joint="knee" gear="2" ctrlrange="-3 4"/>
  </actuator>
</mujoco>"""

FILES = {"arm": ARM, "leg": LEG}


def written(folder: Path, name: str) -> Path:
    (folder / "defaults.xml").write_text(DEFAULTS)
    path = folder / f"{name}.xml"
    path.write_text(FILES[name])
    return path


def plant(path: Path, motors: list[str] | None = None) -> Robot:
    builder = RobotBuilder()
    builder.add(read_mjcf(path), motors=motors)
    return builder.plant()


@dataclass
class Author:
    """Writes a random file."""

    random: np.random.Generator
    joints: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)

    def text(self, count: int = 3, size: float = 0.5) -> str:
        return " ".join(f"{x:.4f}" for x in self.random.uniform(-size, size, count))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def turn(self) -> str:
        return f'euler="{self.text(3, 90)}"' if self.chance(0.5) else f'quat="{self.text(4, 1)}"'

    def joint(self) -> str:
        name, kind = f"j{len(self.joints)}", "slide" if self.chance(0.3) else "hinge"
        self.joints.append(name)
        place = self.text(3, 0.2) if self.chance(0.5) else "0 0 0"
        ref = self.text(1, 1 if kind == "slide" else 40)
        rest = f'damping="{self.random.random():.3f}" armature="{self.random.random():.3f}"'
        return f'<joint name="{name}" type="{kind}" axis="{self.text()}" pos="{place}" ref="{ref}" {rest}/>'

    def body(self, depth: int, inside: str) -> str:
        name = f"b{len(self.bodies)}"
        self.bodies.append(name)
        mass = f'mass="{self.random.uniform(0.1, 2):.3f}"'
        if self.chance(0.5):
            matter = f'<inertial pos="{self.text()}" {mass} {self.turn()} diaginertia="0.03 0.02 0.025"/>'
        else:
            matter = f'<geom type="capsule" size=".05 .1" pos="{self.text()}" {self.turn()} {mass}/>'
        site = f'<site name="s{name}" pos="{self.text()}" {self.turn()}/>'
        children = "".join(
            self.body(depth - 1, "".join(self.joint() for _ in range(self.random.integers(0, 3))))
            for _ in range(self.random.integers(1, 3) if depth else 0)
        )
        return f'<body name="{name}" pos="{self.text()}" {self.turn()}>{inside}{matter}{site}{children}</body>'

    def equalities(self) -> str:
        one, other, third, fourth = self.random.choice(self.bodies, 4)
        pairs = [(one, other), (third, fourth)]
        loops = [
            f'<connect name="e0" body1="{one}" body2="{other}" anchor="{self.text()}"/>',
            f'<weld name="e1" body1="{third}" body2="{fourth}" anchor="{self.text()}"/>'
            if self.chance(0.5)
            else f'<weld name="e1" site1="s{third}" site2="s{fourth}"/>',
        ]
        belts = zip(self.joints[::3], self.joints[1::3], strict=False)
        return "".join(loop for loop, (a, b) in zip(loops, pairs, strict=True) if a != b) + "".join(
            f'<joint name="m{i}" joint1="{a}" joint2="{b}" polycoef="{self.text(1)} {self.text(1, 2)} 0 0 0"/>'
            for i, (a, b) in enumerate(belts)
        )

    def file(self) -> str:
        free = self.chance(0.4)
        world = self.body(3, "<freejoint/>" if free else self.joint())
        world += "" if free else self.body(1, self.joint())
        motors = "".join(
            f'<motor joint="{name}" gear="{self.random.uniform(-3, 3):.3f}"/>'
            for name in self.joints
            if self.chance(0.4)
        )
        return (
            f'<mujoco><compiler eulerseq="{self.random.choice(["xyz", "ZYX", "zxz"])}"/><worldbody>{world}</worldbody>'
            f"<equality>{self.equalities()}</equality><actuator>{motors}</actuator></mujoco>"
        )


@dataclass
class Pair:
    """A robot and MuJoCo's model of one file, at one state.

    Attributes:
        rates: Our rates -> rates of MuJoCo.
    """

    robot: Robot
    description: Description
    model: Any
    data: Any
    q: Array
    v: Array
    rates: Array


def pair(path: Path, random: np.random.Generator) -> Pair:
    description, builder = read_mjcf(path), RobotBuilder()
    builder.add(description)
    robot, model = builder.plant(), mujoco.MjModel.from_xml_path(str(path))
    names, joints = list(robot.coordinates), {joint.name: joint for joint in description.joints}
    q, data, rates = random.uniform(-1, 1, len(names)), mujoco.MjData(model), np.zeros((model.nv, len(names)))
    if description.base == "free":
        q[3:7] /= np.linalg.norm(q[3:7])
        w, x, y, z = q[3:7]
        rates[:3, :3] = np.eye(3)
        rates[3:6, 3:7] = 2 * np.array([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])
        data.qpos[:7] = q[:7]
    for i in range(model.njnt):
        if (joint := joints.get(model.joint(i).name)) is not None:
            multiplier, offset = 1.0, 0.0
            while joint.mimic is not None:
                offset += multiplier * joint.offset
                multiplier, joint = multiplier * joint.multiplier, joints[joint.mimic]
            column = names.index(joint.name)
            rates[model.jnt_dofadr[i], column] = multiplier
            data.qpos[model.jnt_qposadr[i]] = multiplier * q[column] + offset
    v = np.linalg.pinv(rates) @ rates @ random.uniform(-1, 1, len(names))  # unit quaternions stay so
    data.qvel[:] = rates @ v
    mujoco.mj_forward(model, data)
    return Pair(robot, description, model, data, q, v, rates)


@pytest.mark.parametrize("source", [*FILES, *range(12)])
def test_a_file_is_the_machine_of_mujoco(tmp_path: Path, source: str | int) -> None:
    random = np.random.default_rng(source if isinstance(source, int) else 3)
    path = tmp_path / "random.xml" if isinstance(source, int) else written(tmp_path, source)
    if isinstance(source, int):
        path.write_text(Author(random).file())
    both = pair(path, random)
    M = np.zeros((both.model.nv, both.model.nv))
    mujoco.mj_fullM(both.model, both.data, M)
    bias = both.data.qfrc_bias - both.data.qfrc_passive
    back = np.linalg.pinv(both.rates) @ both.rates  # rates that exist
    ours = back.T @ both.robot.mass_matrix(both.q, 0.0) @ back
    np.testing.assert_allclose(ours, both.rates.T @ M @ both.rates, rtol=0, atol=1e-12 * np.abs(M).max())
    force = -back.T @ both.robot.force(both.q, both.v, 0.0)
    np.testing.assert_allclose(force, both.rates.T @ bias, rtol=0, atol=1e-12 * (1 + np.abs(bias).max()))

    names = [both.model.site(i).name for i in range(both.model.nsite)]
    for name, frame in both.robot.frame_motions(names, both.q, both.v).items():
        np.testing.assert_allclose(frame.position, both.data.site(name).xpos, atol=1e-13)
        np.testing.assert_allclose(frame.rotation, both.data.site(name).xmat.reshape(3, 3), atol=1e-13)

    rows = both.robot.passive_constraints(both.q, 0.0)
    for loop in both.description.loops:
        violation = np.asarray(rows[loop.name].rows(both.robot, 0.0, both.q, both.v).violation, dtype=float)
        where = both.data.efc_id[both.data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)]
        gap = both.data.efc_pos[: len(where)][where == both.model.equality(loop.name).id]
        assert np.linalg.norm(violation[:3]) == pytest.approx(np.linalg.norm(gap[:3]), abs=1e-12)
    for i in range(both.model.neq):
        name = both.model.equality(i).name
        if name.startswith("m") and not any(name in note for note in both.description.notes):
            where = (both.data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)) & (both.data.efc_id == i)
            assert np.abs(both.data.efc_pos[where]).max() < 1e-13, "joints follow as MuJoCo's equality says"


def largest_torques(path: Path, joint: str) -> list[float]:
    """The torques that MuJoCo puts on a joint when everything asks for more than it can give, both ways."""
    model, reached = mujoco.MjModel.from_xml_path(str(path)), []
    dof, place = int(model.joint(joint).dofadr[0]), int(model.joint(joint).qposadr[0])
    for sign in (-1.0, 1.0):
        data = mujoco.MjData(model)
        data.ctrl[:] = 1e9 * sign * np.sign(model.actuator_gear[:, 0] * model.actuator_gainprm[:, 0])
        data.qpos[place] = data.qvel[dof] = -1e7 * sign  # far behind the setpoint of a servo
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fwdVelocity(model, data)
        mujoco.mj_fwdActuation(model, data)
        reached.append(float(data.qfrc_actuator[dof]))
    return reached


def actuators(random: np.random.Generator) -> str:
    """One to three random actuators on the joint `j`."""

    def span(name: str, share: float) -> str:
        return f'{name}="{-random.random():.3f} {random.random():.3f}"' if random.random() < share else ""

    kinds = {
        "motor": "",
        "position": 'kp="50" kv="3"',
        "velocity": 'kv="4"',
        "general": f'gainprm="{random.uniform(-3, 3):.3f}"',
    }
    lines = []
    for kind in random.choice(list(kinds), random.integers(1, 4)):
        gear = random.uniform(0.2, 3) * random.choice([-1, 1])
        ranges = f"{span('ctrlrange', 0.7)} {span('forcerange', 0.7)}"
        lines.append(f'<{kind} joint="j" {kinds[kind]} gear="{gear:.3f}" {ranges}/>')
    return "".join(lines)


@pytest.mark.parametrize("seed", range(30))
def test_the_effort_of_a_joint_is_the_torque_that_mujoco_reaches(tmp_path: Path, seed: int) -> None:
    random, path = np.random.default_rng(seed), tmp_path / "joint.xml"
    limit = f'actuatorfrcrange="{-random.random():.3f} {random.random():.3f}"' if seed % 3 == 0 else ""
    path.write_text(
        f'<mujoco><worldbody><body><joint name="j" {limit}/><geom size=".1"/></body></worldbody>'
        f"<actuator>{actuators(random)}</actuator></mujoco>"
    )
    reached = largest_torques(path, "j")
    (joint,) = read_mjcf(path).joints
    if joint.effort is None:
        assert max(np.abs(reached)) > 1e6, "nothing limits it"
    else:
        assert joint.effort == pytest.approx(reached, rel=1e-12)


EFFORTS: dict[str, dict[str, tuple[float, float] | None]] = {
    "arm": {"joint1": (-90, 75), "joint2": (-87, 87), "joint3": (-9, 11), "joint4": (-12, 15), "finger2": None},
    "leg": {"hip": (-23.7, 23.7), "knee": (-28.7, 30.7)},
}


@pytest.mark.parametrize(("name", "joint"), [(name, joint) for name, joints in EFFORTS.items() for joint in joints])
def test_limits_of_torques_are_those_that_mujoco_keeps(tmp_path: Path, name: str, joint: str) -> None:
    path, expected = written(tmp_path, name), EFFORTS[name][joint]
    (effort,) = (each.effort for each in read_mjcf(path).joints if each.name == joint)
    assert effort == (None if expected is None else pytest.approx(expected, rel=1e-15))
    if expected is not None:  # a tendon pulls the finger, and its limit is not one of the joint
        assert largest_torques(path, joint) == pytest.approx(expected, rel=1e-15)


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
    assert plant(written(tmp_path, "leg")).tree.notes == (
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


def test_a_site_whose_name_is_taken_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "arm")
    path.write_text(ARM.replace('<geom type="ellipsoid"', '<site name="link1"/><site/><geom type="ellipsoid"'))
    assert "link1: a site is left out: its name is taken (rename it)" in plant(path).tree.notes


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


def test_a_free_base_that_a_config_fixes_is_said_to_leave_its_place(tmp_path: Path) -> None:
    builder = RobotBuilder()
    builder.add(read_mjcf(written(tmp_path, "leg")), base="fixed")
    assert "trunk: its free base is fixed at `at`, not where the file has it" in builder.plant().tree.notes


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


JOINTS = """<mujoco>
  <option><flag gravity="disable" equality="disable"/></option>
  <worldbody>
    <body name="hand" mocap="true"><body name="finger" pos="0 0 1"><geom size=".1" contype="0"/></body></body>
    <body name="body3"><joint name="joint1"/><geom size=".1"/>
      <body pos="0 0 1"><joint/><geom size=".1"/></body>
    </body>
  </worldbody>
  <equality><weld name="pin" body1="body3" torquescale="0"/><weld name="held" body1="finger" body2="body3"/></equality>
  <actuator>{first}<motor name="m" joint="joint1" gear="3" ctrlrange="-1 2"/></actuator>
</mujoco>"""


def test_what_a_file_disables_is_named_and_a_weld_without_torque_is_a_point(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(JOINTS.format(first=""))
    description = read_mjcf(tmp_path / "robot.xml")
    assert [(loop.name, loop.kind) for loop in description.loops] == [("pin", "point")]
    assert set(description.notes) >= {
        "option: the file's gravity, [0, 0, 0], is not read (give it as `gravity`)",
        "option: the flag that disables 'equality' is not read (take out what it switches off)",
        "held: equality is left out: it pulls towards a mocap body, which a program moves",
    }


def test_a_joint_without_a_name_gets_one_that_no_other_has(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(JOINTS.format(first=""))
    assert list(plant(tmp_path / "robot.xml").coordinates) == ["joint1", "joint1_"]


def test_a_motor_behind_an_actuator_with_two_controls_keeps_its_gear_and_limits(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(JOINTS.format(first='<pid joint="joint1" forcerange="-1 1"/>'))
    try:
        (joint,) = (each for each in read_mjcf(tmp_path / "robot.xml").joints if each.name == "joint1")
    except sc.errors.ConfigError as error:
        assert "pid" in str(error), "a MuJoCo before version 4 knows no such actuator"
        return
    assert joint.effort == pytest.approx((-1 - 3, 1 + 6))


def test_the_range_of_a_control_that_is_integrated_is_no_limit_of_the_torque(tmp_path: Path) -> None:
    summing = '<general name="a" joint="joint1" dyntype="integrator" ctrlrange="-1 1"/>'
    (tmp_path / "robot.xml").write_text(JOINTS.replace("<motor", "<motor group='1'").format(first=summing))
    description = read_mjcf(tmp_path / "robot.xml")
    assert [joint.effort for joint in description.joints if joint.name == "joint1"] == [None]
    said = "a: the gains of an actuator that is no motor are left out (the law commands the torque of its joint)"
    assert said in description.notes


def test_a_servo_without_a_limit_of_its_force_gives_no_limits(tmp_path: Path) -> None:
    (tmp_path / "servo.xml").write_text(
        '<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>'
        '<actuator><position joint="j" kp="50" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {mjcf: servo.xml}}\ninitial: {}\n"
        "task: [{name: turn, holonomic: j}]\nlaw: {limits: robot}\nrun: {duration: 0.1}\n"
    )
    expected = r"law.limits: robot: the file gives no effort for j \(give it there"
    with pytest.raises(sc.errors.ConfigError, match=expected):
        sc.load(tmp_path / "c.yaml", engine="numpy")
