"""Robots of configs: what a config builds, which files it finds from where, what it refuses, and what `check` says."""

from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from hil.assembly.settings import hil_settings
from servoctl.assembly.make import make_run
from servoctl.check.report import check
from servoctl.config import load_config
from servoctl.config.load import find_config, moved, named_files
from servoctl.errors import ConfigError
from servoctl.mechanics.spatial.plant import Robot
from tests.faces import exit_code
from tests.small_robot import SMALL, small_urdf


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small robot in a folder of its own, seen from another working folder."""
    home, other = tmp_path / "home", tmp_path / "other"
    (home / "files").mkdir(parents=True)
    other.mkdir()
    monkeypatch.chdir(other)
    (home / "files" / "small.urdf").write_text(small_urdf())
    (home / "c.yaml").write_text(SMALL)
    return home / "c.yaml"


def load(config: Path, *overrides: str, **keys: str) -> sc.Run:
    text = config.read_text()
    for old, new in keys.items():
        text = text.replace(old, new)
    config.write_text(text)
    return sc.load(config, overrides, engine="vm")


def problems(config: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        sc.load(config, overrides, engine="vm")
    return caught.value.problems


def plant_of(run: sc.Run) -> Robot:
    plant = run.system.model.plant
    assert isinstance(plant, Robot)
    return plant


def test_an_actuator_bears_its_joints_name_and_a_file_is_relative_to_the_config(config: Path) -> None:
    plant = plant_of(load(config))
    assert list(plant.coordinates) == list(plant.actuators) == ["shoulder", "elbow"]
    assert dict(plant.actuators) == {"shoulder": "N m", "elbow": "N m"}


def test_coordinates_that_are_left_out_are_zero_inside_the_limits(config: Path) -> None:
    run = load(config, "initial.q={shoulder: -0.4}", "initial.max_violation=10")
    assert run.start.q.tolist() == [-0.4, 0.2]


def test_a_free_base_starts_upright_and_has_seven_coordinates(config: Path) -> None:
    run = load(config, "plant.robot.base=free", "law.limits=null", "task.height.value=1.1", "initial.max_violation=10")
    assert list(run.system.model.plant.coordinates)[:7] == [
        f"base_{x}" for x in ("x", "y", "z", "qw", "qx", "qy", "qz")
    ]
    assert run.start.q[:7].tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert [row.name for row in run.system.model.task_rows][1:] == ["rest.0", "rest.1"]


def test_a_posture_keeps_the_start_that_a_projection_found(config: Path) -> None:
    run = load(config, "initial.project=true", "task.height.value=0.95")
    at = run.system.model.rows(run.start)[1].violation
    assert np.abs(at).max() < 1e-9


def test_parameters_of_links_and_bodies_are_set_by_name(config: Path) -> None:
    bodies = "plant.bodies={load: {m: 2, size: [0.1, 0.1, 0.2], on: tool, at: {xyz: [0.05, 0, 0]}}}"
    plain = plant_of(load(config)).mass_matrix(np.zeros(2), 0.0)
    heavy = plant_of(load(config, bodies, "plant.parameters.fore_m=3")).mass_matrix(np.zeros(2), 0.0)
    inertia = 2 * (0.1**2 + 0.2**2) / 12
    assert heavy[1, 1] - plain[1, 1] == pytest.approx(2 * 0.15**2 + 2 * 0.35**2 + inertia, abs=1e-12)
    lighter = plant_of(load(config, "plant.gravity=[0, 0, -1.62]"))
    assert lighter.gravity == (0.0, 0.0, -1.62)
    assert plant_of(load(config, "plant.gravity=null", "plant.parameters.gravity=[0, 0, -2]")).gravity == (0, 0, -2)


def test_a_real_machine_may_have_another_payload(config: Path) -> None:
    run = load(config, "run.period=0.005", "realism.parameter_error.fore_m=0.5", "run.duration=0.05")
    assert run.system.simulated is not None
    assert run.system.simulated.plant.fore_m == pytest.approx(1.5)  # type: ignore[attr-defined]
    assert run.simulate().metadata["status"] == "done"


def test_a_sweep_of_a_mass_traces_the_robot_once_and_equals_single_runs(config: Path) -> None:
    run = load(config)
    metrics = sc.batch(run, {"plant.parameters.fore_m": [0.5, 2.0]})
    for i, mass in enumerate((0.5, 2.0)):
        single = load(config, f"plant.parameters.fore_m={mass}").simulate().summary()
        assert np.asarray(metrics["input_max.elbow"])[i] == pytest.approx(single["inputs"]["elbow"]["max"], rel=1e-6)


def test_limits_of_a_robot_are_the_efforts_of_its_file(config: Path) -> None:
    law = load(config).system.law
    assert law is not None
    of = law.allocation  # type: ignore[attr-defined]
    assert (of.lower, of.upper) == ((-60.0, -40.0), (60.0, 40.0))


def test_a_run_folder_runs_and_replays_from_any_folder(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", str(config), "--out", "first", "--engine", "vm") == 0
    assert exit_code("run", "first/config.yaml", "--out", "second", "--engine", "vm") == 0
    assert exit_code("replay", "first") == 0
    assert exit_code("report", "first") == 0
    capsys.readouterr()
    first, second = sc.load_run("first"), sc.load_run("second")
    assert np.array_equal(first.q, second.q)
    assert f"urdf: {config.parent}/files/small.urdf" in Path("first/config.yaml").read_text()


def test_a_config_in_another_folder_leads_to_the_same_file(config: Path) -> None:
    loaded = load_config(config)
    assert named_files(loaded.config) == ["files/small.urdf"]
    there = moved(loaded.config, loaded.folder, Path("elsewhere/deeper"))
    assert named_files(there) == ["../../../home/files/small.urdf"]


def test_limits_of_a_robot_without_an_effort_are_refused(config: Path) -> None:
    (config.parent / "files" / "small.urdf").write_text(small_urdf(effort=0))
    (found,) = problems(config)
    assert (
        "law.limits: robot: the file gives no effort for elbow (give it there, or write law.limits by actuator" in found
    )


def test_a_wrong_loop_hides_no_other_mistake(tmp_path: Path) -> None:
    shipped = find_config("two_arms_box")
    text = shipped.read_text().replace("robots/arm7.urdf", str(shipped.parent / "robots/arm7.urdf"))
    for right, wrong in (("weld: [box", "weld: [boxx"), ("pose: box", "pose: bx"), ("left_joint4", "left_jont4")):
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        sc.load(tmp_path / "bad.yaml")
    assert [problem.partition(": ")[2].partition(": ")[0] for problem in error.value.problems] == [
        "plant.loops.grip",
        "initial.q.left_jont4",
        "task.box.pose",
    ]


def test_a_robot_whose_joints_are_all_fixed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    joint = '<joint name="j" type="fixed"><parent link="base"/><child link="a"/></joint>'
    (tmp_path / "r.urdf").write_text(f'<robot name="r"><link name="base"/><link name="a"/>{joint}</robot>')
    config = tmp_path / "c.yaml"
    config.write_text("plant: {robot: {urdf: r.urdf}}\ninitial: {q: 0}\nlaw: none\nrun: {duration: 1}\n")
    (said,) = problems(config)
    assert said.endswith("c.yaml:1: plant.robot: no joint moves (check the types of its joints, or give `base: free`)")


@pytest.mark.parametrize("moments", ["-0.01 0.02 0.03", "0.01 0.01 0.3"])
def test_a_run_warns_of_an_inertia_that_no_body_has(moments: str, tmp_path: Path) -> None:
    xx, yy, zz = moments.split()
    tensor = f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"/>'
    arm = f'<link name="a"><inertial><mass value="1"/>{tensor}</inertial></link>'
    joint = '<joint name="j" type="continuous"><parent link="base"/><child link="a"/><axis xyz="0 0 1"/></joint>'
    (tmp_path / "r.urdf").write_text(f'<robot name="r"><link name="base"/>{arm}{joint}</robot>')
    config = tmp_path / "c.yaml"
    config.write_text("plant: {robot: {urdf: r.urdf}}\ninitial: {q: 0}\nlaw: none\nrun: {duration: 1}\n")
    (warning,) = sc.load(config, engine="vm").warnings
    numbers = ", ".join(f"{float(x):g}" for x in (xx, yy, zz))
    assert warning.startswith(f"a: no rigid body has this inertia: its principal moments are {numbers} kg m^2 (")


def test_a_task_with_the_name_of_a_passive_constraint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.urdf").write_text(small_urdf())
    (tmp_path / "c.yaml").write_text(
        "plant: {robot: {urdf: small.urdf, base: free}}\ninitial: {q: {base_qw: 1, elbow: 0.5}}\n"
        'task: [{name: base, holonomic: "elbow - 0.5"}]\nlaw: none\nrun: {duration: 0.5}\n'
    )
    with pytest.raises(ConfigError, match=r"base: a constraint of the plant itself has this name \(rename the task\)"):
        sc.load(tmp_path / "c.yaml", engine="vm")


def test_what_is_wrong_with_a_robot_whose_poses_are_solved_is_found_in_the_file(tmp_path: Path) -> None:
    """The mass matrix is first asked for by `initial.solve`; a pose may be absurd."""
    text = Path(find_config("two_arms_box")).read_text()
    (tmp_path / "robots").symlink_to(Path(find_config("two_arms_box")).parent / "robots")
    path = tmp_path / "c.yaml"
    path.write_text(text)
    (singular,) = problems(path, "plant.parameters={left_link7_m: 0, left_link7_I: [-1, 0, 0, 0, 0, 0]}")
    assert singular.startswith(f"{path}:2: plant: Robot.mass_matrix: not positive definite")
    (far,) = problems(path, "initial.solve={box: {xyz: [1e308, 0, 1]}}")
    assert "initial.solve: no coordinates inside the joint limits reach the poses" in far


# What `check` and the warnings of a run say about a robot's start


def seen(config: str | Path, *overrides: str) -> sc.Run:
    return sc.load(config, list(overrides), engine="vm", strict=False)


def section(run: sc.Run, title: str) -> list[str]:
    return dict(check(run).sections)[title]


def test_a_good_start_has_no_warning_and_its_joints_are_reported(config: Path) -> None:
    run = seen(config)
    assert run.warnings == []
    lines = section(run, "robot")
    assert lines[0] == "joint limits: all 2 met at the start; elbow is closest, by 1 rad"
    assert lines[1].startswith("first command against effort: shoulder uses most, ")
    assert check(run).values["robot"]["joints"]["elbow"]["limits"] == [0.2, 2.8]


def test_a_joint_that_starts_outside_its_limits_is_named(config: Path) -> None:
    run = seen(config, "initial.q={shoulder: -0.4, elbow: 0}", "initial.max_violation=10")
    assert "the start has elbow = 0 rad, below its lower limit 0.2 (initial.q)" in run.warnings
    assert section(run, "robot")[0] == "joint limits: 1 of 2 joints start outside"


def test_a_first_command_above_the_effort_is_named(config: Path) -> None:
    (config.parent / "files" / "small.urdf").write_text(small_urdf(effort=0.5))
    above = seen(config, "law.limits=null").warnings
    assert any(
        "the first command of elbow is " in warning and "above its effort, 0.5 N m" in warning for warning in above
    )
    at = seen(config, "law.residual_tolerance=1e3").warnings
    assert "the first command of elbow is at its effort, 0.5 N m (start elsewhere, or slower)" in at


def test_notes_of_a_file_are_told(config: Path) -> None:
    (config.parent / "files" / "small.urdf").write_text(small_urdf(effort=0))
    run = seen(config, "law.limits=null")
    assert any("effort is 0 or missing" in line for line in section(run, "robot"))
    assert check(run).values["robot"]["notes"]


def test_motions_of_a_free_base_count_six(config: Path) -> None:
    run = seen(config, "plant.robot.base=free", "law.limits=null", "task.height.value=1.1", "initial.max_violation=10")
    assert run.motions is not None
    assert run.motions.total == 8


ALONE = "task=[{name: height, distance: [tool, [0, 0, 1]], value: 0.9, correction: {baumgarte: {alpha: 8, beta: 8}}}]"


@pytest.mark.parametrize("damped", ["law.secondary={damping: 1}", "law.allocation=constraint_force"])
def test_a_free_motion_that_the_law_damps_is_no_warning(damped: str, config: Path) -> None:
    run = seen(config, ALONE, damped)
    assert run.motions is not None
    assert run.motions.line == "1 of 2 motions are determined; 1 is free, and damped"
    assert not [warning for warning in run.warnings if "motions are determined" in warning]


DRIVES = """\
hil:
  period: 2.5*ms
  buses: {main: {interface: emulated}}
  drives:
    - {actuator: shoulder, bus: main, protocol: odrive, node: 1, gear: 10, torque_limit: 70, torque_rate_limit: 4000, speed_limit: 3, position_limits: [-3, 3]}
    - {actuator: elbow, bus: main, protocol: odrive, node: 2, gear: 10, torque_limit: 70, torque_rate_limit: 4000, speed_limit: 3, position_limits: [-3, 3]}
