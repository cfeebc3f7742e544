"""A few mutated configs; `python -m tests.mutants` tries as many as there is time for."""

import os
from pathlib import Path

import mutants
import pytest

import servoctl as sc
from servoctl.cli import main
from servoctl.config.load import find_config

MUTANTS = int(os.environ.get("SERVOCTL_MUTANTS", "24"))


@pytest.mark.parametrize("seed", range(0, MUTANTS, 8))
def test_mutated_configs_end_with_a_sentence_and_a_known_exit_code(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.search(8, seed) == 0, capsys.readouterr().out


def test_a_torque_limit_beyond_all_numbers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "arm_on_drives", "--set", "hil.drives.joint6.torque_limit=1e308"])
    assert ended.value.code == 2
    assert "torque_limit: 1e+308 at the joint" in capsys.readouterr().err


def test_a_gain_whose_square_is_no_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "coordinated_robots", "--set", "law.correction.baumgarte.beta=2**999"]) == 2
    assert "expected gains of at least 0, got damping and stiffness (20.0, inf)" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["1e308", "1e25"])
def test_rows_that_are_farther_apart_than_the_run_is_long_are_its_first_and_last(step: str, tmp_path: Path) -> None:
    sets = ["--set", f"run.output_step={step}", "--set", "run.duration=0.02"]
    for engine in ("vm", "c"):
        command = ["run", *sets, "--engine", engine, "--out", str(tmp_path / engine)]
        assert mutants.fault(find_config("three_masses"), command) == (0, "")
        assert sc.load_run(tmp_path / engine)["t"].tolist() == [0.0, 0.02]


def test_a_start_of_numbers_near_the_largest_is_refused_without_a_warning_of_numpy() -> None:
    command = ["check", "--set", "initial.v.link2_phi=1e308"]
    assert mutants.fault(find_config("parallelogram_flat"), command) == (2, "")


@pytest.mark.parametrize("bound", ["1e308", "1e-200"])
def test_a_disturbance_whose_square_is_no_number_is_refused(bound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "two_mass_spring_robust", "--set", f"law.robust.bound={bound}"]) == 2
    assert "law.robust.bound: expected a positive size of the disturbance, got 1e" in capsys.readouterr().err


def test_gains_of_passive_rows_whose_square_is_no_number_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sets = "plant.passive.correction.baumgarte.beta=1e308"
    assert main(["check", "coordinated_robots_published", "--set", sets]) == 2
    assert "expected gains of at least 0, got damping and stiffness (10.0, inf)" in capsys.readouterr().err


def test_an_obstacle_at_the_largest_number_leaves_no_command_and_is_refused(tmp_path: Path) -> None:
    sets = ["--set", "plant.obstacles.disc.sphere.at=[0.7, 1e308, 0]", "--set", "run.duration=0.02"]
    config = find_config("arm_obstacle")
    assert mutants.fault(config, ["check", *sets]) == (2, "")
    assert mutants.fault(config, ["run", *sets, "--engine", "vm", "--out", str(tmp_path / "out")]) == (4, "")


def test_an_inertia_near_the_largest_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "flexible_joint_drive", "--set", "plant.parameters.J1=1e308"]) == 2
    assert "FlexibleJointArm.mass_matrix: singular along" in capsys.readouterr().err
