"""A few mutated configs; `python -m tests.mutants` tries as many as there is time for."""

import os
from pathlib import Path

import pytest

import servoctl as sc
from servoctl.config.load import find_config
from tests import mutants
from tests.faces import answer

MUTANTS = int(os.environ.get("SERVOCTL_MUTANTS", "24"))


@pytest.mark.parametrize("seed", range(0, MUTANTS, 8))
def test_mutated_configs_end_with_a_sentence_and_a_known_exit_code(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.search(8, seed) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "override", "said"),
    [
        ("arm_on_drives", "hil.drives.joint6.torque_limit=1e308", "torque_limit: 1e+308 at the joint"),
        ("coordinated_robots", "law.correction.baumgarte.beta=2**999", "got damping and stiffness (20.0, inf)"),
        (
            "coordinated_robots_published", "plant.passive.correction.baumgarte.beta=1e308",
            "got damping and stiffness (10.0, inf)",
        ),
        ("two_mass_spring_robust", "law.robust.bound=1e308", "expected a positive size of the disturbance, got 1e"),
        ("two_mass_spring_robust", "law.robust.bound=1e-200", "expected a positive size of the disturbance, got 1e"),
        ("flexible_joint_drive", "plant.parameters.J1=1e308", "FlexibleJointArm.mass_matrix: singular along"),
        ("parallelogram_flat", "initial.v.link2_phi=1e308", ""),
        ("arm_obstacle", "plant.obstacles.disc.sphere.at=[0.7, 1e308, 0]", ""),
    ],
)  # fmt: skip
def test_a_number_whose_square_is_none_is_refused_without_a_warning_of_numpy(
    config: str, override: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = answer(capsys, "check", config, "--set", override)
    assert code == 2 and err and said in err


SAMPLED = ["run.period=0.01", "run.integrator.step=0.005", "tune=null"]


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ("two_mass_spring_drive", ["hil.safety.lost=1e300"]),
        ("coordinated_robots", [*SAMPLED, "realism={friction: {viscous: {u1: 1e300}}}"]),
        ("coordinated_robots", [*SAMPLED, "bounds=[{name: b, holonomic: '2 - theta1', rate: 1e-300}]"]),
        ("coordinated_robots", [*SAMPLED, "law.uncertainty={m: 0.1}", "law.observer={rate: 1e20}"]),
    ],
)
def test_numbers_beyond_every_machine_end_no_check_in_a_traceback(config: str, overrides: list[str]) -> None:
    command = ["check", *(word for each in overrides for word in ("--set", each))]
    assert mutants.fault(find_config(config), command) == (0, "")


@pytest.mark.parametrize("step", ["1e308", "1e25"])
def test_rows_that_are_farther_apart_than_the_run_is_long_are_its_first_and_last(step: str, tmp_path: Path) -> None:
    sets = ["--set", f"run.output_step={step}", "--set", "run.duration=0.02"]
    for engine in ("vm", "c"):
        command = ["run", *sets, "--engine", engine, "--out", str(tmp_path / engine)]
        assert mutants.fault(find_config("three_masses"), command) == (0, "")
        assert sc.load_run(tmp_path / engine)["t"].tolist() == [0.0, 0.02]


def test_an_obstacle_at_the_largest_number_leaves_no_command(tmp_path: Path) -> None:
    sets = ["--set", "plant.obstacles.disc.sphere.at=[0.7, 1e308, 0]", "--set", "run.duration=0.02"]
    command = ["run", *sets, "--engine", "vm", "--out", str(tmp_path / "out")]
    assert mutants.fault(find_config("arm_obstacle"), command) == (4, "")
