"""A path that stays inside a bound, but comes near faster than the bound's rate allows, is named before the run."""

from pathlib import Path
from typing import Any

import pytest

import servoctl as sc
from servoctl.check.report import check

CONFIG = """
plant: {class: "plants.two_mass_spring:TwoMassSpring"}
initial: {q: {x1: 0.1, x2: 1.1}, project: true, max_violation: 1}
task: [{name: first, holonomic: "x1 - 0.1*cos(20*t)"}]
bounds: [{name: wall, holonomic: "x1 + 0.105"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 1, period: 0.001}
"""


def loaded(folder: Path, *changes: str) -> sc.Run:
    (folder / "wall.yaml").write_text(CONFIG)
    return sc.load(folder / "wall.yaml", changes, engine="vm", strict=False)


def missed(run: sc.Run) -> dict[str, Any]:
    summary = run.simulate().summary()
    return {"off": summary["tasks"]["first"]["max_violation"], **summary["bounds"]["wall"]}


def test_the_rate_that_gives_up_a_path_inside_is_named_with_one_that_does_not(tmp_path: Path) -> None:
    """The path comes within 5 mm at 40 m/s^2: the default of 15 1/s leaves it 53 mm off."""
    run = loaded(tmp_path)
    report = check(run)
    hurry = report.values["bounds"]["wall"]["hurry"]
    assert hurry["rate"] == 15.0 and 0.0 < hurry["first"] < 0.05
    assert any("wall: the task's path stays inside, but comes near faster" in warning for warning in report.warnings)
    assert missed(run)["off"] > 0.05
    faster = loaded(tmp_path, f"bounds.wall.rate={hurry['enough']}")
    assert "hurry" not in check(faster).values["bounds"]["wall"]
    found = missed(faster)
    assert found["off"] < 0.01 and found["violated_time"] == 0.0


@pytest.mark.parametrize("change", ["task.first.holonomic='x1 - 0.1*cos(2*t)'", "task.first.holonomic='x2 - x1 - 1'"])
def test_a_slow_path_and_a_bound_that_the_task_does_not_determine_are_not_named(tmp_path: Path, change: str) -> None:
    assert "hurry" not in check(loaded(tmp_path, change)).values["bounds"]["wall"]
