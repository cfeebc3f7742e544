"""Corrections: their gains, the decay of the violation, and the inputs that they refuse.

A funnel: its force, the cap of its gain, and what it promises for a held and late command.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

import servoctl
from hil.assembly.prepare import prepare
from servoctl.assembly import load, simulate
from servoctl.assembly.make import make_run, make_system
from servoctl.check.report import check
from servoctl.config import load_config
from servoctl.errors import TaskError
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.corrections import (
    Baumgarte,
    Correction,
    CorrectionTerm,
    PFeedback,
    SecondOrderCorrection,
    corrections_of,
    per_row,
)
from servoctl.laws.funnel import Funnel, RowFunnel
from servoctl.laws.hold import RowFeedback, longest_spacing
from servoctl.mechanics.constraint import Holonomic, Nonholonomic, SecondOrder
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.timing import Timing
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.settings import Integrator, Settings
from servoctl.simulation.simulate import simulate_loop
from servoctl.types import Array, State
from tests.small_plants import Masses

H1 = Row("place.0", "place", "holonomic", True, True, 2)
H2 = Row("place.1", "place", "holonomic", True, True, 2)
H3 = Row("height", "height", "holonomic", True, True, 2)
N = Row("roll", "roll", "nonholonomic", True, False, 1)
S = Row("own", "own", "second_order", False, False, 0)
V = Row("own", "own", "second_order", True, False, 1)
UNDAMPED = (
    "needs the rate of the task error too, or it swings undamped (give violation_rate, or write the row as "
    "nonholonomic)"
)


@pytest.mark.parametrize(
    ("correction", "rows", "gains"),
    [
        (Baumgarte(3.0, 5.0), [H1], [(6.0, 25.0)]),
        (SecondOrderCorrection(3.0, 5.0), [H1], [(3.0, 5.0)]),
        (PFeedback(0.5), [N], [(0.0, 2.0)]),
        (PFeedback(0.5), [H1], [(2.0, 0.0)]),
        (PFeedback(0.5, 3.0), [H1], [(5.0, 6.0)]),  # beta' = -beta / P with beta = phi' + 3 phi
        (PFeedback(0.5, 3.0), [H1, N], [(5.0, 6.0), (0.0, 2.0)]),
        (Baumgarte([1.0, 2.0, 3.0], 0.0), [H1, H2, H3], [(2.0, 0.0), (4.0, 0.0), (6.0, 0.0)]),
        (Baumgarte({"height": 4.0, "place": [1.0, 2.0]}, 1.0), [H1, H2, H3], [(2.0, 1.0), (4.0, 1.0), (8.0, 1.0)]),
        (SecondOrderCorrection({"place": 1.0, "height": 2.0}, 7), [H1, H2, H3], [(1.0, 7.0), (1.0, 7.0), (2.0, 7.0)]),
        (Baumgarte(1.0, 1.0), [], []),
    ],
)
def test_a_correction_gives_damping_and_stiffness(
    correction: Correction, rows: list[Row], gains: list[tuple[float, float]]
) -> None:
    assert correction.gains(rows) == gains


def test_the_correction_of_a_task_replaces_the_common_one() -> None:
    rows = [H1, H2, N, S]
    common, own = Baumgarte(1.0, 2.0), {"roll": PFeedback(0.1)}
    term = CorrectionTerm((H1, H2, N), tuple(corrections_of([H1, H2, N], common, own)))
    assert (term.damping, term.stiffness) == ((2.0, 2.0, 0.0), (4.0, 4.0, 10.0))
    none = CorrectionTerm(tuple(rows), tuple(corrections_of(rows, None, {})))
    assert (none.damping, none.stiffness) == ((0.0,) * 4, (0.0,) * 4)


@pytest.mark.parametrize(
    ("correction", "rows", "text"),
    [
        (Baumgarte(1, 1), [N], "roll: baumgarte does not fit a nonholonomic row (use p_feedback {P})"),
        (SecondOrderCorrection(1, 1), [N], "roll: second_order does not fit a nonholonomic row (use p_feedback {P})"),
        (Baumgarte(1, 1), [S], "own: baumgarte needs a violation, a second_order row has none (leave it out)"),
        (PFeedback(1), [S], "own: p_feedback needs a violation, a second_order row has none (leave it out)"),
        *((correction, [V], f"own: {correction.label} {UNDAMPED}") for correction in (PFeedback(1), Baumgarte(1, 1))),
        (PFeedback(1, 2.0), [N], "roll: p_feedback.rate does not fit a nonholonomic row (leave it out)"),
        (PFeedback(1, [1.0, 2.0]), [H1, N], "roll: p_feedback.rate does not fit a nonholonomic row (leave it out)"),
        (Baumgarte([1.0, 2.0], 1), [H1], "alpha: expected one value per row, 1 in all, got 2"),
        (Baumgarte(1, {"nowhere": 1.0}), [H1], "beta: there is no task 'nowhere' (tasks: place)"),
        (Baumgarte({"place": 1.0}, 1), [H1, H3], "alpha: no value for task 'height' (give one, or one number for all)"),
        (Baumgarte({"place": [1.0]}, 1), [H1, H2], "alpha.place: expected one value per row, 2 in all, got 1"),
    ],
)
def test_a_correction_that_does_not_fit_names_row_and_remedy(
    correction: Correction, rows: list[Row], text: str
) -> None:
    with pytest.raises(TaskError, match="^" + re.escape(text) + "$"):
        correction.ready(rows).gains(rows)


def test_every_row_that_does_not_fit_is_named_at_once() -> None:
    with pytest.raises(TaskError, match="roll: baumgarte does not fit") as caught:
        corrections_of([N, S], PFeedback(1.0), {"roll": Baumgarte(1, 1)})
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and "own: p_feedback needs a violation" in lines[1]


def test_a_list_of_gains_has_the_order_of_the_rows() -> None:
    assert per_row((1, 2, 3), [H1, H2, H3], "x") == [1.0, 2.0, 3.0]
    assert per_row(4, [H1, H2], "x") == [4.0, 4.0]


@dataclass(frozen=True)
class Point(Masses):
    """A falling unit mass in a plane, pushed in both directions."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -9.81])


