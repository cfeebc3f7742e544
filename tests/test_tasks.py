"""Tasks of a run: their rank, the time in which they are followed, those without a violation or without a law.

The units of their rows: from the terms of an equation, from frames, or as the config states them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.expression import foreign_word, parse, per_second, unit_of
from servoctl.run_folder.trajectory import Trajectory
from servoctl.study.metrics import metric_names, metrics_of, path_unit
from servoctl.types import Array
from tests.config_texts import plant_text
from tests.faces import exit_code
from tests.small_plants import Masses
from tests.small_robot import small_urdf

LAW = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5, beta=5))


def run_with(rows: dict[str, str], step: float, **start: list[float]) -> sc.Trajectory:
    constraints = {name: sc.Holonomic(text) for name, text in rows.items()}
    return sc.simulate(Masses(), constraints, LAW, duration=2.0, step=step, **start)  # type: ignore[arg-type]


def test_rows_that_depend_on_each_other_where_the_task_holds_end_the_run_by_name() -> None:
    rows = {"path": "x - sin(3*t)", "again": "(1 + y)*(x - sin(3*t))"}
    trajectory = run_with(rows, 0.05, q=[0.0, 0.5], v=[3.0, 0.0])
    assert trajectory["rank"][0] == 1 and trajectory.metadata["status"] == "stopped"
    error = trajectory.metadata["error"]
    assert "task rank 2, but 1 at the nearest state that satisfies the task" in error
    assert "dependent rows (again) look independent" in error and "law.rank_tolerance" in error


def test_a_tolerance_above_the_drift_lets_it_run() -> None:
    rows = {"path": sc.Holonomic("x - sin(3*t)"), "again": sc.Holonomic("(1 + y)*(x - sin(3*t))")}
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5, beta=5), rank_tolerance=1e-3)
    trajectory = sc.simulate(Masses(), rows, law, q=[0.0, 0.5], v=[3.0, 0.0], duration=2.0, step=0.01)
    assert trajectory.metadata["status"] == "done" and set(trajectory["rank"]) == {1}
    assert abs(trajectory["u.Fy"]).max() < 1e-2


def test_a_rank_that_really_rises_is_no_fault() -> None:
    # at x = 0 the row x^2/2 has no gradient; it gains one as x grows
    trajectory = run_with({"square": "x**2/2 - t**2/2", "height": "y"}, 0.01, q=[0.0, 0.0], v=[1.0, 0.0])
    assert trajectory["rank"][0] == 1 and trajectory["rank"][-1] == 2
    assert trajectory.metadata["status"] == "done"


def run_over(span: list[float] | None) -> Trajectory:
    columns = {"t": np.arange(5.0), "violation.x": np.array([9.0, 1.0, -2.0, 1.0, 7.0])}
    said = {"tasks": {"x": ["x"]}} | ({} if span is None else {"task_span": span})
    return Trajectory(columns, {}, said)


@pytest.mark.parametrize("span, most, last", [(None, 9.0, 7.0), ([1.0, 3.0], 2.0, 1.0), ([2.0, 2.0], 2.0, 2.0)])
def test_only_the_rows_between_count(span: list[float] | None, most: float, last: float) -> None:
    metrics = run_over(span).summary()["tasks"]["x"]
    assert metrics["max_violation"] == most
    assert abs(metrics["final_violation"]) == last


def test_a_task_that_never_began_has_no_metrics() -> None:
    metrics = run_over([]).summary()["tasks"]["x"]
    assert metrics["max_violation"] is None
    assert metrics["final_violation"] is None


GIVEN = """
from dataclasses import dataclass
import numpy as np
import servoctl as sc


@dataclass(frozen=True)
class Given(sc.SecondOrder):
    a: float = 0.5  # [m/s^2]

    def A(self, q, v, t):
        return np.array([[0.0, 1.0]])

    def b(self, q, v, t):
        return np.array([self.a * np.cos(t)])
"""
PLANT = plant_text("Pair", "", "x y", "F G", "np.eye(2)", "-0.1 * v")
CONFIG = """
plant: {class: 'pair.py:Pair'}
initial: {q: {x: 0.1, y: 0}, v: 0, max_violation: 1}
task: [{name: given, class: 'given.py:Given'}, {name: held, holonomic: x, correction: {baumgarte: {alpha: 4, beta: 4}}}]
law: {rank_tolerance: 1.0e-10}
run: {duration: 0.2, period: 0.01}
tune:
  search: {task.held.correction.baumgarte.alpha: {low: 2, high: 6}}
  gain_margin: none
  trials: 4
  generation: 2
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.py").write_text(GIVEN)
    (tmp_path / "pair.py").write_text(PLANT)
    path = tmp_path / "pair.yaml"
    path.write_text(CONFIG)
    return path


