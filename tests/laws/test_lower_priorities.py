"""Rows of priority 2 and below never stop a run; it reports what they miss, on every engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.assembly.make import make_system
from servoctl.engine import compiler
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.constraint import Holonomic
from servoctl.simulation.closed_loop import Loop
from servoctl.types import State, Status
from tests.laws.test_outcomes import Masses

ENGINES = [
    "vm",
    "numpy",
    pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no compiler")),
]

CONFIG = """\
plant: {class: "tests.laws.test_outcomes:Masses", parameters: {inputs: "%s"}}
initial: {q: {x1: 0.5, x2: -0.2}}
task:
  - {name: first, holonomic: "x1 - 0.5 - 0.1*sin(t)"%s}
  - {name: posture, holonomic: "x1 + 7"%s}
law: {correction: {baumgarte: {alpha: 4, beta: 4}}, on_infeasible: %s%s}
run: {duration: 0.5, integrator: {step: 0.005}}
"""


def run(folder: Path, engine: str, mode: str = "fault", inputs: str = "1", first: str = "", more: str = "") -> Any:
    """The summary of a run whose posture asks x1 to be where the first task does not want it."""
    path = folder / "wish.yaml"
    path.write_text(CONFIG % (inputs, first, ", priority: 2", mode, more))
    return sc.load(path, engine=engine).simulate()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["warn", "damp", "fault"])
def test_a_conflicting_row_of_lower_priority_is_reported_and_does_not_change_the_status(
    tmp_path: Path, engine: str, mode: str
) -> None:
    found = run(tmp_path, engine, mode)
    summary = found.summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert summary["residual_max"] < 1e-12
    assert summary["tasks"]["first"]["max_violation"] < 0.05  # it starts with the wrong rate, 0.1 m/s
    at_start = -16.0 * 7.5 - 8.0 * 0.0  # what the posture wants of x1'': -beta^2 times 7.5 m
    first = 8.0 * 0.1  # what the first task makes it: damping times the rate that is missing
    assert found["given_up.posture"][0] == pytest.approx(abs(at_start - first), rel=1e-12)
    assert summary["given_up"] == {"posture": pytest.approx(np.max(found["given_up.posture"]))}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_feasible_row_of_lower_priority_is_met_in_full(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "wish.yaml"
    text = (CONFIG % ("1 2", "", ", priority: 2", "fault", "")).replace("x1 + 7", "x2 + 0.3")
    path.write_text(text)
    summary = sc.load(path, engine=engine).simulate().summary()
    assert summary["status_counts"] == {"OK": 101}
    assert summary["given_up"]["posture"] < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_of_priority_1_that_conflict_still_stop_the_run(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "both.yaml"
    path.write_text((CONFIG % ("1 2", "", "", "fault", "")).replace("x1 + 7", "x2 + 0.2 - 0.3*t").replace("1 2", "+"))
    found = sc.load(path, engine=engine).simulate()
    assert found.metadata["status"] == "stopped"
    assert Status.INFEASIBLE.value in found.metadata["error"]
    assert "given_up" not in found.summary()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_that_affects_only_a_row_of_lower_priority_is_not_a_saturation(tmp_path: Path, engine: str) -> None:
    """The second mass would take 120 N to its wish; the first needs none of it."""
    path = tmp_path / "wish.yaml"
    path.write_text((CONFIG % ("1 2", "", ", priority: 2", "fault", ", limits: {F2: 5}")).replace("x1 + 7", "x2 + 7"))
    summary = sc.load(path, engine=engine).simulate().summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert abs(summary["inputs"]["F2"]["min"]) == pytest.approx(5.0)
    assert summary["given_up"]["posture"] > 50.0


def test_a_task_of_lower_priorities_only_always_has_the_status_ok(tmp_path: Path) -> None:
    summary = run(tmp_path, "vm", first=", priority: 3").summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})
    assert summary["given_up"]["posture"] < 1e-12 < 1.0 < summary["given_up"]["first"]


def test_a_row_of_lower_priority_that_the_start_violates_or_no_input_reaches_does_not_refuse_the_run(
    tmp_path: Path,
) -> None:
    path = tmp_path / "wish.yaml"
    path.write_text((CONFIG % ("1", "", ", priority: 2", "fault", "")).replace("x1 + 7", "x2 + 7"))
    loaded = sc.load(path)
    assert any("task.posture: no input acts on it: given_up.posture" in warning for warning in loaded.warnings)
    summary = loaded.simulate().summary()
    assert (summary["status"], summary["status_counts"]) == ("done", {"OK": 101})


def test_a_projected_start_satisfies_a_row_of_lower_priority_only_if_the_others_allow_it(tmp_path: Path) -> None:
    path = tmp_path / "wish.yaml"
    path.write_text(
        (CONFIG % ("1", "", ", priority: 2", "fault", "")).replace("x2: -0.2}}", "x2: -0.2}, v: 0, project: true}")
    )
    assert sc.load(path).start.q[0] == pytest.approx(0.5, abs=1e-9)
    path.write_text(path.read_text().replace("x1 + 7", "x2 + 7"))
    assert sc.load(path).start.q == pytest.approx([0.5, -7.0], abs=1e-9)


@pytest.mark.parametrize("wanted", [1e-9, 1e-7])
def test_the_tolerance_is_that_of_the_rows_of_priority_1(wanted: float) -> None:
    """A demand of 1000 on the wish must not widen what the rows of priority 1 may miss: 1e-8 (1 + |bbar|)."""
    task = {
        "a": Holonomic("x1"), "b": Holonomic(f"x1 - {wanted:g}"), "c": Holonomic("x2 - 1000"),
    }  # fmt: skip
    law = ConstraintFollowing(Baumgarte(1.0, 1.0), priorities={"c": 2})
    start = State(0.0, np.array([0.0, 0.0]), np.zeros(2))
    found = make_system(Masses(weight=0.0), task, law, {}, start, None, 1e-6)
    for loop in (Loop(found, in_numpy=True), Loop(found)):
        row, slices = loop.control(0.0, np.zeros(4)), loop.layout.slices
        expected = Status.INFEASIBLE if wanted / 2 > 1e-8 else Status.RANK_DEFICIENT
        assert Status.from_code(row[slices["status"]][0]) is expected
        assert row[slices["residual"]][0] == pytest.approx(wanted / 2)
