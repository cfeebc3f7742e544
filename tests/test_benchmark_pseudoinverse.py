"""The pseudoinverse study: its linkage, its exact motion, and what two methods make of it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tests.benchmarks.parallelogram import INERTIA, MOMENT, START, exact_angle
from tests.benchmarks.pseudoinverse import (
    OUR_GAINS,
    OUR_RULE,
    PUBLISHED_GAINS,
    Experiment,
    linkage,
    published,
    simulate,
)
from tests.benchmarks.pseudoinverse_methods import METHODS, RankRule
from tests.benchmarks.published import WITH_STABILISATION, WITHOUT_STABILISATION

CASES = json.loads((Path(__file__).parent / "data" / "cases.json").read_text())
EXACT = CASES["case5_fivebar_exact"]["cases"]["A_hanging_minus45deg"]
SVD = Experiment("svd", 1e-8, RankRule(1e-8, relative=False))


@pytest.mark.slow
def test_stabilised_the_motion_is_right_and_our_default_needs_a_fraction_of_the_evaluations() -> None:
    stiff = simulate(replace(SVD, alpha=PUBLISHED_GAINS[0], beta=PUBLISHED_GAINS[1]), cap=300.0)
    case = CASES["case5_methods_baum"]["runs"]["A_-45deg tol=1e-08 svd"]
    assert (stiff.result, stiff.end, stiff.correct_until, stiff.reached) == ("correct", "done", 20.0, 20.0)
    assert stiff.ranks == (11, 11)
    # another implementation of the same experiment; the step control amplifies rounding
    assert stiff.evaluations == pytest.approx(case["nfunc"], rel=0.2)
    assert stiff.angle_error < 10 * case["theta_err_last"] < 1e-4
    assert stiff.violation < 1e-12 and abs(stiff.energy_drift) < 1e-3
    ours = simulate(Experiment("cod", 1e-8, OUR_RULE, *OUR_GAINS), cap=300.0)
    assert ours.result == "correct" and ours.evaluations < stiff.evaluations / 20


@pytest.mark.slow
def test_without_stabilisation_the_motion_is_lost_though_the_violation_is_small() -> None:
    free = simulate(SVD, cap=300.0)
    case = CASES["case5_methods_none"]["runs"]["A_-45deg tol=1e-08 svd"]
    assert free.end == "done" and free.angle_error > 0.1
    # the rank flips where rounding has grown to the tolerance, at a rate of 1.77 per second
    assert free.correct_until == pytest.approx(case["correct_to_1e_2_until"], abs=2.0)
    assert free.ranks == (11, 12) and free.violation < 1e-8


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
    machine = linkage()
    assert np.array_equal(machine.M, np.diag([1.0, 1.0, 0.1] * 3 + [2.0, 2.0, 0.2]))
    assert machine.start.q == pytest.approx(EXACT["q"][0], abs=1e-12)  # printed to 13 digits
    rows = machine.kernel(0.0, machine.start.q, machine.start.v, machine.parameters)
    assert np.linalg.matrix_rank(rows[0], tol=1e-10) == 11 and np.abs(rows[4]).max() < 1e-15
    states = [np.array(EXACT[key]) for key in ("q", "qd")]
    assert machine.energies(*states) == pytest.approx(EXACT["facts"]["energy"], abs=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_starts_on_the_exact_motion(method: str) -> None:
    outcome = simulate(replace(SVD, method=method), cap=0.05)
    assert outcome.end == "cap" and 0.0 < outcome.reached < 20.0
    assert outcome.result == f"correct, cut at {outcome.reached:.2f} s"
    assert outcome.angle_error < 1e-4 and abs(outcome.energy_drift) < 1e-3


def test_published_figures_belong_to_their_experiments_and_copy_errors_are_marked() -> None:
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