CIRCLE = Holonomic("sqrt(x**2 + y**2) - 1 - t/10")
PROMISES: list[tuple[Correction, Array]] = [
    (Baumgarte(2.0, 3.0), np.array([[0.0, 1.0], [-9.0, -4.0]])),
    (SecondOrderCorrection(1.0, 30.0), np.array([[0.0, 1.0], [-30.0, -1.0]])),
    (PFeedback(0.4, 1.5), np.array([[0.0, 1.0], [-1.5 / 0.4, -(1.5 + 1 / 0.4)]])),
    (PFeedback(0.4), np.array([[0.0, 1.0], [0.0, -1 / 0.4]])),
]


@pytest.mark.parametrize(("correction", "system"), PROMISES, ids=lambda case: type(case).__name__)
def test_the_violation_decays_exactly_by_the_equation_of_the_correction(correction: Correction, system: Array) -> None:
    run = simulate(Point(), {"c": CIRCLE}, ConstraintFollowing(correction), q=[1.3, 0.4], v=[0.2, -0.5], duration=1.5,
                   method="dop853", rtol=1e-11, output_step=0.5)  # fmt: skip
    start = np.array([run["violation.c"][0], run["violation_rate.c"][0]])
    assert np.abs(start).min() > 0.05
    for k in range(4):
        expected = expm(system * run.t[k]) @ start
        found = [run["violation.c"][k], run["violation_rate.c"][k]]
        np.testing.assert_allclose(found, expected, atol=1e-8)  # the integrator's tolerance, accumulated


def test_a_speed_decays_with_the_time_constant_of_p_feedback() -> None:
    run = simulate(Point(), {"s": Nonholonomic("der(x)**2 + der(y)**2 - 1 - t")}, ConstraintFollowing(PFeedback(0.3)),
                   q=0.0, v=[1.5, 0.5], duration=1.0, method="dop853", rtol=1e-11, output_step=0.25)  # fmt: skip
    np.testing.assert_allclose(run["violation.s"], 1.5 * np.exp(-run.t / 0.3), atol=1e-9)


def test_gains_are_bound_row_by_row() -> None:
    task = {"c": CIRCLE, "s": Nonholonomic("der(y) - 1")}
    model = Model(Point(), task, State(0.0, np.array([1.3, 0.4]), np.zeros(2)))
    bound = ConstraintFollowing(Baumgarte(2.0, 3.0), {"s": PFeedback(0.5)}).attach(model)
    assert isinstance(bound, AttachedConstraintFollowing)
    assert (bound.correction.damping, bound.correction.stiffness) == ((4.0, 0.0), (9.0, 2.0))
    text = r"law\.correction: s: baumgarte does not fit a nonholonomic row \(use p_feedback \{P\}\)"
    with pytest.raises(TaskError, match=text):
        ConstraintFollowing(Baumgarte(2.0, 3.0)).attach(model)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("correction", [PFeedback(0.25), Baumgarte(4, 4), SecondOrderCorrection(2, 100)])
def test_a_run_decays_below_the_limit_and_grows_above_it(correction: Correction, held: bool) -> None:
    """On both sides of the limit by 2 %, over enough holds or steps to tell."""
    first_order = isinstance(correction, PFeedback)
    task = {"x": Nonholonomic("der(x)") if first_order else Holonomic("x")}
    ((damping, stiffness),) = correction.gains([N if first_order else H1])
    limit = longest_spacing(RowFeedback(damping, stiffness, not first_order), Timing(1.0 if held else None))
    start = State(0.0, np.array([0.5, 0.0]), np.array([0.3, 0.0]))
    system = make_system(Point(), task, ConstraintFollowing(correction), {}, start, None, 1e-6)
    for factor, grows in ((0.98, False), (1.02, True)):
        h = factor * limit
        settings = Settings(300 * h, h if held else None, Integrator(step=h / 4 if held else h))
        run = simulate_loop(make_loop(system), start, settings)  # `simulate` refuses what grows
        violation = np.abs(run["violation.x"])
        assert (violation[-50:].max() > violation[:50].max()) == grows


def test_a_row_given_on_accelerations_may_start_with_a_violation_and_a_rate() -> None:
    """Its violation is 0.5 and its rate 0.3 at the start, and both decay as those of the row x - 1."""
    given = SecondOrder(
        lambda q, v, t: np.array([[1.0, 0.0]]), lambda q, v, t: np.zeros(1),
        violation=lambda q, v, t: [q[0] - 1.0], violation_rate=lambda q, v, t: [v[0]],
    )  # fmt: skip
    runs = [
        simulate(Point(), {"x": task, "other": Holonomic("y")}, ConstraintFollowing(Baumgarte(4.0, 4.0)),
                 q=[1.5, 0.0], v=[0.3, 0.0], duration=0.5)
        for task in (given, Holonomic("x - 1"))
    ]  # fmt: skip
    assert runs[0]["violation.x"][0] == 0.5
    np.testing.assert_allclose(runs[0]["violation.x"], runs[1]["violation.x"], rtol=1e-12, atol=1e-15)


PERIOD = 1e-3
HELD, FREE = Timing(PERIOD), Timing(None)
H = Row("height", "height", "holonomic", True, True, 2)

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
    assert f"while the model misses at most {values['tolerated']:.4g} of the row's acceleration [m/s^2]" in line
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