def test_the_worst_task_is_one_that_has_a_violation(config: Path) -> None:
    run = sc.load(config, engine="vm")
    row = metrics_of(run.simulate().summary())
    assert row["rms_violation"] == row["rms_violation.held"] > 0.01
    assert row["rms_violation.given"] is None
    assert "rms_violation.held" in metric_names(run) and "rms_violation.given" not in metric_names(run)


def test_a_search_counts_the_tasks_that_have_a_violation(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("tune", "pair.yaml", "--engine", "vm", "--out", "found") == 0
    assert "has no value" not in capsys.readouterr().err


def test_a_search_for_a_violation_that_no_task_has_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(CONFIG.replace(", {name: held, holonomic: x, correction: {baumgarte: {alpha: 4, beta: 4}}}", ""))
    assert exit_code("check", "pair.yaml") == 2
    assert "tune.objective.minimise: rms_violation: there is no such metric" in capsys.readouterr().err


RUN = """
plant: {robot: {urdf: small.urdf}}
initial: {q: {shoulder: -0.4, elbow: 1.2}}
task:
  - {name: here, holonomic: "shoulder - 9"}
  - {name: there, holonomic: "shoulder + 9"}
  - {name: turned, pose: tool, xyz: [0.1, 0, 0.2], rpy: [pi, 0, 0]}
law: none
run: {duration: 0.1, integrator: {method: rk4, step: 0.01}}
"""


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_tasks_that_contradict_each_other_are_far_off_or_half_a_turn_away_are_only_written(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "small.urdf").write_text(small_urdf())
    (tmp_path / "c.yaml").write_text(RUN)
    run = sc.load(tmp_path / "c.yaml", engine=engine).simulate()
    assert run.metadata["status"] == "done"
    (tmp_path / "c.yaml").write_text(
        RUN.replace("task:", "tasks:").split("tasks:")[0] + "law: none\nrun:" + RUN.split("run:")[1]
    )
    free = sc.load(tmp_path / "c.yaml", engine=engine).simulate()
    np.testing.assert_allclose(run.q, free.q, rtol=0, atol=1e-13)  # the task takes no part in the motion
    np.testing.assert_allclose(run["violation.here"], run["q.shoulder"] - 9.0, atol=1e-13)
    np.testing.assert_allclose(run["violation.there"], run["q.shoulder"] + 9.0, atol=1e-13)


@dataclass(frozen=True)
class Tied(Masses):
    """Two masses whose speeds change equally, by a constraint that is given at acceleration level alone."""

    forces: str = "Fx"

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        rows, rest = np.array([[1.0, -1.0]]), np.zeros(1)
        return {"tie": sc.SecondOrder(lambda q, v, t: rows, lambda q, v, t: rest)}


@pytest.mark.parametrize("projection", [False, True])
def test_a_constraint_of_the_plant_without_a_violation_is_not_corrected(projection: bool) -> None:
    rows = {"push": sc.Holonomic("x - t**2/2")}
    trajectory = sc.simulate(Tied(), rows, LAW, q=0, duration=0.5, projection=projection)
    assert trajectory.metadata["status"] == "done"
    np.testing.assert_allclose(trajectory.q[-1], [0.125, 0.125], rtol=1e-9)
    np.testing.assert_allclose(trajectory["u.Fx"], 2.0, rtol=1e-9)


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
        ("sqrt(x**2 + y**2)*theta - 0.3", ""),  # the root of a square has a unit too
        ("sqrt(x**2 + y**2) - y", "m"),
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


def unit_config(tmp_path: Path, row: str) -> Path:
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
    run = sc.load(unit_config(tmp_path, 'holonomic: "x2 - x1 - l"'), engine="vm").simulate()
    assert (run.units["violation.distance"], run.units["violation_rate.distance"]) == ("m", "m/s")
    assert run.units["disturbance.distance"] == "m/s^2"
    silent = sc.load(unit_config(tmp_path, 'holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
    assert "violation.distance" not in silent.units


def test_a_stated_unit_is_taken(tmp_path: Path) -> None:
    run = sc.load(unit_config(tmp_path, 'unit: N, holonomic: "k*(x2 - x1 - l)"'), engine="vm").simulate()
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
        ("sqrt(x**2 + y**2)*theta - 5*mm", "", None),
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
