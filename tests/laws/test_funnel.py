"""A funnel: its force, the cap of its gain, what it promises for a held and late command, and what it refuses."""

import re
from typing import Any

import numpy as np
import pytest

import servoctl
from hil.assembly.prepare import prepare
from servoctl.assembly import load
from servoctl.assembly.make import make_run
from servoctl.check.report import check
from servoctl.config import load_config
from servoctl.errors import TaskError
from servoctl.laws.funnel import Funnel, RowFunnel
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.timing import Timing

PERIOD = 1e-3
HELD, FREE = Timing(PERIOD), Timing(None)
H = Row("height", "height", "holonomic", True, True, 2)
N = Row("roll", "roll", "nonholonomic", True, False, 1)

ON_SPRING = [
    "law.correction.baumgarte=null",
    "law.correction.funnel={P: 0.1, rate: 10, start: 0.5, end: 0.2, shrink: 2}",
    "run.period=1*ms",
    "run.duration=0.4",
    "realism.parameter_error.k=0.5",
]


@pytest.mark.parametrize("d", [0.5, 5.0, -20.0])
def test_a_constant_disturbance_is_held_at_the_root_of_its_quadratic(d: float) -> None:
    """kappa beta / (1 - beta^2 / rho^2) = d: rho^2 (-kappa + sqrt(kappa^2 + 4 d^2 / rho^2)) / (2 d)."""
    of = RowFunnel("roll", False, 0.0, 10.0, 0.2, 0.2, 0.0, 1e9)
    beta = 0.04 * (-10.0 + np.sqrt(100.0 + 4.0 * d**2 / 0.04)) / (2.0 * d)
    assert abs(beta) < 0.2
    assert of.force(beta, 0.0) == pytest.approx(d, rel=1e-11)


@pytest.mark.parametrize(("slope", "edge", "held"), [(1000.0, 0.929, 13.6), (618.0, 0.910, 10.6)])
def test_the_slope_ends_the_growth_where_theory_says(slope: float, edge: float, held: float) -> None:
    """kappa (1 + x^2) / (1 - x^2)^2 = slope: the limits of a loop that is one and two periods late."""
    of = RowFunnel("roll", False, 0.0, 10.0, 0.2, 0.2, 0.0, slope)
    assert of.edge == pytest.approx(edge, abs=1e-3)
    assert of.force(of.edge * 0.2, 0.0) == pytest.approx(held, rel=0.01)
    around = np.array([0.999999, 1.000001, 3.0]) * of.edge * 0.2
    slopes = [(of.force(x + 1e-9, 0.0) - of.force(x - 1e-9, 0.0)) / 2e-9 for x in around]
    assert slopes == pytest.approx([slope] * 3, rel=1e-4)


def late_run(funnel: Funnel, row: Row, delay: int, share: float, seed: int) -> float:
    """The largest |beta| / rho under the worst disturbance of a size: `share` of the largest that the funnel allows."""
    timing, rng = Timing(PERIOD, delay=delay * PERIOD), np.random.default_rng(seed)
    of = funnel.of_rows([row], timing)[0]
    D = share * of.tolerated(timing)
    begins = 0.99 * of.start - of.until_first_command(D, timing.lateness)
    phi, rate = (0.0, begins) if row.has_rate else (begins, 0.0)
    sent, worst, sign = [0.0] * delay, 0.0, 1.0
    for k in range(1500):
        t = k * PERIOD
        beta = rate + of.rate * phi if row.has_rate else phi
        worst = max(worst, abs(beta) / of.width(t))
        sent.append(-of.force(beta, t) - (of.rate * rate if row.has_rate else 0.0))
        sign = sign if rng.random() > 0.01 else -sign
        a = sent.pop(0) + sign * D
        if row.has_rate:
            phi, rate = phi + PERIOD * rate + PERIOD**2 / 2.0 * a, rate + PERIOD * a
        else:
            phi += PERIOD * a
    return worst


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("row", [H, N])
@pytest.mark.parametrize("shrink", [0.0, 20.0])
def test_samples_stay_inside_under_the_disturbance_that_is_promised(delay: int, row: Row, shrink: float) -> None:
    funnel = Funnel(0.1, 0.3, 0.2, shrink, 10.0 if row is H else 0.0)
    assert max(late_run(funnel, row, delay, 1.0, seed) for seed in range(5)) < 1.0


def test_without_delay_the_promise_cannot_be_larger() -> None:
    funnel = Funnel(0.1, 0.2, 0.2)
    assert late_run(funnel, N, 0, 1.01, 0) > 1.0
    # in continuous time, without a cap, any disturbance is held
    assert RowFunnel("roll", False, 0.0, 10.0, 0.2, 0.2, 0.0, 1e12).tolerated(Timing(None)) > 1e5


