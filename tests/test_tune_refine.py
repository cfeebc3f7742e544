"""Exact derivatives, compared with finite differences and algebra; and the descent along them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from config_texts import RAIL_CART

import servoctl as sc
from servoctl.cli import main
from servoctl.errors import ConfigError
from servoctl.sweep.batch import run_all
from servoctl.sweep.series import at_every_step
from servoctl.tune import SearchProblem, Tuning, read_problem, tune
from servoctl.tune.refine import Descent, Hill

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
  refine: 12
"""
REALISM = (
    "realism={noise: {q: 1e-4, v: 1e-3}, delay: 0.013, jitter: 0.004, lag: 0.003, "
    "friction: {coulomb: 0.2, viscous: 0.1}}"
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "masses.yaml"
    path.write_text(MASSES)
    return path


def problem(config: str | Path, *overrides: str) -> SearchProblem:
    return read_problem(sc.load(config, list(overrides), engine="vm"))


def check_against_differences(given: SearchProblem, values: list[float], free: list[str], relative: float) -> None:
    """Every metric and slope of every plant, against fourth-order differences of plain runs."""
    plants = Descent(given)._slopes_at({}, free, np.array(values))
    for scenario, found in zip(given.scenarios, plants, strict=True):
        at = dict(zip(free, values, strict=True)) | scenario
        whole = at_every_step(given.run)
        (plain,) = run_all(whole, [at])
        for j, path in enumerate(free):
            h = 1e-3 * values[j]
            near = list(run_all(whole, [at | {path: values[j] + k * h} for k in (-2, -1, 1, 2)]))
            for metric, columns in found.items():
                value, slope = max(columns.values(), key=lambda one: one[0])
                assert value == pytest.approx(plain[metric], rel=1e-12)
                a, b, c, d = (row[metric] for row in near)
                assert slope[j] == pytest.approx((a - 8 * b + 8 * c - d) / (12 * h), rel=relative), (metric, path)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("run.period=null", "tune.uncertainty={}"),
        (REALISM,),
        ("run.period=null", "tune.uncertainty={}", "run.integrator.step=0.004", "run.output_step=0.01"),
    ],
    ids=["sampled", "continuous", "realistic", "rows between steps"],
)
def test_derivatives_match_finite_differences(config: Path, overrides: tuple[str, ...]) -> None:
    given = problem(
        config, "tune.objective.minimise={rms_violation: 1, final_violation: 1, input_rms.F: 1}", *overrides
    )
    check_against_differences(given, [9.0, 14.0], [ALPHA, BETA], 1e-6)


def test_derivatives_by_plant_and_start_match_finite_differences(config: Path) -> None:
    search = f"tune.search={{{M2}: {{low: 1, high: 3}}, initial.q.x2: {{low: 1.01, high: 1.1}}}}"
    check_against_differences(problem(config, search), [2.1, 1.03], [M2, "initial.q.x2"], 1e-6)


@pytest.mark.slow
def test_derivatives_with_passive_constraints_match_finite_differences() -> None:
    free = [ALPHA, BETA]
    given = problem("coordinated_robots", "run.duration=0.2", "tune.refine=1")
    check_against_differences(given, [20.0, 15.0], free, 1e-6)


def test_derivatives_of_a_sampled_cart_match_its_recursion(tmp_path: Path) -> None:
    """x'' = -2 alpha x' - beta^2 x held for h: a polynomial in the gains, differentiated by complex steps."""
    (tmp_path / "cart.py").write_text(RAIL_CART)
    (tmp_path / "cart.yaml").write_text(
        'plant: {class: "cart.py:Cart"}\ninitial: {q: 0.1, v: 0.05}\ntask: [{name: stay, holonomic: "x"}]\n'
        "law: {correction: {baumgarte: {alpha: 10, beta: 10}}}\nrun: {duration: 1, period: 0.01}\n"
        f"tune: {{search: {{{ALPHA}: {{low: 1, high: 50}}, {BETA}: {{low: 1, high: 50}}}},"
        " objective: {minimise: {rms_violation: 1, input_rms.F: 1}}, refine: 1}\n"
    )

    def recursion(alpha: complex, beta: complex) -> tuple[complex, complex]:
        h, x, v, positions, forces = 0.01, 0.1 + 0j, 0.05 + 0j, [], []
        for _ in range(101):
            a = -2 * alpha * v - beta**2 * x
            positions.append(x), forces.append(3.0 * a)
            x, v = x + h * v + h * h / 2 * a, v + h * a
        weights = np.full(101, h)
        weights[[0, -1]] = h / 2
        rms = [np.sqrt(weights @ np.square(np.array(row))) for row in (positions, forces)]
        return rms[0], rms[1]

    (plant,) = Descent(problem(tmp_path / "cart.yaml"))._slopes_at({}, [ALPHA, BETA], np.array([8.0, 12.0]))
    for place, metric in enumerate(("rms_violation", "input_rms.F")):
        ((value, slope),) = plant[metric].values()
        assert value == pytest.approx(recursion(8.0, 12.0)[place].real, rel=1e-12)
        exact = [recursion(8.0 + 1e-30j, 12.0)[place].imag * 1e30, recursion(8.0, 12.0 + 1e-30j)[place].imag * 1e30]
        assert slope == pytest.approx(exact, rel=1e-10)


