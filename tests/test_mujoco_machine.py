"""MuJoCo as the machine behind a law: an implementation that is not ours moves the plant."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import servoctl as sc
from hil.emulator.plant import SimulatedPlant
from servoctl.config.hil import Emulation
from servoctl.errors import ConfigError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.plant import Robot
from servoctl.simulation.mujoco_machine import MujocoMachine
from servoctl.study.batch import run_at
from servoctl.types import Array, State
from tests.small_robot import SMALL, small_urdf

pytest.importorskip("mujoco", reason="mujoco is not installed (pip install mujoco)")

MILLISECOND = 1_000_000

START = State(0.0, np.array([-0.4, 1.2]), np.zeros(2))

PLAIN = Emulation(current_lag=0.0)

PERIOD = ("run.period=0.005", "run.duration=0.05", "run.integrator.step=0.001")

SCENE = """<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.001" integrator="RK4"/>
  <worldbody>
    <body pos="0 0 0">
      <inertial pos="0.2 0 0" mass="2" diaginertia="0.002 0.02 0.02"/>
      <joint name="shoulder" axis="0 -1 0" {joint}/>
      <body pos="0.4 0 0">
        <inertial pos="0.15 0 0" mass="1" diaginertia="0.002 0.02 0.02"/>
        <joint name="{second}" type="{kind}" axis="0 -1 0" {joint}/>
      </body>
    </body>
    {more}
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>"""

MOTORS = '<motor name="shoulder" joint="shoulder" gear="5"/><motor name="elbow" joint="elbow" gear="2"/>'

BALL = '<body name="ball" pos="0 2 3"><freejoint/><geom size="0.1"/></body>'


def scene(joint: str = "", second: str = "elbow", kind: str = "hinge", more: str = "", motors: str = MOTORS) -> str:
    return SCENE.format(joint=joint, second=second, kind=kind, more=more, motors=motors)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.urdf").write_text(small_urdf())
    (tmp_path / "c.yaml").write_text(SMALL)
    return tmp_path


def simulated(home: Path, *overrides: str) -> sc.Trajectory:
    return sc.load(home / "c.yaml", (*PERIOD, *overrides), engine="numpy").simulate()


def with_scene(home: Path, content: str, *overrides: str) -> sc.Trajectory:
    (home / "scene.xml").write_text(content)
    return simulated(home, "realism.machine.mjcf=scene.xml", *overrides)


def problems(home: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        sc.load(home / "c.yaml", (*PERIOD, *overrides), engine="numpy")
    return caught.value.problems


@pytest.mark.parametrize("name", ["small.urdf", "small.xml"])
def test_a_robots_own_file_moves_as_our_machine_does(home: Path, name: str) -> None:
    (home / "files" / name).write_text(small_urdf())
    ours, theirs = simulated(home), simulated(home, f"realism.machine.urdf=files/{name}")
    assert np.abs(ours.v).max() > 0.01
    assert np.abs(ours.q - theirs.q).max() < 1e-12
    assert np.abs(ours.v - theirs.v).max() < 1e-10


def test_late_torques_reach_it_as_they_reach_ours(home: Path) -> None:
    late = "realism.delay=0.007"
    ours, theirs = simulated(home, late), simulated(home, late, "realism.machine.urdf=files/small.urdf")
    assert np.abs(ours.v).max() > 0.01
    assert np.abs(ours.q - theirs.q).max() < 1e-12


def test_lagging_torques_reach_it_with_an_error_of_second_order_in_the_step(home: Path) -> None:
    def error(step: float) -> float:
        effects = ("realism.lag=0.004", "realism.delay=0.002", f"run.integrator.step={step}")
        ours, theirs = simulated(home, *effects), simulated(home, *effects, "realism.machine.urdf=files/small.urdf")
        return float(np.abs(ours.q - theirs.q).max())

    coarse, fine = error(0.001), error(0.0005)
    assert coarse < 1e-5
    assert fine == pytest.approx(coarse / 4.0, rel=0.05)


def test_a_motor_puts_the_laws_torque_on_its_joint_whatever_its_gear(home: Path) -> None:
    ours, theirs = simulated(home), with_scene(home, scene())
    assert np.abs(ours.q - theirs.q).max() < 1e-11


def test_a_motor_in_the_axes_of_the_parent_is_a_motor_too(home: Path) -> None:
    motors = MOTORS.replace('" joint=', '" jointinparent=')
    assert np.abs(simulated(home).q - with_scene(home, scene(motors=motors)).q).max() < 1e-11


def test_motors_are_found_by_the_joint_that_they_drive_before_their_name(home: Path) -> None:
    ours = simulated(home)
    for names in (("m1", "m2"), ("elbow", "shoulder")):
        motors = "".join(
            f'<motor name="{name}" joint="{joint}"/>' for name, joint in zip(names, ("shoulder", "elbow"), strict=True)
        )
        assert np.abs(ours.q - with_scene(home, scene(motors=motors)).q).max() < 1e-11


@dataclass(frozen=True)
class Cranked(Plant):
    """The first actuator pulls the shoulder by a crank."""

    coordinates: ClassVar = {"shoulder": "rad", "elbow": "rad"}
    actuators: ClassVar = {"rod": "N", "elbow": "N m"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(2)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(2)

    def actuation(self, q: Array, t: float) -> Array:
        return np.diag([np.cos(q[0]), 1.0])


class Straight(Cranked):
    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(2)


def test_a_motor_does_not_stand_for_an_actuator_whose_lever_changes_with_the_pose(tmp_path: Path) -> None:
    path = tmp_path / "scene.xml"
    path.write_text(scene())
    with pytest.raises(ConfigError, match=r"motor 'shoulder' has one gear at every pose, .* by 'rod' of 'shoulder'"):
        MujocoMachine(path, Cranked())
    path.write_text(scene(motors=""))
    x = np.array([1.2, 0.3, 0.0, 0.0])
    machines = (
        (MujocoMachine(path, Cranked()), np.array([2.0, 1.0])),
        (
            MujocoMachine(path, Straight()),
            np.array([2.0 * np.cos(1.2), 1.0]),
        ),
    )
    pulled, turned = (machine.after(0.0, x, machine.start(0.0, x), u, 1e-3)[0] for machine, u in machines)
    np.testing.assert_allclose(pulled, turned, rtol=1e-12)


def test_a_motors_own_limit_holds_although_the_law_does_not_know_it(home: Path) -> None:
    motors = MOTORS.replace('gear="5"', 'gear="5" ctrllimited="true" ctrlrange="-1 1"')
    free, weak = with_scene(home, scene()), with_scene(home, scene(motors=motors))
    asked = np.abs(np.array(free.u[0]))
    assert asked[0] > 5.0
    limited = with_scene(home, scene(), "realism.saturation={shoulder: 5, elbow: 1000}")
    assert np.abs(weak.q - limited.q).max() < 1e-12
    assert np.abs(weak.q - free.q).max() > 1e-4


@pytest.mark.parametrize(
    "option", ['<option actuatorgroupdisable="2"/>', '<option><flag actuation="disable"/></option>']
)
def test_a_motor_that_the_file_switches_off_is_refused(home: Path, option: str) -> None:
    motors = MOTORS.replace('name="elbow"', 'name="elbow" group="2"')
    with pytest.raises(ConfigError, match="motor 'elbow' is switched off by an option of the file"):
        with_scene(home, scene(motors=motors).replace("<worldbody>", f"{option}<worldbody>"))


def test_joint_friction_and_armature_of_the_scene_act(home: Path) -> None:
    plain, real = with_scene(home, scene()), with_scene(home, scene(joint='armature="0.1" damping="0.5"'))
    assert np.abs(real.q - plain.q).max() > 1e-3


def test_what_else_the_scene_holds_moves_too_and_is_named(home: Path) -> None:
    run_with = with_scene(home, scene(more=BALL))
    assert np.array_equal(run_with.q, with_scene(home, scene()).q)
    (warning,) = [text for text in run_with.metadata["warnings"] if "machine" in text]
    assert warning == "realism.machine: scene.xml: joints that the plant does not have: joint2"


def test_a_run_repeats_to_the_bit(home: Path) -> None:
    first, second = (with_scene(home, scene(joint='frictionloss="0.5"', more=BALL)) for _ in range(2))
    assert np.array_equal(first.q, second.q)


def test_a_run_of_a_folder_finds_the_scene_again(home: Path) -> None:
    (home / "scene.xml").write_text(scene())
    run = sc.load(home / "c.yaml", (*PERIOD, "realism.machine.mjcf=scene.xml"), engine="numpy")
    first = run.simulate(home / "out")
    assert np.array_equal(sc.load(home / "out" / "config.yaml", engine="numpy").simulate().q, first.q)


def test_bodies_that_touch_at_the_start_are_named(home: Path) -> None:
    rests = '<body name="box" pos="0.1 0 0.05"><geom type="box" size="0.1 0.1 0.1"/></body>'
    content = scene(more=rests + '<body name="ball" pos="0.1 0 0.2"><freejoint/><geom size="0.1"/></body>')
    warnings = with_scene(home, content).metadata["warnings"]
    assert "realism.machine: scene.xml: ball touches box (50 mm deep)" in [
        w.replace("box touches ball", "ball touches box") for w in warnings
    ]


def test_where_mujoco_gives_up_the_run_stops(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    motion = with_scene(home, scene(joint='stiffness="1e18"'), "run.integrator.step=0.005")
    assert motion.metadata["status"] == "stopped"
    assert "not finite" in motion.metadata["error"]
    assert not (home / "MUJOCO_LOG.TXT").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            scene(second="forearm").replace('joint="elbow"', 'joint="forearm"'),
            "no joint 'elbow', which the plant has as coordinate",
        ),
        (scene(kind="ball"), "joint 'elbow' is no hinge and no slide"),
        (scene(motors=MOTORS.split("/>")[0] + "/>"), "no motor on the joint that 'elbow' drives, nor of its name"),
        (scene(motors='<motor name="m" joint="elbow"/>'), "no motor on the joint that 'shoulder' drives"),
        (scene(motors=MOTORS.replace("motor", "position")), "motor 'shoulder' is no <motor> on a joint"),
        (
            scene(motors=MOTORS.replace("motor", "general").replace('gear="5"', 'dyntype="integrator"')),
            "motor 'shoulder' is no <motor> on a joint",
        ),
        ("<mujoco><worldbody><body/></mujoco>", "MuJoCo cannot read it"),
    ],
)
def test_a_scene_that_does_not_fit_is_refused_by_name(home: Path, content: str, expected: str) -> None:
    (home / "scene.xml").write_text(content)
    found = problems(home, "realism.machine.mjcf=scene.xml")
    assert any("realism.machine.mjcf" in line and expected in line for line in found), found


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("realism.machine.mjcf=none.xml",), "none.xml"),
        (("realism.machine={}",), "expected exactly one of mjcf, urdf, got none"),
        (("realism.machine={mjcf: a.xml, urdf: b.urdf}",), "expected exactly one of mjcf, urdf, got mjcf and urdf"),
        (
            ("realism.machine.urdf=files/small.urdf", "realism.parameter_error={upper.m: 0.1}"),
            "realism.parameter_error: the machine of realism.machine has its own",
        ),
    ],
)
def test_a_wrong_section_is_refused(home: Path, overrides: tuple[str, ...], expected: str) -> None:
    assert any(expected in line for line in problems(home, *overrides))


THROWN = """<robot name="box"><link name="box"><inertial><origin xyz="0.02 0.01 0.03"/><mass value="2"/>
<inertia ixx="0.02" iyy="0.03" izz="0.04" ixy="0.001" ixz="0" iyz="0.002"/></inertial></link></robot>"""

THROWN_SCENE = """<mujoco><option timestep="0.001" integrator="RK4"/><worldbody><body name="box"><freejoint/>
<inertial pos="0.02 0.01 0.03" mass="2" fullinertia="0.02 0.03 0.04 0.001 0 0.002"/></body></worldbody></mujoco>"""


def test_a_free_base_is_thrown_alike(tmp_path: Path) -> None:
    (tmp_path / "box.urdf").write_text(THROWN)
    (tmp_path / "box.xml").write_text(THROWN_SCENE)
    plant = Robot.from_urdf(tmp_path / "box.urdf", base="free")
    turn = np.array([0.8, 0.0, 0.6, 0.0])
    spin = np.array([0.4, -1.0, 2.0])
    w, x, y, z = turn
    rate = 0.5 * np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]) @ spin
    q, v = np.concatenate([[0.1, 0.2, 1.0], turn]), np.concatenate([[1.0, 0.0, 2.0], rate])
    ours = sc.simulate(plant, {}, None, q=q, v=v, duration=0.2, step=0.001, engine="vm")
    machine = MujocoMachine(tmp_path / "box.xml", plant)
    state: Array = np.concatenate([q, v])
    rest = machine.start(0.0, state)
    for k in range(200):
        state, rest = machine.after(0.001 * k, state, rest, np.zeros(0), 0.001)
    assert np.abs(state[:7] - ours.q[-1]).max() < 1e-8
    assert np.abs(state[7:] - ours.v[-1]).max() < 1e-7


def test_behind_emulated_drives_it_moves_as_ours_does(home: Path) -> None:
    (home / "scene.xml").write_text(scene())
    ours, theirs = (
        SimulatedPlant(sc.load(home / "c.yaml", sets, engine="numpy").system, START, MILLISECOND, "numpy", PLAIN)
        for sets in (PERIOD, (*PERIOD, "realism.machine.mjcf=scene.xml"))
    )
    for k in range(50):
        for plant in (ours, theirs):
            plant.actuators[0].command(3.0 * np.sin(0.3 * k), k * MILLISECOND)
            plant.state(k * MILLISECOND + 300_000)  # a look between two steps changes nothing
    assert np.abs(ours.state(50 * MILLISECOND)[1]).max() > 0.1
    apart = np.abs(np.concatenate(ours.state(50 * MILLISECOND)) - np.concatenate(theirs.state(50 * MILLISECOND))).max()
    assert 0.0 < apart < 1e-9  # rounding of another simulator
    theirs.restart()
    assert np.array_equal(theirs.state(0)[0], START.q)


def test_a_closed_brake_holds_its_joint(home: Path) -> None:
    (home / "scene.xml").write_text(scene())
    run = sc.load(home / "c.yaml", (*PERIOD, "realism.machine.mjcf=scene.xml"), engine="numpy")
    plant = SimulatedPlant(run.system, START, MILLISECOND, "numpy", PLAIN)
    plant.brake(0, True, 0)
    q, _ = plant.state(100 * MILLISECOND)
    assert q[0] == pytest.approx(START.q[0], abs=1e-5)
    assert abs(q[1] - START.q[1]) > 1e-3


SWING = """\
plant: {robot: {urdf: files/small.urdf}}
initial: {q: {shoulder: -20*deg, elbow: 80*deg}}
task:
  - {name: shoulder, holonomic: "shoulder + 20*deg - 0.4*(1 - cos(2*t))"}
  - {name: elbow, holonomic: "elbow - 80*deg + 0.6*(1 - cos(3*t))"}
