"""The refinement of the best trial: against a closed optimum, nearby runs, and bounds; repeatable and resumable."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from config_texts import RAIL_CART

import servoctl as sc
from servoctl.cli import main
from servoctl.errors import ConfigError
from servoctl.study.batch import run_all
from servoctl.study.problem import SearchProblem, read_problem
from servoctl.study.result import Tuning
from servoctl.study.search import tune

ALPHA, BETA, M2 = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta", "plant.parameters.m2"
MASSES = f"""
plant: {{class: "plants.two_mass_spring:TwoMassSpring"}}
initial: {{q: {{x1: 0, x2: 1.02}}, v: 0}}
task: [{{name: distance, holonomic: "x2 - x1 - 2*l"}}]
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 0.4, period: 0.01, integrator: {{method: rk4, step: 0.005}}}}
tune:
  search:
    {ALPHA}: {{low: 2, high: 200, scale: log}}
    {BETA}: {{low: 2, high: 200}}
  uncertainty: {{realism.parameter_error.m2: [0, -0.2]}}
  constraints: {{input_max.F: 14, gain_share: 0.9}}
  generation: 4
  trials: 6
  refine: 40
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "masses.yaml"
    path.write_text(MASSES)
    return path


def problem(config: str | Path, *overrides: str) -> SearchProblem:
    return read_problem(sc.load(config, list(overrides), engine="vm"))


def table(tuning: Tuning) -> list[Any]:
    return [(trial.at, trial.evaluation, trial.refined) for trial in tuning.trials]


def test_a_refinement_improves_the_best_trial_and_is_marked(config: Path, tmp_path: Path) -> None:
    tuning = tune(problem(config, "tune.refine=120"), tmp_path / "study")
    *sought, last = tuning.trials
    assert len(sought) == 6 and [trial.refined for trial in sought] == [None] * 6
    done = [trial for trial in sought if trial.evaluation.status == "done"]
    start = min(done, key=lambda trial: trial.evaluation.values)
    assert (last.number, last.refined) == (6, start.number)
    assert tuning.best == last and last.evaluation.values < start.evaluation.values
    assert max(last.evaluation.excess.values()) <= 0.0
    # nothing near it is better by more than a thousandth
    for path in (ALPHA, BETA):
        for factor in (0.97, 1.03):
            near = [{**last.at, path: last.at[path] * factor, **scenario} for scenario in tuning.problem.scenarios]
            rows = list(run_all(tuning.problem.run, near))
            if max(row["input_max.F"] for row in rows) <= 14.0:
                assert max(row["rms_violation"] for row in rows) > last.evaluation.values[0] * (1 - 1e-3)


def test_a_refinement_finds_the_closed_optimum_of_a_cart(tmp_path: Path) -> None:
    """x'' = -2 alpha x' - beta^2 x from x = 0.1 at rest: the rms of x over a long time is least at zeta = 1/2.

    The integral of x^2 is x0^2 (1 + 4 zeta^2) / (4 zeta beta) for x'' + 2 zeta beta x' + beta^2 x = 0.
    """
    (tmp_path / "cart.py").write_text(RAIL_CART)
    (tmp_path / "cart.yaml").write_text(
        'plant: {class: "cart.py:Cart"}\ninitial: {q: 0.1, v: 0}\ntask: [{name: stay, holonomic: "x"}]\n'
        "law: {correction: {baumgarte: {alpha: 12, beta: 10}}}\n"
        "run: {duration: 5, integrator: {method: rk4, step: 0.005}}\n"
        f"tune: {{search: {{{ALPHA}: {{low: 1, high: 50}}}}, trials: 3, refine: 25, overshoot: none, share: none,"
        " gain_margin: none}\n"
    )
    tuning = tune(problem(tmp_path / "cart.yaml"), tmp_path / "study")
    assert tuning.best is not None and tuning.best.refined is not None
    assert tuning.best.at[ALPHA] == pytest.approx(5.0, rel=2e-3)
    assert tuning.best.evaluation.values[0] == pytest.approx(0.1 * np.sqrt(0.1 / 5.0), rel=1e-3)


def test_a_refinement_makes_no_more_trials_than_asked(config: Path, tmp_path: Path) -> None:
    tuning = tune(problem(config, "tune.refine=3"), tmp_path / "study")
    assert tuning.refinement is not None and 0 < tuning.refinement.steps <= 3


def test_a_refinement_is_repeatable_resumable_and_restarts_from_more_trials(config: Path, tmp_path: Path) -> None:
    whole = tune(problem(config), tmp_path / "whole")
    tune(problem(config, "tune.refine=0"), tmp_path / "parts")
    parts = tune(problem(config), tmp_path / "parts", resume=True)
    assert table(parts) == table(whole)
    again = tune(problem(config), tmp_path / "parts", resume=True)
    assert table(again) == table(whole) and again.here == 0
    more = tune(problem(config, "tune.trials=9", "tune.refine=0"), tmp_path / "parts", resume=True)
    straight = tune(problem(config, "tune.trials=9", "tune.refine=0"), tmp_path / "straight")
    assert [row for row in table(more) if row[2] is None] == table(straight)
    assert more.best is not None and more.best.evaluation.values <= whole.trials[-1].evaluation.values


def test_a_refinement_of_several_objectives_is_refused(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"tune\.refine: needs a single objective"):
        problem(config, "tune.objective.minimise=[rms_violation, input_rms.F]")


def test_words_and_numbers_on_a_grid_are_not_changed(config: Path, tmp_path: Path) -> None:
    search = f"tune.search={{{ALPHA}: {{low: 5, high: 50}}, {M2}: {{low: 1, high: 3, step: 0.5}}, {BETA}: [10, 20]}}"
    tuning = tune(problem(config, search, "tune.uncertainty={}"), tmp_path / "study")
    assert tuning.refinement is not None and tuning.refinement.held == (M2, BETA)
    start, last = tuning.trials[tuning.refinement.start or 0], tuning.trials[-1]
    assert last.refined == start.number and last.at[ALPHA] != start.at[ALPHA]
    assert {**last.at, ALPHA: 0} == {**start.at, ALPHA: 0}


def test_the_command_refines_and_prints_the_start(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["tune", str(config), "--set", "tune.refine=0", "--refine", "20", "--engine", "vm"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(out)])
    assert ended.value.code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert f"refined: from trial {summary['refined']['from']} in " in capsys.readouterr().out
    assert summary["best"]["refined"] == summary["refined"]["from"]
