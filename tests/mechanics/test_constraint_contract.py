"""Every form of a constraint: `A q'' - b` is the derivative of the violation along a known motion.

The motion is a cubic q(t) whose derivatives are written down; the violation's are taken by central differences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from servoctl.errors import TaskError, TraceError
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic, Rows, SecondOrder
from servoctl.mechanics.model import Model
from servoctl.types import Array, State
from tests.refused import table
from tests.small_plants import Masses


@dataclass(frozen=True)
class Free(Masses):
    """Three coordinates and parameters for the equations to name."""

    names: str = "x y z"
    forces: str = "fx fy fz"
    l: float = 0.7  # noqa: E741
    w: tuple[float, ...] = (0.3, -0.4)


COEFFICIENTS = np.array([[0.3, -0.5, 0.9], [0.4, 1.1, -0.6], [-0.7, 0.5, 0.2], [0.15, -0.25, 0.35]])


def motion(t: float) -> tuple[Array, Array, Array]:
    """q, v, a of the cubic."""
    q = np.array([1.0, t, t * t, t**3]) @ COEFFICIENTS
    v = np.array([0.0, 1.0, 2 * t, 3 * t * t]) @ COEFFICIENTS
    return q, v, np.array([0.0, 0.0, 2.0, 6 * t]) @ COEFFICIENTS


def rows(constraint: Constraint, t: float) -> Rows:
    q, v, _ = motion(t)
    start = State(0.0, np.array([0.5, 0.5, 0.5]), np.ones(3))
    return Model(Free(), {"c": constraint}, start).matrices(State(t, q, v)).task


@dataclass(frozen=True)
class OnCylinder(Holonomic):
    radius: float = 0.8

    def phi(self, q: Array, t: float) -> Any:
        return q[0] ** 2 + q[1] ** 2 - (self.radius + 0.1 * t) ** 2


@dataclass(frozen=True)
class Curve(Holonomic):
    """Two rows, coupled through z and time."""

    speed: float = 1.3

    def phi(self, q: Array, t: float) -> Any:
        return np.array([q[0] - np.cos(q[2] - self.speed * t), q[1] * np.exp(0.3 * q[0]) - np.sin(q[2])])


@dataclass(frozen=True)
class Rolling(Nonholonomic):
    radius: float = 0.4

    def psi(self, q: Array, v: Array, t: float) -> Any:
        return np.array([v[0] - self.radius * np.cos(q[2]) * v[1] + t, v[2] ** 2 * q[0] - np.sin(t) * v[1]])


def on_circle(q: Array, t: float) -> Any:
    return np.hypot(q[0], q[1] * q[2]) - np.sqrt(2.0 + t)


HOLONOMIC: dict[str, tuple[Holonomic, Callable[[Array, float], Any]]] = {
    "function": (Holonomic(on_circle), on_circle),
    "function of two rows": (
        Holonomic(lambda q, t: np.array([q[0] * q[1] - t, q[2] ** 3])),
        lambda q, t: np.array([q[0] * q[1] - t, q[2] ** 3]),
    ),
    "equation": (
        Holonomic("l*x*cos(y) - w[1]*z**2 + exp(-t)"),
        lambda q, t: 0.7 * q[0] * np.cos(q[1]) + 0.4 * q[2] ** 2 + np.exp(-t),
    ),
    "equation without time": (Holonomic("x**2 + y**2 - l"), lambda q, t: q[0] ** 2 + q[1] ** 2 - 0.7),
    "equation of atan2": (Holonomic("atan2(y, x) - z"), lambda q, t: np.arctan2(q[1], q[0]) - q[2]),
    "equation of a number and a symbol": (
        Holonomic("atan2(0.5, x) - z + 2**y"),
        lambda q, t: np.arctan2(0.5, q[0]) - q[2] + 2 ** q[1],
    ),
    "class": (OnCylinder(), OnCylinder().phi),
    "class of two rows": (Curve(), Curve().phi),
}
NONHOLONOMIC: dict[str, tuple[Nonholonomic, Callable[[Array, Array, float], Any]]] = {
    "function": (
        Nonholonomic(lambda q, v, t: v[0] * np.sin(q[2]) - v[1] * np.cos(q[2])),
        lambda q, v, t: v[0] * np.sin(q[2]) - v[1] * np.cos(q[2]),
    ),
    "equation": (
        Nonholonomic("der(x)*sin(z) - l*der(y)*cos(z) + t**2*x"),
        lambda q, v, t: v[0] * np.sin(q[2]) - 0.7 * v[1] * np.cos(q[2]) + t * t * q[0],
    ),
    "equation not affine": (
        Nonholonomic("der(x)**2 + der(y)**2 - w[0]*t"),
        lambda q, v, t: v[0] ** 2 + v[1] ** 2 - 0.3 * t,
    ),
    "class of two rows": (Rolling(), Rolling().psi),
}

STEP = 1e-4
"""Of central differences: truncation 1e-8 times third derivatives, rounding 1e-16 / 1e-8 = 1e-8 in the second."""


@pytest.mark.parametrize("name", HOLONOMIC)
@pytest.mark.parametrize("t", [0.0, 0.4, 0.9])
def test_a_holonomic_constraint_is_its_violation_and_two_derivatives(name: str, t: float) -> None:
    constraint, phi = HOLONOMIC[name]
    at = rows(constraint, t)
    before, here, after = (np.atleast_1d(phi(motion(s)[0], s)) for s in (t - STEP, t, t + STEP))
    a = motion(t)[2]
    np.testing.assert_allclose(at.violation, here, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(at.violation_rate, (after - before) / (2 * STEP), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(at.A @ a - at.b, (after - 2 * here + before) / STEP**2, rtol=1e-5, atol=1e-6)
    for j in range(3):  # A alone, so that no error in it hides in b
        unit = STEP * np.eye(3)[j]
        slope = (np.atleast_1d(phi(motion(t)[0] + unit, t)) - np.atleast_1d(phi(motion(t)[0] - unit, t))) / (2 * STEP)
        np.testing.assert_allclose(at.A[:, j], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NONHOLONOMIC)
@pytest.mark.parametrize("t", [0.0, 0.4, 0.9])
def test_a_nonholonomic_constraint_is_its_violation_and_one_derivative(name: str, t: float) -> None:
    constraint, psi = NONHOLONOMIC[name]
    at = rows(constraint, t)
    q, v, a = motion(t)
    before, after = (np.atleast_1d(psi(*motion(s)[:2], s)) for s in (t - STEP, t + STEP))
    np.testing.assert_allclose(at.violation, np.atleast_1d(psi(q, v, t)), rtol=1e-14, atol=1e-15)
    assert np.isnan(at.violation_rate).all() and len(at.violation_rate) == len(at.b)
    np.testing.assert_allclose(at.A @ a - at.b, (after - before) / (2 * STEP), rtol=1e-6, atol=1e-7)
    for j in range(3):
        unit = STEP * np.eye(3)[j]
        slope = (np.atleast_1d(psi(q, v + unit, t)) - np.atleast_1d(psi(q, v - unit, t))) / (2 * STEP)
        np.testing.assert_allclose(at.A[:, j], slope, rtol=1e-6, atol=1e-7)


@dataclass(frozen=True)
class Steered(SecondOrder):
    gain: float = 2.0

    def A(self, q: Array, v: Array, t: float) -> Any:
        return np.array([[q[0], 1.0, 0.0], [0.0, self.gain, np.cos(t)]])

    def b(self, q: Array, v: Array, t: float) -> Any:
        return np.array([v[0] * v[1], self.gain * t])


def test_a_second_order_constraint_has_the_given_matrices() -> None:
    t = 0.3
    q, v, _ = motion(t)
    at = rows(Steered(), t)
    np.testing.assert_allclose(at.A, Steered().A(q, v, t), rtol=1e-15)
    np.testing.assert_allclose(at.b, Steered().b(q, v, t), rtol=1e-15)
    assert np.isnan(at.violation).all() and np.isnan(at.violation_rate).all()


def test_a_second_order_constraint_may_have_a_violation_and_its_rate() -> None:
    constraint = SecondOrder(
        lambda q, v, t: [q[1], q[0], 0.0], lambda q, v, t: -2 * v[0] * v[1],
        violation=lambda q, v, t: q[0] * q[1], violation_rate=lambda q, v, t: v[0] * q[1] + q[0] * v[1],
    )  # fmt: skip
    given, derived = rows(constraint, 0.6), rows(Holonomic("x*y"), 0.6)
    for name in ("A", "b", "violation", "violation_rate"):
        np.testing.assert_allclose(getattr(given, name), getattr(derived, name), rtol=1e-14)


def test_rows_have_the_name_of_their_constraint_and_a_number_if_there_are_several() -> None:
    task = {"curve": Curve(), "plane": Holonomic("z"), "own": Steered(), "roll": Nonholonomic("der(x)")}
    found = Model(Free(), task, State(0.0, np.full(3, 0.5), np.zeros(3))).task_rows
    assert [row.name for row in found] == ["curve.0", "curve.1", "plane", "own.0", "own.1", "roll"]
    assert [row.kind for row in found] == [*["holonomic"] * 3, *["second_order"] * 2, "nonholonomic"]
    assert [row.has_violation for row in found] == [True, True, True, False, False, True]
    assert [row.has_rate for row in found] == [True, True, True, False, False, False]


def test_parameters_of_plant_and_constraints_are_one_vector() -> None:
    model = Model(
        Free(), {"a": OnCylinder(0.9), "b": Holonomic("x - l"), "c": Steered()}, State(0.0, np.ones(3), np.ones(3))
    )
    # m, weight, l, w, a.radius, c.gain
    assert model.parameters.tolist() == [1.0, 0.0, 0.7, 0.3, -0.4, 0.9, 2.0]
    kernel, p = model.rows_kernel, np.array([1.0, 0.0, 0.7, 0.3, -0.4, 3.0, 5.0])
    task_b = list(kernel.outputs).index("task_b")
    violation = list(kernel.outputs).index("task_violation")
    found = kernel(2.0, np.array([1.0, 2.0, 3.0]), np.zeros(3), p)
    assert found[violation][0] == pytest.approx(1.0 + 4.0 - 3.2**2, rel=1e-15)
    assert found[task_b][-1] == 10.0


@pytest.mark.parametrize(("call", "sentence"), [(*call, *said) for _, call, said in table("constraints")])
def test_the_error_names_the_constraint_that_does_not_fit_and_the_reason(call: str, sentence: str) -> None:
    with pytest.raises(TraceError if "truth" in sentence else TaskError) as error:
        rows(eval(call), 0.0)
    assert str(error.value).startswith("c: ") and sentence in str(error.value)


STOOD = {
    "an equation": Holonomic("x - l*cos(2*t) - t + l"),
    "a rate": Nonholonomic("der(x)*cos(y) - der(y) - sin(3*t + 1)"),
    "a class": OnCylinder(radius=0.7),
    "given as it stands": SecondOrder(lambda q, v, t: [[1.0, 0.0, t]], lambda q, v, t: [np.cos(t)]),
}


@pytest.mark.parametrize("case", STOOD)
def test_a_waiting_path_stays_at_time_0_without_a_rate_and_moves_later(case: str) -> None:
    constraint = STOOD[case]
    for t in (0.0, -0.7):
        standing, (q, v, a) = rows(constraint.standing(), t), motion(t)
        moving = rows(constraint, t)
        assert standing.A.shape == moving.A.shape
        if isinstance(constraint, SecondOrder):
            assert (standing.A.tolist(), standing.b.tolist()) == ([[1.0, 0.0, 0.0]], [1.0])
            continue
        # what the violation at time 0 does along the motion, by central differences
        h, frozen = 1e-4, lambda s: rows(constraint.standing(), s).violation
        assert t == 0.0 or frozen(t) == pytest.approx(_at_zero(constraint, q, v), abs=1e-15)
        past = [_at_zero(constraint, *motion(t + k * h)[:2]) for k in (-1, 0, 1)]
        if constraint.kind == "holonomic":
            assert standing.violation_rate == pytest.approx((past[2] - past[0]) / (2 * h), abs=1e-6)
            assert standing.A @ a - standing.b == pytest.approx((past[2] - 2 * past[1] + past[0]) / h**2, abs=1e-6)
        else:
            assert standing.A @ a - standing.b == pytest.approx((past[2] - past[0]) / (2 * h), abs=1e-6)
    later, there = rows(constraint.standing(), 0.4), rows(constraint, 0.4)
    assert later.b == pytest.approx(there.b, abs=1e-15) and pytest.approx(there.A, abs=1e-15) == later.A


def _at_zero(constraint: Constraint, q: Array, v: Array) -> Array:
    """The violation at a state, at time 0."""
    start = State(0.0, np.array([0.5, 0.5, 0.5]), np.ones(3))
    return Model(Free(), {"c": constraint}, start).matrices(State(0.0, q, v)).task.violation
