"""Integrable, nonholonomic and time-dependent constraints: published cases and textbook cases."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from servoctl.check.model import Classification, classify
from servoctl.expression import parse
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic, SecondOrder
from servoctl.reference.curve import Signal, waypoint_curve
from servoctl.types import State
from tests.small_plants import Masses


@dataclass(frozen=True)
class Space(Masses):
    """Masses without forces, and a parameter for equations to name."""

    r: float = 0.5


def judged(constraint: Constraint, names: str = "x y z") -> Classification:
    plant = Space(names, "")
    n = len(plant.coordinates)
    return classify(constraint, plant, State(0.3, np.linspace(0.2, 0.9, n), np.ones(n)))


def several(*rows: Any) -> Nonholonomic:
    return Nonholonomic(lambda q, v, t: np.array([row(q, v, t) for row in rows]))


LINEAR: dict[str, tuple[str | Nonholonomic, str, bool]] = {
    "published, a . curl a = 0": ("der(x) + 2*y*der(y) + der(z)", "x y z", True),
    "published, a . curl a = 2": ("der(x) + 2*z*der(y) + der(z)", "x y z", False),
    "integrable with a factor": ("y*der(x) - x*der(y)", "x y z", True),
    "one row in two coordinates": ("cos(x*y)*der(x) + exp(x)*der(y)", "x y", True),
    "knife edge": ("der(x)*sin(a) - der(y)*cos(a)", "x y a", False),
    "disk rolling upright": (
        several(
            lambda q, v, t: v[0] - 0.5 * np.cos(q[2]) * v[3],
            lambda q, v, t: v[1] - 0.5 * np.sin(q[2]) * v[3],
        ),
        "x y heading spin",
        False,
    ),
    "disk rolling on a line": (
        several(lambda q, v, t: v[0] - 0.5 * v[3], lambda q, v, t: v[2]),
        "x y heading spin",
        True,
    ),
    "two rows integrable only together": (
        several(lambda q, v, t: v[0] + q[2] * v[1], lambda q, v, t: v[1]),
        "x y z",
        True,
    ),
    "its first row alone": (several(lambda q, v, t: v[0] + q[2] * v[1]), "x y z", False),
    "dependent rows": (several(lambda q, v, t: v[0] - v[1], lambda q, v, t: 2 * v[1] - 2 * v[0]), "x y z", True),
    "rate of a moving surface": ("x*der(x) + y*der(y) - cos(t)", "x y", True),
    "speed given as a function of place": ("der(x) - y", "x y", False),
    "speed given in one coordinate": ("der(x) - x", "x", True),
    "coefficient that changes in time": ("der(x) + t*der(y)", "x y", False),
    "speed given in time": ("der(x) - sin(t)", "x y", True),
}


@pytest.mark.parametrize("name", LINEAR)
def test_frobenius_theorem_decides_what_is_affine_in_the_velocities(name: str) -> None:
    given, names, integrable = LINEAR[name]
    found = judged(Nonholonomic(given) if isinstance(given, str) else given, names)
    assert found.integrable is integrable
    assert ("integrable: Frobenius' form vanishes" if integrable else "not integrable: Frobenius'") in found.reason


@pytest.mark.parametrize("name", ["published, a . curl a = 0", "published, a . curl a = 2", "integrable with a factor"])
def test_one_row_in_three_coordinates_agrees_with_the_published_lemma(name: str) -> None:
    """a . curl a, by central differences of a itself, which is exact for these coefficients of degree one."""
    forms = {
        "published, a . curl a = 0": lambda q: np.array([1.0, 2 * q[1], 1.0]),
        "published, a . curl a = 2": lambda q: np.array([1.0, 2 * q[2], 1.0]),
        "integrable with a factor": lambda q: np.array([q[1], -q[0], 0.0]),
    }
    a, q = forms[name], np.array([0.2, 0.5, 0.9])
    J = np.stack([(a(q + e) - a(q - e)) / 2 for e in np.eye(3)], axis=1)
    curl = np.array([J[2, 1] - J[1, 2], J[0, 2] - J[2, 0], J[1, 0] - J[0, 1]])
    lemma = float(a(q) @ curl)
    assert abs(lemma) == pytest.approx(2.0 if name.endswith("2") else 0.0, abs=1e-15)
    assert judged(Nonholonomic(LINEAR[name][0])).integrable is (abs(lemma) < 1e-12)


UNDECIDED = [
    (Nonholonomic("der(x)**2 + der(y)**2 - 1"), "not affine in the velocities: integrability is not decided"),
    (
        SecondOrder(lambda q, v, t: np.array([[1.0, 0.0, 0.0]]), lambda q, v, t: np.zeros(1)),
        "given at acceleration level: integrability is not decided",
    ),
]


@pytest.mark.parametrize(("constraint", "reason"), UNDECIDED, ids=["quadratic", "second order"])
def test_rows_outside_the_theorem_are_undecided(constraint: Constraint, reason: str) -> None:
    found = judged(constraint)
    assert (found.integrable, found.reason) == (None, reason)


TIME = [
    (Holonomic("x + y"), "scleronomic"),
    (Holonomic("x + t"), "rheonomic"),
    (Holonomic("x + t**2*y"), "rheonomic"),
    (Nonholonomic("der(x) + y*der(y)"), "scleronomic"),
    (Nonholonomic("der(x) + t*der(y)"), "rheonomic"),
    (Nonholonomic("der(x) + 2*y*der(y) + der(z) - 1"), "rheonomic"),  # published, (14): x + y^2 + z - t + c = 0
    (Nonholonomic("der(x) - y"), "rheonomic"),
    (Nonholonomic("(1 + t)*der(x)"), "rheonomic"),
    (Nonholonomic("der(x)*sqrt(1 + der(y)**2)"), "scleronomic"),
    (Nonholonomic("der(x) + (t - t)*der(y) + sin(t)**2 + cos(t)**2 - 1"), "scleronomic"),
    (SecondOrder(lambda q, v, t: np.array([[1.0, 0.0, 0.0]]), lambda q, v, t: np.array([1.0])), "scleronomic"),
    (SecondOrder(lambda q, v, t: np.array([[1.0, 0.0, 0.0]]), lambda q, v, t: np.array([np.sin(t)])), "rheonomic"),
    (several(lambda q, v, t: v[0] + v[1], lambda q, v, t: v[2] - 0.5), "rheonomic"),
]


@pytest.mark.parametrize(("constraint", "time"), TIME)
def test_scleronomic_and_rheonomic_constraints_are_told_apart(constraint: Constraint, time: str) -> None:
    assert judged(constraint).time == time


@pytest.mark.parametrize(("row", "time"), [("x - m_x", "rheonomic"), ("x - 0*m_x", "scleronomic")])
def test_a_row_that_follows_a_reference_at_rest_for_a_while_is_rheonomic(row: str, time: str) -> None:
    move = waypoint_curve(np.array([0.0, 5.0, 6.0]), np.array([[0.0], [0.0], [1.0]]), "quintic")
    assert judged(Holonomic(parse(row).with_signals({"m_x": Signal("m", "x", move, 0)}))).time == time


def test_the_published_rate_with_a_constant_is_rheonomic_and_integrable() -> None:
    """Zhao et al. 2018, Example 3: (14) integrates to (15), which contains t."""
    found = judged(Nonholonomic("der(x) + 2*y*der(y) + der(z) - 1"))
    assert (found.time, found.integrable) == ("rheonomic", True)


def test_a_holonomic_constraint_is_always_integrable() -> None:
    found = judged(Holonomic("x*y - z"))
    assert (found.integrable, found.reason) == (True, "given at position level")