"""  # noqa: E501


def rig_problems(config: Path, *overrides: str) -> list[str]:
    config.write_text(SMALL + DRIVES)
    loaded = load_config(config, list(overrides))
    plant = make_run(loaded, "vm", strict=False).system.model.plant
    with pytest.raises(ConfigError) as caught:
        hil_settings(loaded, plant)
    return caught.value.problems


def test_drives_must_allow_the_efforts_that_the_law_may_use(config: Path) -> None:
    (found,) = rig_problems(config, "hil.drives.elbow.torque_limit=30")
    assert (
        "law.limits: robot: the effort of elbow, 40, is above torque_limit 30 of its drive (write law.limits" in found
    )


def test_drives_refuse_a_free_base_that_no_sensor_measures(config: Path) -> None:
    changed = ["plant.robot.base=free", "task.height.value=1.1", "initial.max_violation=10"]
    found = rig_problems(config, *changed)
    assert any(
        "hil.sensors: no sensor measures base_x, base_y, base_z, base_qw, base_qx, base_qy, base_qz of the free base "
        "(give hil.sensors for all, or base: fixed)" in problem
        for problem in found
    )


def test_links_that_do_not_move_count_for_the_centre_of_mass_and_are_named(config: Path) -> None:
    run = seen(config, "task=[{name: balance, com: [x], value: 0.1}]", "law.limits=null")
    sentence = "balance: the centre of mass is that of every link, 8 kg, of which 5 kg do not move (ground)"
    assert sentence in section(run, "robot")


def test_the_limits_of_a_joint_that_follows_hold_for_the_joint_that_leads(config: Path) -> None:
    path = config.parent / "files" / "small.urdf"
    follower = (
        '<link name="finger"><inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" '
        'iyz="0"/></inertial></link><joint name="follower" type="revolute"><parent link="fore"/><child link="finger"/>'
        '<axis xyz="0 -1 0"/><limit lower="-1" upper="2" velocity="1" effort="5"/><mimic joint="elbow" multiplier="2"/>'
        "</joint></robot>"
    )
    path.write_text(path.read_text().replace("</robot>", follower))
    bounds = "bounds=[{name: fast, velocity: robot}]"
    run = seen(config, "run.period=0.005", bounds)
    limits = run.system.model.bounds["fast"]
    assert dict(zip(limits.coordinates, limits.upper, strict=True)) == {"shoulder": 3.0, "elbow": 0.5}  # type: ignore[attr-defined]
    # elbow 1.2 rad leads the follower to 2.4 rad, above its 2
    assert section(run, "robot")[0] == "joint limits: 1 of 2 joints start outside"
    assert check(run).values["robot"]["joints"]["elbow"]["limits"] == [0.2, 1.0]
    assert any("elbow = 1.2 rad, above its upper limit 1" in warning for warning in run.warnings)
    path.write_text(path.read_text().replace('multiplier="2"', 'multiplier="-2" offset="-2"'))  # elbow -2 to -0.5 rad
    sentence = (
        "elbow has no room: its limits and those of what follows it (follower) want at least 0.2 rad and at most "
        "-0.5 rad (correct them in the robot's file)"
    )
    assert sentence in seen(config, "run.period=0.005").warnings
    with pytest.raises(ConfigError) as error:
        seen(config, "run.period=0.005", bounds.replace("velocity", "position"))
    assert f"position: {sentence}" in str(error.value)
