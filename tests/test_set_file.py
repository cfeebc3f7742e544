"""`--set-file`: a YAML file laid over a config, key by key, before `--set`."""

import json
from pathlib import Path

import pytest

from servoctl.cli import main
from servoctl.config.load import load_config
from servoctl.errors import ConfigError
from tests.faces import answer

ROBOTS = "coordinated_robots"


def written(folder: Path, text: str, name: str = "over.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_mappings_are_merged_key_by_key(tmp_path: Path) -> None:
    over = written(tmp_path, "run: {duration: 1}\nplant: {parameters: {g: 1.62}}\n")
    plain, config = load_config(ROBOTS).config, load_config(ROBOTS, [over]).config
    assert config.run.duration == 1.0
    assert config.run.output_step == plain.run.output_step  # the rest stays
    assert config.plant.parameters["g"] == 1.62
    assert config.plant.class_ == plain.plant.class_


def test_drives_are_merged_by_their_actuator_and_tasks_by_their_name(tmp_path: Path) -> None:
    over = written(
        tmp_path,
        "hil: {drives: [{actuator: u3, offset: 0.25, sign: -1}]}\n"
        "task: [{name: level, correction: {baumgarte: {alpha: 3, beta: 4}}}]\n",
    )
    plain, config = load_config(ROBOTS).config, load_config(ROBOTS, [over]).config
    assert plain.hil is not None and config.hil is not None
    before, after = ({drive.actuator: drive.model_dump() for drive in hil.drives} for hil in (plain.hil, config.hil))
    assert list(after) == list(before)  # nothing added, the order kept
    assert after["u3"] == before["u3"] | {"offset": 0.25, "sign": -1}
    assert after["u2"] == before["u2"]
    assert [task.name for task in config.task] == [task.name for task in plain.task]
    assert config.task[2].holonomic == plain.task[2].holonomic
    assert config.task[2].correction is not None and plain.task[2].correction is None


def test_null_removes_an_option_of_a_drive(tmp_path: Path) -> None:
    file = tmp_path / "belt.yaml"
    file.write_text("hil: {drives: [{actuator: F, vel_limit: null, encoder_bits: 18}]}")
    hil = load_config("two_mass_spring_drive", [file]).config.hil
    assert hil is not None
    assert hil.drives[0].options == {"encoder_bits": 18}


def test_an_entry_with_a_new_name_is_appended_and_other_lists_are_replaced(tmp_path: Path) -> None:
    over = written(
        tmp_path,
        "task: [{name: again, holonomic: theta1 - 1, priority: 2}]\n"
        "hil: {drives: [{actuator: u1, position_limits: [-1, 2]}]}\n",
    )
    config = load_config(ROBOTS, [over]).config
    assert [task.name for task in config.task] == ["object_x", "object_y", "level", "again"]
    assert config.hil is not None and list(config.hil.drives[0].position_limits) == [-1, 2]


def test_files_come_before_set_and_a_later_file_wins(tmp_path: Path) -> None:
    first = written(tmp_path, "run: {duration: 1, seed: 1}", "first.yaml")
    second = written(tmp_path, "run: {duration: 2}", "second.yaml")
    assert load_config(ROBOTS, [first, second]).config.run.duration == 2.0
    config = load_config(ROBOTS, [first, second, "run.duration=3"]).config
    assert (config.run.duration, config.run.seed) == (3.0, 1)


def test_set_addresses_a_drive_by_its_actuator() -> None:
    config = load_config(ROBOTS, ["hil.drives.u4.offset=0.5"]).config
    assert config.hil is not None
    assert {drive.actuator: drive.offset for drive in config.hil.drives}["u4"] == 0.5


def test_a_wrong_value_is_reported_with_the_line_of_the_file_that_wrote_it(tmp_path: Path) -> None:
    over = written(tmp_path, "run:\n  duration: -1\nlaw:\n  correcton: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(ROBOTS, [over, "run.seed=x"])
    duration, correction, seed = sorted(caught.value.problems, key=lambda problem: ("seed" in problem, problem))
    assert duration.startswith(f"{over}:2: run.duration: expected a positive time [s], got -1")
    assert correction.startswith(f"{over}:4: law.correcton: unknown key (did you mean 'correction'?)")
    assert seed.startswith("--set run.seed=x: run.seed: ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "empty (a config has plant, initial, task, law and run)"),
        ("- 1\n", "expected a mapping with plant, initial, task, law and run, got [1]"),
        ("run: {duration: 1\n", "expected ',' or '}'"),
        ("run: {seed: 1, seed: 2}\n", "run.seed: duplicate key"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path: Path, text: str, sentence: str) -> None:
    over = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(ROBOTS, [over])
    assert str(over) in str(caught.value) and sentence in str(caught.value)


def test_a_missing_file_is_reported_with_all_other_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(ROBOTS, [tmp_path / "none.yaml", "run.durtion=1"])
    assert f"--set-file {tmp_path / 'none.yaml'}: no such file (check the path)" in caught.value.problems
    assert any("run.durtion: unknown key" in problem for problem in caught.value.problems)


def test_on_the_command_line_the_run_folder_holds_the_merged_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["--set-file", written(tmp_path, "run: {duration: 0.05}"), "--set", "run.seed=7"]
    code, out, _ = answer(capsys, "run", ROBOTS, *changes, "--json", "--out", tmp_path / "run")
    assert (code, json.loads(out)["duration"]) == (0, pytest.approx(0.05))
    again = load_config(tmp_path / "run/config.yaml").config.run
    assert (again.duration, again.seed) == (0.05, 7)


@pytest.mark.parametrize("command", ["run", "check", "sweep", "tune", "analyse", "export", "hil", "emulate"])
def test_every_command_that_takes_set_takes_set_file(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"sweep": ["--vary", "run.seed=1:2:2"], "export": ["--out", "out"]}.get(command, [])
    assert main([command, ROBOTS, *arguments, "--set-file", "nowhere.yaml"]) == 2
    assert "--set-file nowhere.yaml: no such file (check the path)" in capsys.readouterr().err
