"""The units of task rows: from the terms of an equation, from frames, or as the config states them."""

from pathlib import Path

import pytest

import servoctl as sc
from servoctl.expression import parse, per_second, unit_of

COORDINATES = {"x": "m", "y": "m", "theta": "rad"}


@pytest.mark.parametrize(
    ("equation", "unit"),
    [
        ("x - y - l - 0.1*(1 - cos(t))", "m"),  # numbers, time and parameters have the unit of what is beside them
        ("theta + t - 30", "rad"),
        ("2*x - y/3", "m"),
        ("-x", "m"),
        ("abs(x) - max(y, 0.1)", "m"),
        ("der(theta) - 2", "rad/s"),
        ("atan2(y, x) - theta", "rad"),
        ("theta*x/x - 0.2", ""),
        ("l*cos(theta) - 0.2", ""),  # l may be anything
        ("x*x + y**2", ""),
        ("x - theta", ""),  # terms contradict each other
        ("k[0]*x", ""),
        ("x/y - 1", ""),
        ("cos(t)", ""),
    ],
)
def test_the_unit_of_an_equation_is_that_of_its_terms(equation: str, unit: str) -> None:
    assert unit_of(parse(equation), COORDINATES) == unit


def test_rates() -> None:
    assert [per_second(unit) for unit in ("", "m", "rad/s", "m/s^2")] == ["", "m/s", "rad/s^2", "m/s^3"]


def config(tmp_path: Path, row: str) -> Path:
    path = tmp_path / "cart.yaml"
    path.write_text(f"""
plant: {{class: "plants.two_mass_spring:TwoMassSpring"}}
initial: {{q: {{x1: 0, x2: 0.5}}, v: 0, max_violation: 1}}
task: [{{name: distance, {row}}}]
law: {{kind: constraint_following, correction: {{baumgarte: {{alpha: 4, beta: 4}}}}}}
run: {{duration: 0.01, integrator: {{method: rk4, step: 0.001}}}}
""")
    return path


def test_columns_and_metrics_of_a_run_have_the_units_of_the_rows(tmp_path: Path) -> None:
    run = sc.load(config(tmp_path, 'holonomic: "x2 - x1 - l"'), engine="vm").simulate()
    assert (run.units["violation.distance"], run.units["violation_rate.distance"]) == ("m", "m/s")
    silent = sc.load(config(tmp_path, 'holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
    assert "violation.distance" not in silent.units


def test_a_stated_unit_is_taken(tmp_path: Path) -> None:
    run = sc.load(config(tmp_path, 'unit: N, holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
    assert (run.units["violation.distance"], run.units["violation_rate.distance"]) == ("N", "N/s")


@pytest.mark.parametrize("unit", ["''", "'  m'", "a very long unit of something"])
def test_what_is_no_unit_is_refused(tmp_path: Path, unit: str) -> None:
    with pytest.raises(sc.errors.ConfigError, match=r"task\.distance\.unit|task\[0\]\.unit"):
        sc.load(config(tmp_path, f'unit: {unit}, holonomic: "x2 - x1 - l"'), engine="vm")


def test_rows_on_frames_have_the_units_of_frames() -> None:
    passive, task, _ = sc.load("two_arms_box", engine="vm").loop.system.model.row_units
    assert [task[f"box.{row}"] for row in ("x", "y", "z", "rx", "ry", "rz")] == ["m"] * 3 + ["rad"] * 3
    assert [passive[f"grip.{i}"] for i in range(6)] == ["m"] * 3 + ["rad"] * 3
