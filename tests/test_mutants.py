"""A few mutated configs; `python -m tests.mutants` tries as many as there is time for."""

import os

import mutants
import pytest

from servoctl.cli import main

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


def test_an_inertia_near_the_largest_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "flexible_joint_drive", "--set", "plant.parameters.J1=1e308"]) == 2
    assert "FlexibleJointArm.mass_matrix: singular along" in capsys.readouterr().err
