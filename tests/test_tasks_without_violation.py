"""A task given as A and b alone has no violation: figures of the worst task are those of the others."""

from pathlib import Path

import pytest

import servoctl as sc
from servoctl.study.metrics import metric_names, metrics_of
from tests.config_texts import plant_text
from tests.faces import exit_code

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
