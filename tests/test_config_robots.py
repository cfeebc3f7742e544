"""Grammar of robots from files: what each form means, what a dump gives back, and many mistakes at once."""

from pathlib import Path

import pytest
from config_texts import ROBOT

from servoctl.config import LoadedConfig, dump, load_config
from servoctl.config.schema import LawConfig
from servoctl.errors import ConfigError

FORMS = """\
task:
  - {name: a, pose: box, xyz: [0.5, 0, "0.4 + 0.1*sin(t)"], rpy: [0, 90*deg, 0], relative_to: left_tool}
  - {name: b, pose: box, reference: path}
  - {name: c, pose: box, reference: path, rpy: [0, 0, 0]}
  - {name: d, position: left_tool, reference: path}
  - {name: e, position: left_tool, xyz: [1, 2, left_link7_m]}
  - {name: f, orientation: left_tool, rpy: [0, 0, t]}
  - {name: g, orientation: left_tool, reference: path}
  - {name: h, axis: [left_tool, z], along: [0, 0, -1]}
  - {name: i, axis: [left_tool, [0, 1, 1]], along: [0, sin(t), -1]}
  - {name: j, distance: [left_tool, right_tool], value: 0.4}
  - {name: k, distance: [left_tool, [0, 0, 500*mm]], value: "0.4*t"}
  - {name: l, com: [x, y], value: [0.1, 0]}
  - {name: m, com: [z], value: 0.1}
  - {name: n, posture: initial, priority: 2}
  - {name: o, posture: {left_joint3: 0, left_joint4: sin(t)}}
  - {name: p, posture: reference, reference: guided}
"""


def load(tmp_path: Path, text: str, *overrides: str) -> LoadedConfig:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load_config(file, overrides)


def with_forms() -> str:
    before, _, after = ROBOT.partition("task:\n")
    return before + FORMS + "law:" + after.partition("law:")[2]


@pytest.mark.parametrize("text", [ROBOT, with_forms()], ids=["two arms", "every form"])
def test_a_dump_of_a_config_of_robots_loads_back_to_the_same_config(text: str, tmp_path: Path) -> None:
    config = load(tmp_path, text).config
    assert load(tmp_path, dump(config)).config == config


def test_defaults_of_a_robot_are_written_into_the_config(tmp_path: Path) -> None:
    plant = load(tmp_path, ROBOT).config.plant
    assert plant.gravity == (0.0, 0.0, -9.81)
    assert plant.robots is not None
    assert (plant.robots["left"].base, plant.robots["left"].motors) == (None, "all")
    assert plant.robots["right"].at.xyz == (0.0, 0.0, 0.0)
    assert plant.loops is not None
    assert (plant.loops["hold"].kind, plant.loops["hold"].pair) == ("weld", ("box", "grip"))


def test_gravity_among_the_parameters_leaves_no_default_beside_it(tmp_path: Path) -> None:
    config = load(tmp_path, ROBOT.replace("initial:", "  parameters: {gravity: [0, 0, -1.62]}\ninitial:")).config
    assert config.plant.gravity is None
    assert load(tmp_path, dump(config)).config == config


def test_a_robot_needs_no_start(tmp_path: Path) -> None:
    text = ROBOT.replace("{q: {left_joint4: -2.2}, solve: {box: {xyz: [0.5, 0, 0.4]}}}", "{}")
    assert load(tmp_path, text).config.initial.q == {}


def test_targets_are_kept_as_text_and_numbers_of_places_are_evaluated(tmp_path: Path) -> None:
    config = load(tmp_path, with_forms()).config
    assert config.task[0].xyz == ("0.5", "0.0", "0.4 + 0.1*sin(t)")
    assert config.task[0].rpy == ("0.0", "90*deg", "0.0")
    assert config.task[8].axis == ("left_tool", (0.0, 1.0, 1.0))
    assert config.task[10].distance == ("left_tool", ("0.0", "0.0", "500*mm"))
    assert config.task[12].value == "0.1"
    assert [task.form for task in config.task[:4]] == ["pose", "pose", "pose", "position"]


def test_numbers_of_a_robot_are_set_from_the_command_line(tmp_path: Path) -> None:
    changed = ["plant.parameters.left_link7_m=0.9", "plant.bodies.box.m=2", "task.box.rpy=[0, 0, 90*deg]"]
    config = load(tmp_path, ROBOT, *changed).config
    assert config.plant.parameters == {"left_link7_m": 0.9}
    assert config.plant.bodies is not None
    assert config.plant.bodies["box"].m == 2.0
    assert config.task[0].rpy == ("0.0", "0.0", "90*deg")


def test_a_list_of_gains_has_one_value_per_row_of_all_forms(tmp_path: Path) -> None:
    rows = ROBOT.replace("posture: initial", "posture: {left_joint1: 0, left_joint2: 0}")
    right = rows.replace("law: {", "law: {correction: {baumgarte: {alpha: [1, 2, 3, 4, 5, 6, 7, 8], beta: 1}}, ")
    law = load(tmp_path, right).config.law
    assert isinstance(law, LawConfig) and law.correction is not None and law.correction.baumgarte is not None
    assert law.correction.baumgarte.alpha == (1, 2, 3, 4, 5, 6, 7, 8)
    with pytest.raises(ConfigError, match=r"alpha: 7 values for 8 rows \(give one per row\)"):
        load(tmp_path, right.replace("7, 8]", "7]"))
