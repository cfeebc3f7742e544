"""The benchmarks as a person and a program meet them, and what the pseudoinverse study finds."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from servoctl.bench.parallelogram import INERTIA, MOMENT, START, Experiment, RunError, exact_angle, machine, simulate
from servoctl.bench.pseudoinverse import OUR_GAINS, OUR_RULE, published, result
from servoctl.bench.pseudoinverse_methods import METHODS, RankRule
from servoctl.bench.published import WITH_STABILISATION, WITHOUT_STABILISATION
from servoctl.bench.references import measured
from servoctl.bench.registry import BENCHMARKS, description
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable
from servoctl.cli import main

CASES = json.loads((Path(__file__).parent / "data" / "cases.json").read_text())
EXACT = CASES["case5_fivebar_exact"]["cases"]["A_hanging_minus45deg"]

SVD = Experiment("svd", 1e-8, RankRule(1e-8, relative=False))


def strict(text: str) -> Any:
    """JSON without NaN and infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    """What `servoctl bench pseudoinverse --quick --json` prints."""
    words = [sys.executable, "-m", "servoctl", "bench", "pseudoinverse", "--quick", "--json", "--jobs", "2"]
    done = subprocess.run([*words, "--cap", "300"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("pseudoinverse: Five published pseudoinverse methods")
    values: dict[str, Any] = strict(done.stdout)["pseudoinverse"]
    return values


@pytest.mark.slow
def test_stabilised_the_motion_is_right_for_twenty_seconds(quick: dict[str, Any]) -> None:
    row = next(row for row in quick["rows"] if row["alpha"] == 1000.0)
    case = CASES["case5_methods_baum"]["runs"]["A_-45deg tol=1e-08 svd"]
    assert (row["method"], row["tolerance"], row["result"], row["end"]) == ("svd", 1e-8, "correct", "done")
    assert (row["correct_until"], row["reached"], row["rank_min"], row["rank_max"]) == (20.0, 20.0, 11, 11)
    # another implementation of the same experiment; the step control amplifies rounding
    assert row["evaluations"] == pytest.approx(case["nfunc"], rel=0.2)
    assert row["angle_error"] < 10 * case["theta_err_last"] < 1e-4
    assert row["violation"] < 1e-12 and abs(row["energy_drift"]) < 1e-3
    assert row["published"]["result"] == "fails after 0.17 s"


@pytest.mark.slow
def test_without_stabilisation_the_motion_is_lost_though_the_violation_is_small(quick: dict[str, Any]) -> None:
    row = next(row for row in quick["rows"] if row["alpha"] == 0.0)
    case = CASES["case5_methods_none"]["runs"]["A_-45deg tol=1e-08 svd"]
    assert row["end"] == "done" and row["angle_error"] > 0.1
    # the rank flips where rounding has grown to the tolerance, at a rate of 1.77 per second
    assert row["correct_until"] == pytest.approx(case["correct_to_1e_2_until"], abs=2.0)
    assert (row["rank_min"], row["rank_max"]) == (11, 12)
    assert row["violation"] < 1e-8
    assert row["published"]["result"] == "fails after 12.07 s"


@pytest.mark.slow
def test_our_default_is_right_at_a_fraction_of_the_evaluations(quick: dict[str, Any]) -> None:
    ours, theirs = (next(row for row in quick["rows"] if row["method"] == name) for name in ("cod", "svd"))
    assert (ours["alpha"], ours["beta"]) == OUR_GAINS and ours["rule"] == {"tolerance": 1e-6, "relative": True}
    assert ours["result"] == "correct" and ours["published"] is None
    stiff = next(row for row in quick["rows"] if row["alpha"] == 1000.0)
    assert ours["evaluations"] < stiff["evaluations"] / 20
    assert theirs["steps"] <= theirs["evaluations"]


@pytest.mark.slow
def test_another_process_gives_the_same_run(quick: dict[str, Any]) -> None:
    row = next(row for row in quick["rows"] if row["alpha"] == 0.0)
    here = simulate(SVD, cap=300.0)
    assert (here.evaluations, here.steps, here.correct_until) == (
        row["evaluations"],
        row["steps"],
        row["correct_until"],
    )


def test_the_exact_motion_is_the_pendulums() -> None:
    times = np.array(EXACT["times"])
    assert np.abs(exact_angle(times) - EXACT["theta"]).max() < 1e-11  # printed to 13 digits
    assert exact_angle(np.array(20.0)) == pytest.approx(EXACT["facts"]["theta_20"], abs=1e-10)
    for start in (START, np.pi / 4):
        pendulum = solve_ivp(
            lambda t, y: [y[1], -MOMENT / INERTIA * np.cos(y[0])], (0.0, 20.0), [start, 0.0], "DOP853", times,
            rtol=1e-13, atol=1e-13,
        )  # fmt: skip
        assert np.abs(exact_angle(times, start) - pendulum.y[0]).max() < 1e-10


def test_the_linkage_is_the_published_one() -> None:
    linkage = machine()
    assert np.array_equal(linkage.M, np.diag([1.0, 1.0, 0.1] * 3 + [2.0, 2.0, 0.2]))
    assert linkage.start.q == pytest.approx(EXACT["q"][0], abs=1e-12)  # printed to 13 digits
    rows = linkage.kernel(0.0, linkage.start.q, linkage.start.v, linkage.parameters)
    assert np.linalg.matrix_rank(rows[0], tol=1e-10) == 11 and np.abs(rows[4]).max() < 1e-15
    states = [np.array(EXACT[key]) for key in ("q", "qd")]
    assert linkage.energies(*states) == pytest.approx(EXACT["facts"]["energy"], abs=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_starts_on_the_exact_motion(method: str) -> None:
    outcome = simulate(replace(SVD, method=method), cap=0.05)
    assert outcome.end == "cap" and outcome.wall_time >= 0.05
    assert 0.0 < outcome.reached < 20.0 and not outcome.lost
    assert result(outcome) == f"correct, cut at {outcome.reached:.2f} s"
    assert outcome.angle_error < 1e-4 and abs(outcome.energy_drift) < 1e-3


OUTCOME = RunError(20.0, 20.0, "done", 1e-6, 1e-6, 1e-12, 9, 5, 11, 11, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "correct"),
        ({"correct_until": 9.5}, "correct up to 9.50 s"),
        ({"correct_until": 9.5, "reached": 14.51, "end": "cap"}, "correct up to 9.50 s, cut at 14.51 s"),
        (
            {"correct_until": 8.0, "reached": 8.1, "end": "repeated convergence failures"},
            "correct up to 8.00 s, failed at 8.10 s",
        ),
    ],
)
def test_a_result_says_how_far_and_why_it_ended(changes: dict[str, Any], text: str) -> None:
    assert result(replace(OUTCOME, **changes)) == text


def test_published_figures_stand_beside_their_experiments_and_copy_errors_are_marked() -> None:
    stiff = replace(SVD, method="greville", alpha=1000.0, beta=100.0)
    assert published(stiff) == WITH_STABILISATION[1e-8]["greville"]
    assert published(replace(stiff, method="cod")) is None
    assert published(replace(stiff, rule=OUR_RULE)) is None
    rows = [
        row for table in (WITHOUT_STABILISATION, WITH_STABILISATION) for part in table.values() for row in part.values()
    ]
    assert len(rows) == 30
    # what cannot be, more steps than evaluations, is marked
    assert all("steps" in row.doubtful for row in rows if row.steps and row.evaluations and row.steps > row.evaluations)
    copied, source = (WITHOUT_STABILISATION[tol]["householder"] for tol in (1e-6, 1e-8))
    assert copied.doubtful == ("violation", "evaluations", "steps")
    assert all(getattr(copied, name) == getattr(source, name) for name in copied.doubtful)


def weighing(effort: Effort, progress: Progress) -> BenchReport:
    """A benchmark that costs nothing.

    More that a list does not show.
    """
    progress(1.0)
    rows = [["feather", f"{effort.cap:g}"], ["  published", "1.5?"]]
    tables = [TextTable(f"On {effort.jobs} scales", ["what", "grams"], rows)]
    return BenchReport("Weighing", tables, {"quick": effort.quick, "rows": [None]}, ["? not sure"])


@pytest.fixture
def only_weighing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(BENCHMARKS):
        monkeypatch.delitem(BENCHMARKS, name)
    monkeypatch.setitem(BENCHMARKS, "weighing", weighing)


@pytest.mark.usefixtures("only_weighing")
def test_without_a_name_all_benchmarks_run_and_print_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "--jobs", "3", "--cap", "2.5"])
    out, err = capsys.readouterr()
    assert err == "weighing: A benchmark that costs nothing.\n"
    lines = [line.split() for line in out.splitlines() if line.strip(" ─")]
    assert lines == [
        ["Weighing"], ["On", "3", "scales"], ["what", "grams"], ["feather", "2.5"], ["published", "1.5?"],
        ["?", "not", "sure"],
    ]  # fmt: skip
    assert description("weighing") == "A benchmark that costs nothing."


@pytest.mark.usefixtures("only_weighing")
def test_json_holds_every_benchmark_by_name_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "weighing", "weighing", "--quick", "--json"])
    assert strict(capsys.readouterr().out) == {
        "weighing": {"quick": True, "rows": [None]},
        "summary": [],
    }


def test_an_unknown_name_is_refused_with_a_suggestion_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pseudoinverse", "pseudoinvers", "--quick"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("servoctl bench: NAME: there is no benchmark 'pseudoinvers' (did you mean 'pseudoinverse'?)\n")


def test_a_reference_in_c_equals_scipys_spline() -> None:
    found = measured(200, 1000)
    assert found["vm"] > 0 and found["scipy"] > 0
    assert found["c"] is None or (found["c"] > 0 and found["difference"] < 1e-10)