law: {correction: {baumgarte: {alpha: 20, beta: 20}}}
run: {duration: 2, period: 1*ms}
realism: {delay: 1*ms, machine: {mjcf: scene.xml}}
"""

LOADED = scene(joint='frictionloss="0.1" armature="0.02" damping="0.05"').replace(
    "</body>", '<geom type="sphere" pos="0.3 0 0" size="0.04" mass="1"/></body>', 1
)


def late_error(run: sc.Trajectory, end: float) -> Array:
    """Root mean square of each row from a third of the task to its end [s]."""
    t = run["task_time"] if "task_time" in run.columns else run.t
    late = (t > end / 3.0) & (t < end - 1e-6)  # on drives the controlled stop follows
    return np.asarray([np.sqrt((run[f"violation.{row}"][late] ** 2).mean()) for row in ("shoulder", "elbow")])


@pytest.mark.parametrize(
    "means",
    [
        ("law.observer=auto",),
        ("estimation={kind: model, disturbance: 300}", "realism.measured=q", "realism.quantisation.q=2*pi/65536"),
    ],
    ids=["observer", "estimator"],
)
def test_losses_and_a_load_that_the_law_does_not_know_cost_a_twentieth(home: Path, means: tuple[str, ...]) -> None:
    for name, content in (("scene.xml", LOADED), ("swing.yaml", SWING)):
        (home / name).write_text(content)
    nominal, found = (sc.load(home / "swing.yaml", sets, engine="vm").simulate() for sets in ((), means))
    assert (late_error(nominal, 2.0) > 20.0 * late_error(found, 2.0)).all()


def test_a_missing_scene_is_listed_with_the_other_mistakes(home: Path) -> None:
    found = problems(home, "realism.machine.mjcf=none.xml", "law.limits={no_such_joint: 1}")
    assert any("none.xml" in line for line in found), found
    assert any("no_such_joint" in line for line in found), found


GEARED = """<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.001" integrator="implicitfast" gravity="0 0 -9.81"/>
  <worldbody>
    <body name="upper" pos="0 0 1"><inertial pos="0.2 0 0" mass="2" diaginertia="0.002 0.02 0.02"/>
      <joint name="shoulder" axis="0 -1 0" armature="0.16" frictionloss="0.2" damping="0.5"/>
      <body name="fore" pos="0.4 0 0"><inertial pos="0.15 0 0" mass="1" diaginertia="0.002 0.02 0.02"/>
        <joint name="elbow" axis="0 -1 0" armature="0.1" frictionloss="0.1" damping="0.3"/>
        <body name="left" pos="0.3 0.05 0"><inertial pos="0 0 0" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/>
          <joint name="left_finger" type="slide" axis="0 1 0" armature="0.2"/></body>
        <body name="right" pos="0.3 -0.05 0"><inertial pos="0 0 0" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/>
          <joint name="right_finger" type="slide" axis="0 -1 0" armature="0.2"/></body>
      </body>
    </body>
  </worldbody>
  <equality><joint name="grip" joint1="left_finger" joint2="right_finger"/></equality>
  <actuator>
    <motor name="a" joint="shoulder"/><motor name="b" joint="elbow" gear="5"/><motor name="c" joint="left_finger"/>
  </actuator>
