"""What `check` and the warnings of a run say about a robot's start."""

from pathlib import Path

import pytest
from small_robot import SMALL, small_urdf

import servoctl as sc
from hil.assembly.settings import hil_settings
from servoctl.assembly.make import make_run
from servoctl.check.report import check
from servoctl.config import load_config
from servoctl.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The small robot."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.urdf").write_text(small_urdf())
    (tmp_path / "c.yaml").write_text(SMALL)
    return tmp_path / "c.yaml"


def load(config: Path, *overrides: str) -> sc.Run:
    return sc.load(config, list(overrides), engine="vm", strict=False)


def section(run: sc.Run, title: str) -> list[str]:
    return dict(check(run).sections)[title]


def test_a_good_start_has_no_warning_and_its_joints_are_reported(config: Path) -> None:
    run = load(config)
    assert run.warnings == []
    lines = section(run, "robot")
    assert lines[0] == "joint limits: all 2 met at the start; elbow is closest, by 1 rad"
    assert lines[1].startswith("first command against effort: shoulder uses most, ")
    assert check(run).values["robot"]["joints"]["elbow"]["limits"] == [0.2, 2.8]


def test_a_joint_that_starts_outside_its_limits_is_named(config: Path) -> None:
    run = load(config, "initial.q={shoulder: -0.4, elbow: 0}", "initial.max_violation=10")
    assert "the start has elbow = 0 rad, below its lower limit 0.2 (initial.q)" in run.warnings
    assert section(run, "robot")[0] == "joint limits: 1 of 2 joints start outside"


def test_a_first_command_above_the_effort_is_named(config: Path) -> None:
    (config.parent / "files" / "small.urdf").write_text(small_urdf(effort=0.5))
    above = load(config, "law.limits=null").warnings
    assert any(
        "the first command of elbow is " in warning and "above its effort, 0.5 N m" in warning for warning in above
    )
    at = load(config, "law.residual_tolerance=1e3").warnings
    assert "the first command of elbow is at its effort, 0.5 N m (start elsewhere, or slower)" in at


@pytest.mark.parametrize(
    ("task", "far"),
    [
        ("orientation: tool, rpy: [0, 0, 0]", False),
        ("orientation: tool, rpy: [0, 160*deg, 0]", True),
        ("pose: tool, xyz: [0.5, 0, 0], rpy: [0, 160*deg, 0]", True),
        ("axis: [tool, x], along: [-1, 0, 0.3]", True),
        ("axis: [tool, x], along: [1, 0, 0]", False),
    ],
)
def test_a_start_close_to_half_a_turn_from_its_reference_is_named(task: str, far: bool, config: Path) -> None:
    override = f"task=[{{name: turn, {task}, priority: 2, correction: {{baumgarte: {{alpha: 8, beta: 8}}}}}}]"
    start = "initial.q={shoulder: -1, elbow: 1}"
    found = [
        warning for warning in load(config, override, start).warnings if "from its reference at the start" in warning
    ]
    assert len(found) == far
    assert all(warning.startswith("task.turn: 16") for warning in found)


def test_notes_of_a_file_are_told(config: Path) -> None:
    (config.parent / "files" / "small.urdf").write_text(small_urdf(effort=0))
    run = load(config, "law.limits=null")
    assert any("effort is 0 or missing" in line for line in section(run, "robot"))
    assert check(run).values["robot"]["notes"]


def test_motions_of_a_free_base_count_six(config: Path) -> None:
    run = load(config, "plant.robot.base=free", "law.limits=null", "task.height.value=1.1", "initial.max_violation=10")
    assert run.motions is not None
    assert run.motions.total == 8


ALONE = "task=[{name: height, distance: [tool, [0, 0, 1]], value: 0.9, correction: {baumgarte: {alpha: 8, beta: 8}}}]"


def test_a_motion_that_nothing_damps_is_counted(config: Path) -> None:
    (found,) = load(config, ALONE).warnings
    assert found.startswith(
        "1 of 2 motions are determined; 1 is free and the smallest torques do not damp it (add a task `posture"
    )


@pytest.mark.parametrize("damped", ["law.secondary={damping: 1}", "law.allocation=constraint_force"])
def test_a_free_motion_that_the_law_damps_is_no_warning(damped: str, config: Path) -> None:
    run = load(config, ALONE, damped)
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
    run = load(config, "task=[{name: balance, com: [x], value: 0.1}]", "law.limits=null")
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
    run = load(config, "run.period=0.005", bounds)
    limits = run.system.model.bounds["fast"]
    assert dict(zip(limits.coordinates, limits.upper, strict=True)) == {"shoulder": 3.0, "elbow": 0.5}  # type: ignore[attr-defined]
    # elbow 1.2 rad leads the follower to 2.4 rad, above its 2
    assert section(run, "robot")[0] == "joint limits: 1 of 2 joints start outside"
    assert check(run).values["robot"]["joints"]["elbow"]["limits"] == [0.2, 1.0]
    assert any("elbow = 1.2 rad, above its upper limit 1" in warning for warning in run.warnings)


def test_feet_that_may_pull_are_named() -> None:
    (found,) = [sentence for sentence in load("quadruped_stand").warnings if "pull" in sentence]
    assert found == "loops LF, RF, LH, RH: a foot may pull on the ground, too, unless a bound holds its reaction"
