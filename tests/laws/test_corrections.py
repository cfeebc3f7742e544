"""Corrections: their gains, the decay of the violation, and the inputs that they refuse."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import expm

from servoctl.assembly import simulate
from servoctl.assembly.make import make_system
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
    none = CorrectionTerm(tuple(rows), tuple(corrections_of(rows, None)))
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