</mujoco>"""

GEARED_RUN = """
plant: {robot: {mjcf: scene.xml}, friction: robot}
initial: {q: {shoulder: -0.4, elbow: 1.2, left_finger: 0.02}}
task:
  - {name: shoulder, holonomic: "shoulder + 0.4 - 0.5*(1 - cos(3*t))"}
  - {name: elbow, holonomic: "elbow - 1.2 + 0.5*(1 - cos(4*t))"}
  - {name: grip, holonomic: "left_finger - 0.02 - 0.01*(1 - cos(5*t))"}
law: {correction: {baumgarte: {alpha: 15, beta: 15}}}
run: {duration: 2, period: 2*ms, integrator: {step: 0.001}}
realism: {machine: {mjcf: scene.xml}}
"""


def test_a_robot_of_an_mjcf_follows_on_the_machine_of_the_same_file(home: Path) -> None:
    for name, content in (("scene.xml", GEARED), ("run.yaml", GEARED_RUN)):
        (home / name).write_text(content)
    run = sc.load(home / "run.yaml", engine="vm").simulate()
    assert list(run.actuators) == ["shoulder", "elbow", "left_finger"]
    worst = {name: np.abs(run[f"violation.{name}"]).max() for name in ("shoulder", "elbow", "grip")}
    # 0.5 rad of motion; dry friction is smoothed at 0.01 rad/s by the law, and MuJoCo's belt gives way a little
    assert worst["shoulder"] < 5e-3 and worst["elbow"] < 5e-3 and worst["grip"] < 1e-4, worst


def test_a_motor_of_a_scene_has_its_own_control_behind_one_with_two(home: Path) -> None:
    motors = '<pid name="gripper" joint="finger"/>' + MOTORS
    more = '<body pos="0 5 0"><joint name="finger" axis="0 0 1"/><geom size=".1"/></body>'
    try:
        theirs = with_scene(home, scene(motors=motors, more=more))
    except ConfigError as error:
        assert "pid" in str(error), "a MuJoCo before version 4 knows no such actuator"
        return
    assert np.abs(simulated(home).q - theirs.q).max() < 1e-11


def test_a_scene_that_changes_during_a_study_counts_from_the_next_run_on(home: Path) -> None:
    (home / "scene.xml").write_text(scene())
    run = sc.load(home / "c.yaml", (*PERIOD, "realism.machine.mjcf=scene.xml"), engine="numpy")

    def end() -> float:
        return float(run_at(run, {"run.settling_band": 0.01}).simulate().q[-1, 0])

    light = end()
    (home / "scene.xml").write_text(scene().replace('mass="2"', 'mass="9"'))
    os.utime(home / "scene.xml", ns=(1, 1))  # the clock of a file system may stand still between two writes
    heavy = end()
    assert heavy != light
    assert heavy == with_scene(home, scene().replace('mass="2"', 'mass="9"')).q[-1, 0]


def test_joints_of_a_scene_are_named_as_those_of_a_robot(tmp_path: Path) -> None:
    (tmp_path / "arm.xml").write_text(
        '<mujoco><worldbody><body><joint name="left-hip" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/>'
        '<body pos=".4 0 0"><joint axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body></body></worldbody></mujoco>'
    )
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {mjcf: arm.xml}}\ninitial: {}\nlaw: none\n"
        "run: {duration: 0.02, period: 1e-3, integrator: {step: 1e-4}}\n"
    )
    ours, theirs = (
        sc.load(tmp_path / "c.yaml", more, engine="numpy").simulate()
        for more in ((), ("realism.machine.mjcf=arm.xml",))
    )
    assert list(ours.coordinates) == ["left_hip", "joint1"]
    assert np.abs(ours.v).max() > 0.1
    assert np.abs(ours.q - theirs.q).max() < 1e-4 * np.abs(ours.v).max(), "one step of MuJoCo's Euler"