@pytest.mark.parametrize(("delay", "limit"), [(0, 2.0), (1, 1.0), (2, 0.618)])
def test_the_default_slope_is_half_of_what_is_stable(delay: int, limit: float) -> None:
    timing = Timing(PERIOD, delay=delay * PERIOD)
    assert Funnel(0.1, 0.2, 0.2).of_rows([N], timing)[0].slope * PERIOD == pytest.approx(limit / 2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("funnel", "row", "timing", "text"),
    [
        (Funnel(0.1, 0.1, 0.2), H, HELD, "height: funnel: expected 0 < end <= start, got end 0.2 and start 0.1"),
        (Funnel(0.1, 0.2, 0.1), H, FREE, "height: funnel.slope: needs a number, or a sampled law (give run.period)"),
        (Funnel(5e-4, 0.2, 0.1), N, HELD, "roll: funnel.P: its gain 1/P = 2000 1/s is above what the period,"),
        (Funnel(0.1, 0.2, 0.1, slope=5.0), N, FREE, "roll: funnel.P: its gain 1/P = 10 1/s is above funnel.slope, 5"),
        (Funnel(0.1, 9.0, 0.1, 400.0), N, HELD, "roll: funnel: with a slope of at most 1000 1/s it cannot hold"),
    ],
)
def test_a_funnel_that_cannot_work_is_refused_with_a_remedy(
    funnel: Funnel, row: Row, timing: Timing, text: str
) -> None:
    with pytest.raises(TaskError, match="^" + re.escape(text)):
        funnel.of_rows([row], timing)


def test_numbers_of_a_funnel_made_in_python_are_checked() -> None:
    with pytest.raises(TaskError, match=re.escape("Funnel: P: expected a positive time [s], got 0.0")):
        Funnel(0.0, 0.2, 0.1)
    with pytest.raises(TaskError, match=re.escape("Funnel: shrink: expected a number >= 0 [1/s], got -1.0")):
        Funnel(0.1, 0.2, 0.1, -1.0)


@pytest.fixture(scope="module")
def spring() -> Any:
    return load("two_mass_spring", ON_SPRING, "vm")


def test_a_wrong_model_stays_inside_and_the_compiled_law_is_the_one_on_numbers(spring: Any) -> None:
    """The spring is half as stiff again in truth; p_feedback with the same P leaves the corridor."""
    inside = spring.simulate()
    width = 0.3 * np.exp(-2.0 * inside.t) + 0.2
    beta = inside["violation_rate.distance"] + 10.0 * inside["violation.distance"]
    assert not [event for event in inside.metadata["events"] if event["event"] == "funnel"]
    assert 0.5 < (np.abs(beta) / width).max() < 1.0
    plain = load(
        "two_mass_spring", [*ON_SPRING[:1], "law.correction.p_feedback={P: 0.1, rate: 10}", *ON_SPRING[2:]], "vm"
    )
    outside = plain.simulate()
    beta = outside["violation_rate.distance"] + 10.0 * outside["violation.distance"]
    assert (np.abs(beta) / width).max() > 1.0
    on_numbers = load("two_mass_spring", [*ON_SPRING, "run.duration=0.05"], "numpy").simulate()
    assert np.abs(inside.u[:51] - on_numbers.u).max() < 1e-9


def test_a_funnel_that_is_left_is_an_event_with_time_and_amount() -> None:
    left = load("two_mass_spring", [*ON_SPRING, "law.limits.F=10.2", "run.duration=1.1"], "vm").simulate()
    events = [event for event in left.metadata["events"] if event["event"] == "funnel"]
    event = events[0]
    i, end = np.searchsorted(left.t, [event["t"], event["until"]])
    ratio = np.abs(left["violation_rate.distance"] + 10.0 * left["violation.distance"])
    ratio = ratio / (0.3 * np.exp(-2.0 * left.t) + 0.2)
    assert ratio[i - 1] <= 1.0 < ratio[i]
    assert ratio[end] <= 1.0 < ratio[end - 1]
    assert event["ratio"] == pytest.approx(ratio[i:end].max())
    assert event["text"].startswith("task distance is outside its funnel until ")


def test_check_prints_the_cap_and_what_is_guaranteed(spring: Any) -> None:
    report = check(spring)
    values = report.values["funnels"]["distance"]
    assert values["tolerated"] > 20.0
    assert values["violation"] == pytest.approx(0.02)
    line = next(lines for title, lines in report.sections if title == "funnels")[0]
    assert f"while the model misses at most {values['tolerated']:.4g} of the row's acceleration" in line
    assert "|error| then ends at no more than 0.02" in line
    assert not report.warnings


def test_python_has_the_same_funnel() -> None:
    assert servoctl.Funnel is Funnel


def test_a_funnel_for_drives_is_not_judged_by_a_coarser_period_of_the_run() -> None:
    """Its slope of 394 1/s at 1 ms is unstable at 20 ms, where the run has one of 46 1/s."""
    changes = ["law.correction={funnel: {rate: 4, P: 0.05, start: 1, end: 0.2, shrink: 2}}", "run.period=0.02"]
    loaded = load_config("two_mass_spring_drive", changes)
    for waiting, slope in ((False, 46.0), (True, 393.8)):
        run = make_run(loaded, "vm", waiting=waiting)
        assert run.system.law.funnel.funnels[-1].slope == pytest.approx(slope, rel=1e-3)  # type: ignore[union-attr]
    prepare(loaded, engine="vm")


def test_a_funnel_for_drives_takes_its_slope_from_their_period_where_the_run_has_none() -> None:
    funnel = "law.correction={funnel: {rate: 4, P: 0.5, start: 1, end: 0.2, shrink: 2}}"
    slopes = []
    for waiting in (False, True):  # as `check` and `run` make it, and as `hil` does
        loaded = load_config("two_mass_spring_drive", [funnel])
        law = make_run(loaded, "vm", waiting=waiting).system.law
        slopes.append(law.funnel.funnels)  # type: ignore[union-attr]
    assert slopes[0] == slopes[1]