def table(tuning: Tuning) -> list[Any]:
    return [(trial.at, trial.evaluation, trial.refined) for trial in tuning.trials]


def test_a_descent_improves_the_best_trial_and_is_marked(config: Path, tmp_path: Path) -> None:
    tuning = tune(problem(config), tmp_path / "study")
    *sought, last = tuning.trials
    assert len(sought) == 6 and [trial.refined for trial in sought] == [None] * 6
    done = [trial for trial in sought if trial.evaluation.status == "done"]
    start = min(done, key=lambda trial: trial.evaluation.values)
    assert (last.number, last.refined) == (6, start.number)
    assert tuning.best == last and last.evaluation.values < start.evaluation.values
    assert max(last.evaluation.excess.values()) <= 0.0
    # nothing beside it is better by more than the precision of the descent
    for path in (ALPHA, BETA):
        for factor in (0.97, 1.03):
            near = [{**last.at, path: last.at[path] * factor, **scenario} for scenario in tuning.problem.scenarios]
            rows = list(run_all(tuning.problem.run, near))
            if max(row["input_max.F"] for row in rows) <= 14.0:
                assert max(row["rms_violation"] for row in rows) > last.evaluation.values[0] * (1 - 1e-5)


def test_the_descent_does_not_depend_on_the_unit_of_the_objective(config: Path) -> None:
    ends = []
    for size in (1e-6, 1.0, 1e6):
        minimise = f"tune.objective.minimise={{rms_violation: {size}, input_rms.F: {1e-4 * size}}}"
        given = problem(config, minimise)
        hill = Hill(given, partial(Descent(given)._slopes_at, {}, [ALPHA, BETA]), [ALPHA, BETA])
        first = hill.scaled({ALPHA: 12.0, BETA: 9.0})
        ends.append(hill.descend(first, 30)[0])
        assert np.abs(ends[-1] - first).max() > 0.05
    assert ends[0] == pytest.approx(ends[1], rel=1e-6) and ends[2] == pytest.approx(ends[1], rel=1e-6)


def test_a_descent_is_repeatable_resumable_and_restarts_from_more_trials(config: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "tune.objective.minimise=settling_time",
            "settling_time has no gradient (rms_violation, final_violation",
        ),
        ("tune.objective.minimise=[rms_violation, input_rms.F]", "tune.refine: needs a single objective"),
        ("realism.quantisation.q=1e-4", "realism.quantisation makes every gradient zero or infinite"),
        ("run.integrator={method: dop853}", "dop853 chooses its own steps (run.integrator.method: rk4)"),
    ],
)
def test_an_objective_without_gradient_is_refused_before_any_run(
    config: Path, tmp_path: Path, override: str, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        tune(problem(config, override), tmp_path / "study")
    assert said in str(error.value)
    assert not (tmp_path / "study").exists()


def test_a_numpy_run_has_no_gradient(config: Path, tmp_path: Path) -> None:
    given = read_problem(sc.load(config, [], engine="numpy"))
    with pytest.raises(ConfigError, match=r"tune\.refine: the run is on NumPy, which has no derivatives"):
        tune(given, tmp_path / "study")


def test_an_input_at_its_limit_is_a_kink_and_the_search_result_stays(config: Path, tmp_path: Path) -> None:
    tuning = tune(problem(config, "realism.saturation=1"), tmp_path / "study")
    assert tuning.refinement is not None and tuning.refinement.why is not None
    assert tuning.refinement.why.startswith("an input is at its limit at trial")
    assert len(tuning.trials) == 6 and tuning.status == "done"


def test_paths_without_derivatives_are_not_changed(config: Path, tmp_path: Path) -> None:
    search = f"tune.search={{{ALPHA}: {{low: 5, high: 50}}, run.period: {{low: 0.005, high: 0.02}}, {BETA}: [10, 20]}}"
    tuning = tune(problem(config, search, "run.integrator.step=0.001"), tmp_path / "study")
    assert tuning.refinement is not None and tuning.refinement.held == ("run.period", BETA)
    start, last = tuning.trials[tuning.refinement.start or 0], tuning.trials[-1]
    assert last.refined == start.number and last.at[ALPHA] != start.at[ALPHA]
    assert {**last.at, ALPHA: 0} == {**start.at, ALPHA: 0}


def test_the_command_refines_and_prints_the_start(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["tune", str(config), "--set", "tune.refine=0", "--refine", "3", "--no-compare", "--engine", "vm"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(out)])
    assert ended.value.code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert f"refined: from trial {summary['refined']['from']} in " in capsys.readouterr().out
    assert summary["best"]["refined"] == summary["refined"]["from"]
