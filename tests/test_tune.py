"""Searches depend only on the config and its seed, also after a kill, a resume, or with several workers; the refinement
of the best trial: against a closed optimum, nearby runs, and bounds.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import servoctl as sc
from servoctl.config.load import load_config, moved, named_files, unit_of
from servoctl.errors import ClusterError, ConfigError, RunFolderError
from servoctl.study.batch import Machine, run_all
from servoctl.study.problem import Evaluator, SearchProblem, read_problem
from servoctl.study.search import tune
from servoctl.study.search_files import save
from servoctl.study.trials import Tuning
from tests.config_texts import RAIL_CART, TWO_MASSES
from tests.faces import exit_code

ALPHA, BETA, M2 = "law.correction.baumgarte.alpha", "law.correction.baumgarte.beta", "plant.parameters.m2"
CONFIG = f"""
{TWO_MASSES}run: {{duration: 0.3, period: 0.01}}
tune:
  search:
    {ALPHA}: {{low: 2, high: 200, scale: log}}
    {BETA}: {{low: 2, high: 200, scale: log}}
  uncertainty: {{{M2}: [2, 1.6, 2.4]}}
  constraints: {{input_max.F: 14}}
  generation: 5
  trials: 12
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "masses.yaml"
    path.write_text(CONFIG)
    return path


def problem(path: str | Path, *overrides: str) -> SearchProblem:
    return read_problem(sc.load(path, list(overrides), engine="vm"))


def table(tuning: Tuning) -> list[Any]:
    return [(trial.at, trial.evaluation, trial.refined) for trial in tuning.trials]


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """The search of the config without an interruption."""
    return tune(problem(config), tmp_path_factory.mktemp("whole") / "study")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2", "random"])
def test_a_killed_and_resumed_search_ends_like_an_uninterrupted_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    given = problem(config, f"tune.sampler={sampler}")
    whole = tune(given, tmp_path / "whole")
    assert len(whole.trials) == 12

    class KilledError(Exception):
        pass

    def dying_after(count: int) -> Any:
        left = count

        def runner(run: Any, points: Any, *_: Any) -> Iterator[Any]:
            nonlocal left
            for row in run_all(run, points):
                left -= 1
                if left < 0:
                    raise KilledError
                yield row

        return runner

    for turn, runs in enumerate((6, 17, 6)):  # in the first generation, and in later ones
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr("servoctl.study.search.run_all", dying_after(runs))
            tune(given, tmp_path / "parts", resume=turn > 0)
    parts = tune(given, tmp_path / "parts", resume=True)
    assert 0 < parts.here < 12
    assert table(parts) == table(whole)


