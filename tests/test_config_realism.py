"""What `realism` refuses, and that every slip comes out at once."""

from pathlib import Path

import pytest

import servoctl as sc
from hil.assembly.prepare import load as load_drives
from hil.replay.replay import replay
from servoctl.errors import ConfigError

SAMPLED = ["run.period=0.01", "run.output_step="]


def refused(*settings: str, name: str = "two_mass_spring") -> str:
    with pytest.raises(ConfigError) as error:
        sc.load(name, [*SAMPLED, *settings])
    return str(error.value)


def test_gains_that_are_unstable_with_the_delay_are_refused() -> None:
    sc.load("two_mass_spring", [*SAMPLED, "realism.delay=0.05"])  # 4 1/s at 5 cycles of 0.01 s
    said = refused("realism.delay=0.5")
    assert "task.distance: unstable at a period of 0.01 s (delay 50 cycles)" in said


def test_a_mechanism_with_open_loops_is_reported() -> None:
    longer = sc.load("coordinated_robots", [*SAMPLED, "realism.parameter_error.L=0.01"], engine="vm", strict=False)
    assert any("violates its constraint loop.0 by -0.03" in warning for warning in longer.warnings), longer.warnings
    heavier = sc.load("coordinated_robots", [*SAMPLED, "realism.parameter_error.m=0.2"], engine="vm", strict=False)
    assert not any("violates its constraint" in warning for warning in heavier.warnings)


def test_a_run_folder_runs_again(tmp_path: Path) -> None:
    given = "realism={noise: {q: {x1: 1e-4}}, delay: 1.5*ms, saturation: {F: [-8, 9]}, parameter_error: {m1: 0.2}}"
    first = sc.load("two_mass_spring", [*SAMPLED, "run.duration=0.2", given], engine="vm")
    trajectory = first.simulate(tmp_path / "run")
    again = sc.load(tmp_path / "run" / "config.yaml", engine="vm").simulate()
    assert (again.q == trajectory.q).all() and (again.u == trajectory.u).all()


def test_drives_keep_out_of_it_and_replay_says_why_it_cannot(tmp_path: Path) -> None:
    prepared = load_drives("two_mass_spring_drive", ["run.period=0.01", "realism={friction: {viscous: 3}}"])
    assert prepared.run.system.friction is None and prepared.run.system.realism is None
    sc.load("two_mass_spring", [*SAMPLED, "run.duration=0.1", "realism.delay=0.01"]).simulate(tmp_path / "run")
    with pytest.raises(ConfigError, match="the logged u is the input after delay and actuators"):
        replay(tmp_path / "run")
