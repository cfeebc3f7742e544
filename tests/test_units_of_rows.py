"""The units of task rows: from the terms of an equation, from frames, or as the config states them."""

from pathlib import Path

import pytest

import servoctl as sc
from servoctl.expression import foreign_word, parse, per_second, unit_of
from servoctl.study.metrics import path_unit

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


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("initial.q.q4", "m"),
        ("initial.v.q1", "rad/s"),
        ("law.limits.F4.1", "N"),
        ("hil.drives.F4.torque_rate_limit", "N/s"),
        ("plant.friction.viscous.tau1", "N m per its speed"),
        ("bounds.wall.acceleration.q4", "m/s^2"),
        ("law.correction.baumgarte.alpha.x", "1/s"),
        ("plant.parameters.m3", ""),
        ("run.period", "s"),
    ],
)
def test_a_number_that_is_varied_has_the_unit_of_its_coordinate_or_actuator(path: str, unit: str) -> None:
    assert path_unit(sc.load("scara_drive", engine="vm"), path) == unit


def test_rates() -> None:
    assert [per_second(unit) for unit in ("", "-", "m", "rad/s", "m/s^2")] == ["", "1/s", "m/s", "rad/s^2", "m/s^3"]


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
    assert run.units["disturbance.distance"] == "m/s^2"
    silent = sc.load(config(tmp_path, 'holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
    assert "violation.distance" not in silent.units


def test_a_stated_unit_is_taken(tmp_path: Path) -> None:
    run = sc.load(config(tmp_path, 'unit: N, holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
    assert (run.units["violation.distance"], run.units["violation_rate.distance"]) == ("N", "N/s")


def test_rows_on_frames_have_the_units_of_frames() -> None:
    passive, task, _ = sc.load("two_arms_box", engine="vm").loop.system.model.row_units
    assert [task[f"box.{row}"] for row in ("x", "y", "z", "rx", "ry", "rz")] == ["m"] * 3 + ["rad"] * 3
    assert [passive[f"grip.{i}"] for i in range(6)] == ["m"] * 3 + ["rad"] * 3


@pytest.mark.parametrize(
    ("equation", "unit", "word"),
    [
        ("60*deg", "m", "deg"),
        ("-(60*deg)", "m/s", "deg"),
        ("5*mm", "rad", "mm"),
        ("x - 30*deg", "", "deg"),
        ("theta - 0.5*(1 - cos(t)) - 5*mm", "", "mm"),
        ("der(x) - 3*deg", "", "deg"),
        ("max(theta, 5*mm)", "", "mm"),
        ("60*deg", "rad", None),
        ("60*deg", "rad/s", None),
        ("60*deg", "", None),
        ("3*rpm*t", "rad", None),
        ("x - 50*mm*cos(60*deg)", "", None),
        ("l*theta - 5*mm", "", None),  # l may be anything
        ("x - 0.2*theta", "", None),  # no unit word: 0.2 may be a radius
        ("x/(5*mm) - theta", "", None),
        ("der(x) - 5*mm", "", None),
        ("10*deg*t - theta", "", None),  # time is a factor without a unit
        ("10*deg*t - x", "", "deg"),
        ("5*mm*k - x", "", None),  # k may be anything
    ],
)
def test_a_unit_word_of_another_kind_is_found(equation: str, unit: str, word: str | None) -> None:
    found = foreign_word(parse(equation), COORDINATES, unit)
    assert (None if found is None else found[0]) == word