def test_a_generation_that_is_half_stored_is_completed(
    config: Path, whole: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from servoctl.study.trials import TrialStore

    given, add = problem(config), TrialStore.add_trial

    def fails_at_eight(self: TrialStore, trial: Any) -> None:
        if len(self.trials) == 7:
            raise RunFolderError("the disk is full")
        add(self, trial)

    with monkeypatch.context() as patch, pytest.raises(RunFolderError, match="the disk is full"):
        patch.setattr(TrialStore, "add_trial", fails_at_eight)
        tune(given, tmp_path / "parts")
    parts = tune(given, tmp_path / "parts", resume=True)
    assert parts.here == 5
    assert table(parts) == table(whole)


def test_more_trials_continue_a_search_with_fewer(config: Path, whole: Tuning, tmp_path: Path) -> None:
    tune(problem(config, "tune.trials=7"), tmp_path / "parts")
    assert table(tune(problem(config), tmp_path / "parts", resume=True)) == table(whole)


def test_trials_equal_single_runs(config: Path, whole: Tuning) -> None:
    best = whole.best
    assert best is not None
    violations, forces = [], []
    for m2 in (2.0, 1.6, 2.4):
        values = [f"{path}={value!r}" for path, value in (best.at | {M2: m2}).items()]
        summary = sc.load(config, values, engine="vm").simulate().summary()
        violations.append(summary["tasks"]["distance"]["rms_violation"])
        forces.append(max(-summary["inputs"]["F"]["min"], summary["inputs"]["F"]["max"]))
    assert best.evaluation.values == (max(violations),)
    assert best.evaluation.metrics["input_max.F"] == max(forces) <= 14.0
    done = [trial.evaluation.values[0] for trial in whole.trials if trial.evaluation.status == "done"]
    assert best.evaluation.values[0] == min(done)
    assert {trial.evaluation.status for trial in whole.trials} >= {"done", "pruned", "failed"}


def test_the_first_trial_is_the_baseline(config: Path, tmp_path: Path) -> None:
    tuning = tune(problem(config, "tune.trials=2"), tmp_path / "study")
    assert tuning.trials[0].at == {ALPHA: 10.0, BETA: 10.0}
    assert tuning.trials[0].evaluation == tuning.baseline
    outside = problem(config, "tune.trials=2", f"{ALPHA}=1")
    assert tune(outside, tmp_path / "outside").trials[0].at[ALPHA] >= 2.0


def test_the_mean_and_a_weighted_sum_match_the_single_runs(config: Path) -> None:
    mean = problem(config, "tune.objective={minimise: {rms_violation: 2, input_rms.F: 0.5}, over: mean}")
    evaluation = Evaluator(mean).evaluate([{}])[0]
    rows = list(run_all(mean.run, [{M2: m2} for m2 in (2.0, 1.6, 2.4)]))
    expected = np.mean([2.0 * row["rms_violation"] + 0.5 * row["input_rms.F"] for row in rows])
    assert evaluation.values[0] == pytest.approx(expected, rel=1e-12)


def test_the_change_of_a_negative_metric_has_the_sign_of_the_change(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The drift of an error that decays is negative."""
    sets = ("tune.objective.minimise=drift", "tune.trials=6", "tune.overshoot=none")
    sets += ("tune.constraints={input_max.F: 14, max_violation: 10}",)
    assert exit_code("tune", config, "--out", tmp_path / "found", *(f"--set={each}" for each in sets)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("max_violation")] == ["unchanged"]  # at the start
    line = next(line for line in lines if line.startswith("drift"))
    _, _, before, after, change, _ = line.split()
    assert float(after) < float(before) < 0.0
    assert float(change) == pytest.approx(-100.0 * (float(after) / float(before) - 1.0), rel=0.02) and change[0] == "-"


def test_a_sensitivity_is_the_change_of_the_violation_by_a_value(config: Path) -> None:
    given = problem(config, f"tune.sensitivity={{spring: {{plant.parameters.k: 12}}, mass: {{{M2}: 2.5}}}}")
    evaluation = Evaluator(given).evaluate([{}])[0]
    changed = [{}, {"plant.parameters.k": 12.0, M2: 2.0}, {M2: 2.5}]
    plain, spring, mass = (row["rms_violation"] for row in run_all(given.run, changed))
    assert evaluation.metrics["sensitivity.spring"] == abs(plain - spring)
    assert evaluation.metrics["sensitivity.mass"] == abs(plain - mass) > 0.0
    assert evaluation.runs == 5


def test_a_trial_does_not_depend_on_the_spacing_of_the_rows(config: Path) -> None:
    start = ["run.period=null", "tune.uncertainty={}", "run.integrator.step=0.005"]
    plain, thinned = (
        Evaluator(problem(config, *start, *more)).evaluate([{ALPHA: 20.0}])[0] for more in ([], ["run.output_step=0.1"])
    )
    assert plain.status == "done" and thinned == plain


def test_the_share_of_the_gain_limit_is_that_of_check(config: Path) -> None:
    given = problem(config, "tune.constraints={gain_share: 0.5}")
    low, high = Evaluator(given).evaluate([{ALPHA: 20.0, BETA: 20.0}, {ALPHA: 60.0, BETA: 60.0}])
    # critically damped, held, no delay: unstable from alpha h = 1
    assert low.metrics["gain_share"] == pytest.approx(0.2, rel=1e-3)
    assert low.status == "done"
    assert (high.status, high.reason) == ("infeasible", "gain_share 0.6 is above 0.5")


def test_no_trial_of_a_front_is_dominated_and_the_best_is_on_it(config: Path, tmp_path: Path) -> None:
    free = ("tune.share=none", "tune.overshoot=none", "tune.gain_margin=none")
    given = problem(config, "tune.objective={minimise: [rms_violation, input_rms.F]}", *free)
    tuning = tune(given, tmp_path / "study")
    values = np.array([trial.evaluation.values for trial in tuning.trials if trial.evaluation.status == "done"])
    front = np.array([trial.evaluation.values for trial in tuning.front])
    beaten = [((values <= one).all(axis=1) & (values < one).any(axis=1)).any() for one in values]
    assert sorted(map(tuple, values[~np.array(beaten)])) == sorted(map(tuple, front))
    assert 1 < len(front) < len(values)
    assert tuning.best in tuning.front
    save(tuning, tmp_path / "study")
    for trial in tuning.front:
        run = sc.load(tmp_path / "study" / "front" / f"{trial.number}.yaml")
        assert run.loaded is not None
        assert run.loaded.config.law.correction.baumgarte.alpha == trial.at[ALPHA]  # type: ignore[union-attr]


def test_a_list_of_values_may_hold_words(config: Path, tmp_path: Path) -> None:
    search = "{law.allocation: [minimum_norm, unprojected], law.correction.baumgarte.alpha: [5, 10, 20]}"
    given = problem(config, f"tune.search={search}", "tune.trials=8", "tune.overshoot=none")
    tuning = tune(given, tmp_path / "study")
    assert {trial.at["law.allocation"] for trial in tuning.trials} == {"minimum_norm", "unprojected"}
    assert {trial.evaluation.status for trial in tuning.trials} == {"done"}
    assert {trial.at[ALPHA] for trial in tuning.trials} <= {5, 10, 20}


def test_units_come_from_the_schema() -> None:
    assert unit_of(ALPHA) == "1/s"
    assert unit_of("run.period") == "s"
    assert unit_of("plant.parameters.m2") == ""
    assert unit_of("task.distance.correction.p_feedback.P") == "s"
    assert unit_of("plant.gravity.2") == "m/s^2"
    assert unit_of("law.limits.F") == ""
    assert unit_of("hil.drives.F.torque_rate_limit") == unit_of("hil.drives.0.torque_rate_limit") == "actuator unit/s"


def test_the_command_writes_a_config_that_runs_and_prints_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cart.py").write_text(RAIL_CART)
    (tmp_path / "cart.yaml").write_text(
        'plant: {class: "cart.py:Cart"}\ninitial: {q: 0.01, v: 0}\ntask: [{name: stay, holonomic: "x"}]\n'
        "law: {correction: {baumgarte: {alpha: 10, beta: 10}}}\nrun: {duration: 0.3, period: 0.01}\n"
        "tune: {search: {" + ALPHA + ": {low: 5, high: 30}}, trials: 24, generation: 8}\n"
    )
    out = tmp_path / "deep" / "out"
    assert exit_code("tune", tmp_path / "cart.yaml", "--out", out, "--engine", "vm") == 0
    said = capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert f"{summary['best']['at'][ALPHA]:.4g}" in said
    assert re.search(rf"{re.escape(ALPHA)} +1/s +10 ", said)
    assert f"next: servoctl run {out}/best.yaml" in said
    rows = pq.read_table(out / "trials.parquet").to_pydict()
    feasible = [x for x, status in zip(rows["rms_violation"], rows["status"], strict=True) if status == "done"]
    assert rows["rms_violation"][summary["best"]["trial"]] == min(feasible) == summary["best"]["values"][0]
    assert "infeasible" in rows["status"]  # alpha = 5 with beta = 10 swings past zero by 16 %
    assert all((out / name).stat().st_size > 10_000 for name in ("convergence.png", "trials.png"))
    assert exit_code("run", out / "best.yaml", "--out", tmp_path / "run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"]["stay"]["rms_violation"] == pytest.approx(summary["best"]["values"][0], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trials", "row", "step"),
    [
        ("two_mass_spring", 12, "distance", "initial={q: {x1: 0, x2: 1.01}, v: 0}"),
        ("coordinated_robots", 8, "level", "task.level.holonomic=theta3 - 0.01"),
    ],
)
def test_the_shipped_searches_beat_alpha_and_beta_of_ten_by_a_third_and_do_not_ring(
    tmp_path: Path, name: str, trials: int, row: str, step: str
) -> None:
    given = read_problem(sc.load(name, [f"{ALPHA}=10", f"{BETA}=10", f"tune.trials={trials}"]))
    for scenario, error in zip(given.scenarios, (0.0, -0.2, 0.2), strict=True):
        assert scenario["run.period"] == scenario["realism.delay"] == 0.002  # one cycle late
        assert scenario["realism.noise.q"] > 0.0 and scenario["realism.noise.v"] > 0.0
        assert [value for path, value in scenario.items() if "parameter_error" in path] == [error]
    tuning = tune(given, tmp_path / "study")
    assert tuning.baseline.status == "done"  # within the same bounds on the inputs
    assert tuning.best is not None and max(tuning.best.evaluation.excess.values()) <= 0.0
    assert tuning.best.evaluation.values[0] < 0.7 * tuning.baseline.values[0]
    # the search takes its overshoot from the linear loop: here a row starts 1 % off, in a simulation without noise
    best = [f"{path}={value!r}" for path, value in {**tuning.best.at, **given.scenarios[0]}.items()]
    still = [setting for setting in best if "noise" not in setting]
    more = ["run.duration=2", "run.output_step=null", "initial.max_violation=1"]
    violation = sc.load(name, [*still, step, *more]).simulate()[f"violation.{row}"]
    assert np.max(-violation / violation[0]) < 0.1


@pytest.mark.slow
def test_a_lost_cluster_leaves_a_study_that_continues(
    config: Path, whole: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, count = problem(config), 0

    def lost(run: Any, points: Any, *_: Any) -> Iterator[Any]:
        nonlocal count
        for row in run_all(run, points):
            count += 1
            if count > 22:
                raise ClusterError("--cluster tcp://a:1: the scheduler, or its last worker, is gone")
            yield row

    with monkeypatch.context() as patch:
        patch.setattr("servoctl.study.search.run_all", lost)
        parts = tune(given, tmp_path / "parts")
    assert parts.status == "failed" and parts.broken is not None and "is gone" in parts.broken
    assert 5 <= len(parts.trials) < 12
    save(parts, tmp_path / "parts")
    assert table(tune(given, tmp_path / "parts", resume=True)) == table(whole)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vm", "c"])
def test_two_workers_end_with_the_trials_of_one(config: Path, tmp_path: Path, engine: str) -> None:
    given = read_problem(sc.load(config, [], engine=engine))
    one = tune(given, tmp_path / "one")
    with Machine(2) as workers:
        two = tune(given, tmp_path / "two", workers)
    assert table(one) == table(two)
    assert one.best == two.best


def test_trials_at_the_stability_limit_are_not_feasible(config: Path, whole: Tuning) -> None:
    assert whole.best is not None
    found = whole.best.evaluation.metrics
    assert found["gain_share"] <= 0.4 and found["overshoot"] <= 0.1 and found["gain_margin"] >= 2.0
    assert dict(whole.problem.bounds) == {"input_max.F": 14.0, "gain_share": 0.4, "overshoot": 0.1, "gain_margin": 2.0}
    loose = problem(config, "tune.share=0.9", "tune.overshoot=none", "tune.gain_margin=1.05")
    assert dict(loose.bounds) == {"input_max.F": 14.0, "gain_share": 0.9, "gain_margin": 1.05}


def test_each_bound_refuses_a_trial_by_name(config: Path) -> None:
    given = problem(config, "tune.constraints={}")
    swings, fast = Evaluator(given).evaluate([{ALPHA: 5.0, BETA: 20.0}, {ALPHA: 70.0, BETA: 70.0}])
    # zeta = 0.25: exp(-pi zeta / sqrt(1 - zeta^2)) = 0.444 in continuous time, more when held
    assert swings.status == "pruned" and swings.reason is not None and swings.reason.startswith("overshoot 0.5")
    assert (fast.status, fast.reason) == ("infeasible", "gain_share 0.7 is above 0.4")
    # held double integrator: unstable where the gain k alpha h reaches 1
    assert fast.metrics["gain_margin"] == pytest.approx(1.0 / 0.7, rel=1e-3)
    margin = problem(config, "tune.constraints={}", "tune.share=none")
    (late,) = Evaluator(margin).evaluate([{ALPHA: 70.0, BETA: 70.0}])
    assert (late.status, late.reason) == ("infeasible", "gain_margin 1.429 is below 2")


def test_a_metric_whose_greatest_value_is_best_cannot_be_minimised(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"gain_margin: its greatest value is best \(give its least value under"):
        problem(config, "tune.objective={minimise: gain_margin}")
    with pytest.raises(ConfigError, match=r"tune.share: expected a number between 0 and 1, or none, got 1.5"):
        problem(config, "tune.share=1.5")


def test_a_search_keeps_the_distance_to_a_bound_that_a_constraint_asks_for(config: Path) -> None:
    """A wall before x1, which the gains bring nearer or not; a batch measures the same distance."""
    wall = "bounds=[{name: wall, holonomic: 'x1 + 0.5'}]"
    free = problem(config, wall, "tune.uncertainty={}")
    assert "bounds.wall.min" in free.metrics
    gains = [{ALPHA: 4.0, BETA: 2.0}, {ALPHA: 60.0, BETA: 60.0}]
    least = [free.run.simulate().summary()["bounds"]["wall"]["min"]]
    rows = run_all(free.run, gains)
    least += [row["bounds.wall.min"] for row in rows]
    assert all((row["bounds.wall.violated_time"] > 0.0) == (row["bounds.wall.min"] < -1e-9) for row in rows)
    assert {"bounds.wall.active_time", "bounds.wall.violated_time"} <= set(free.metrics)
    assert len({round(value, 6) for value in least}) == 3, least
    between = (least[1] + least[2]) / 2
    alone = [f"tune.{reserve}=none" for reserve in ("share", "overshoot", "gain_margin")]
    asked = problem(config, wall, "tune.uncertainty={}", f"tune.constraints={{bounds.wall.min: {between}}}", *alone)
    found = Evaluator(asked).evaluate(gains)
    refused = [one for one, value in zip(found, least[1:], strict=True) if value < between]
    assert [one.status for one in refused] in (["infeasible"], ["pruned"])
    assert re.fullmatch(r"bounds\.wall\.min .* is below .*", refused[0].reason or "")
    with pytest.raises(ConfigError, match=r"bounds.wal.min: there is no such metric \(did you mean 'bounds.wall.min'"):
        problem(config, wall, "tune.constraints={bounds.wal.min: 0}")


def test_help_lists_every_metric_that_a_search_takes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from servoctl.run_folder.metrics import METRICS

    assert exit_code("tune", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    given = problem(config, "tune.sensitivity={spring: {plant.parameters.k: 12}}")
    known = {name.partition(".")[0] for name in given.metrics}
    assert known | {"bounds"} == {metric.name for metric in METRICS}
    for metric in METRICS:
        assert f"{metric.form} " in said and f"({metric.use})" in said
    assert "gain_margin factor on one actuator's gain at which the sampled loop becomes unstable" in said


def test_the_command_prints_share_and_margin_with_their_bounds_and_its_whole_time(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", str(config), "--out", str(tmp_path / "out"), "--engine", "vm", "--trials"]
    assert exit_code(*words, "6") == 0
    said = capsys.readouterr().out
    assert re.search(r"^masses: 6 trials, 3 runs each, ", said, re.MULTILINE), said
    assert re.search(r"gain_share \(at most 40\) +% +10 +\d", said), said
    assert re.search(r"gain_margin \(at least 2\) +10 +\d", said), said
    assert re.search(r"overshoot \(at most 0.1\) +0 +0", said), said
    assert exit_code(*words, "8", "--resume", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    parts = summary["times"]
    assert [*parts] == ["loading and tracing", "compiling", "searching", "writing"]
    assert summary["total_time"] == pytest.approx(sum(parts.values()) - parts["writing"], rel=1e-9)
    assert parts["searching"] == pytest.approx(summary["wall_time"]) and summary["wall_time"] < summary["total_time"]
    assert summary["trials_per_second"] == pytest.approx(2 / summary["total_time"], rel=1e-9)


@pytest.mark.slow
def test_the_best_trial_of_a_closed_chain_stays_within_the_bounds(tmp_path: Path) -> None:
    span = "{low: 2, high: 200, scale: log}"
    overrides = [
        f"tune={{search: {{{ALPHA}: {span}, {BETA}: {span}}}}}",
        "run.duration=1",
        "run.period=0.005",
        "run.integrator.step=0.005",
        "tune.trials=16",
    ]
    tuning = tune(read_problem(sc.load("four_bar", overrides)), tmp_path / "study")
    assert tuning.best is not None
    assert tuning.best.evaluation.metrics["gain_share"] <= 0.4
    assert tuning.best.evaluation.metrics["overshoot"] <= 0.1


REFINED = f"""
{TWO_MASSES}run: {{duration: 0.4, period: 0.01, integrator: {{method: rk4, step: 0.005}}}}
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
def refined(tmp_path: Path) -> Path:
    path = tmp_path / "masses.yaml"
    path.write_text(REFINED)
    return path


def test_a_refinement_improves_the_best_trial_and_is_marked(refined: Path, tmp_path: Path) -> None:
    tuning = tune(problem(refined, "tune.refine=120"), tmp_path / "study")
    *sought, last = tuning.trials
    assert len(sought) == 6 and [trial.refined for trial in sought] == [None] * 6
    done = [trial for trial in sought if trial.evaluation.status == "done"]
    start = min(done, key=lambda trial: trial.evaluation.values)
    assert (last.number, last.refined) == (6, start.number)
    assert tuning.best == last and last.evaluation.values < start.evaluation.values
    assert max(last.evaluation.excess.values()) <= 0.0
    unfinished = replace(tuning, problem=problem(refined, "tune.trials=7"))
    assert (tuning.status, unfinished.status) == ("done", "interrupted")  # a refined trial is none of those asked for
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


def test_a_refinement_makes_no_more_trials_than_asked(refined: Path, tmp_path: Path) -> None:
    tuning = tune(problem(refined, "tune.refine=3"), tmp_path / "study")
    assert tuning.refinement is not None and 0 < tuning.refinement.steps <= 3


def test_a_refinement_is_repeatable_resumable_and_restarts_from_more_trials(refined: Path, tmp_path: Path) -> None:
    whole = tune(problem(refined), tmp_path / "whole")
    tune(problem(refined, "tune.refine=0"), tmp_path / "parts")
    parts = tune(problem(refined), tmp_path / "parts", resume=True)
    assert table(parts) == table(whole)
    again = tune(problem(refined), tmp_path / "parts", resume=True)
    assert table(again) == table(whole) and again.here == 0
    more = tune(problem(refined, "tune.trials=9", "tune.refine=0"), tmp_path / "parts", resume=True)
    straight = tune(problem(refined, "tune.trials=9", "tune.refine=0"), tmp_path / "straight")
    assert [row for row in table(more) if row[2] is None] == table(straight)
    assert more.best is not None and more.best.evaluation.values <= whole.trials[-1].evaluation.values


def test_a_refinement_of_several_objectives_is_refused(refined: Path) -> None:
    with pytest.raises(ConfigError, match=r"tune\.refine: needs a single objective"):
        problem(refined, "tune.objective.minimise=[rms_violation, input_rms.F]")


def test_words_and_numbers_on_a_grid_are_not_changed(refined: Path, tmp_path: Path) -> None:
    search = f"tune.search={{{ALPHA}: {{low: 5, high: 50}}, {M2}: {{low: 1, high: 3, step: 0.5}}, {BETA}: [10, 20]}}"
    tuning = tune(problem(refined, search, "tune.uncertainty={}"), tmp_path / "study")
    assert tuning.refinement is not None and tuning.refinement.held == (M2, BETA)
    start, last = tuning.trials[tuning.refinement.start or 0], tuning.trials[-1]
    assert last.refined == start.number and last.at[ALPHA] != start.at[ALPHA]
    assert {**last.at, ALPHA: 0} == {**start.at, ALPHA: 0}


def test_the_command_refines_and_prints_the_start(
    refined: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["tune", str(refined), "--set", "tune.refine=0", "--refine", "20", "--engine", "vm"]
    assert exit_code(*words, "--out", out) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert f"refined: from trial {summary['refined']['from']} in " in capsys.readouterr().out
    assert summary["best"]["refined"] == summary["refined"]["from"]


def test_files_among_the_choices_of_a_search_are_part_of_it(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("t,x\n0,0\n1,0\n2,0\n3,0\n")
    (tmp_path / "masses.yaml").write_text(
        f"{TWO_MASSES.replace('2*l', '2*l - r_x')}references: {{r: {{file: a.csv}}}}\nrun: {{duration: 0.1}}\n"
        f"tune: {{search: {{{ALPHA}: {{low: 2, high: 200}}}}, trials: 2,\n"
        "  uncertainty: {references.r.file: [b.csv, c.csv]}, sensitivity: {other: {references.r.file: d.csv}}}\n"
    )
    loaded = load_config(tmp_path / "masses.yaml")
    assert named_files(moved(loaded.config, tmp_path, tmp_path / "x")) == [f"../{name}.csv" for name in "abcd"]
    given = problem(tmp_path / "masses.yaml")
    tune(given, tmp_path / "study")
    for name in ("c.csv", "d.csv"):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(before.replace("3,0", "3,1"))
        with pytest.raises(ConfigError, match=f"is of another study: files.{name} was "):
            tune(given, tmp_path / "study", resume=True)
        (tmp_path / name).write_text(before)
