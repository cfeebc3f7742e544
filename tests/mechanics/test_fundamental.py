"""Constrained motion against the published equation, multipliers and closed forms; passive rows in closed form."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import servoctl
from servoctl.assembly.direct import fundamental_acceleration
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Constraint, Nonholonomic, Rows
from servoctl.mechanics.model import Model
from servoctl.types import Array, State
from tests.mechanics.equations import fundamental_equation, terms_of
from tests.multipliers import multiplier_equation

ROUNDING = 1e-10
"""Conditions below 1e4 for M and for the independent rows: 1e-16 times their squares, with a margin."""


SHAPES = [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 4, 4), (5, 3, 2), (6, 9, 4), (3, 5, 1), (4, 2, 0), (3, 0, 0)]
"""Coordinates, rows, rank."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_motion_is_the_published_one_and_the_one_of_multipliers(shape: tuple[int, int, int], seed: int) -> None:
    (n, r, rank), random = shape, np.random.default_rng(seed)
    root = random.standard_normal((n, n))
    M, A = root @ root.T + 0.5 * np.eye(n), random.standard_normal((r, rank)) @ random.standard_normal((rank, n))
    b = A @ random.standard_normal(n)
    Q, c = random.standard_normal((2, n))
    terms = terms_of(M, 10 * Q, A, b, c)
    a, none = terms.acceleration(np.zeros(0)), np.zeros(0)
    scale = max(1.0, float(np.abs(a).max()))
    np.testing.assert_allclose(a, fundamental_equation(M, 10 * Q, A, b, c), rtol=0, atol=ROUNDING * scale)
    np.testing.assert_allclose(a, multiplier_equation(M, 10 * Q, A, b, c), rtol=0, atol=ROUNDING * scale)
    np.testing.assert_allclose(A @ a, b, rtol=0, atol=ROUNDING * scale)
    np.testing.assert_allclose(terms.passive_force(a, none), M @ a - 10 * Q, rtol=0, atol=100 * ROUNDING * scale)
    np.testing.assert_allclose(terms.consistency, 0.0, atol=ROUNDING * scale)
    assert terms.passive.rank == rank


def test_contradicting_rows_are_reported_and_met_by_least_squares() -> None:
    A, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, 2.0])
    terms = terms_of(np.diag([1.0, 4.0]), np.array([3.0, 8.0]), A, b)
    np.testing.assert_allclose(terms.acceleration(np.zeros(0)), [1.0, 2.0], rtol=1e-14)
    np.testing.assert_allclose(terms.consistency, [-1.0, 1.0], rtol=1e-14)
    assert terms.passive.rank == 1


@dataclass(frozen=True)
class Bead(servoctl.Plant):
    """A bead on a wire y = x^2, with friction on the wire where mu > 0."""

    m: float = 1.5
    g: float = 9.81
    mu: float = 0.0

    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.m * np.eye(2)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -self.m * self.g])

    def nonideal_force(self, q: Array, v: Array, t: float) -> Array:
        return -self.mu * v

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"wire": q[1] - q[0] ** 2}

    def energy(self, q: Array, v: Array, t: float) -> float:
        return float(self.m * (v @ v) / 2 + self.m * self.g * q[1])


def bead_on_its_wire(x: float, v: float) -> State:
    return State(0.0, np.array([x, x * x]), np.array([v, 2 * x * v]))


def test_a_bead_on_a_parabola_follows_its_reduced_equation() -> None:
    plant, (x, v) = Bead(mu=0.4), (0.6, -1.3)
    found = fundamental_acceleration(plant, bead_on_its_wire(x, v))
    # in the one coordinate x: m (1 + 4 x^2) x'' = -4 m x v^2 - 2 m g x - mu (1 + 4 x^2) v
    ax = (-4 * x * v * v - 2 * plant.g * x - plant.mu / plant.m * (1 + 4 * x * x) * v) / (1 + 4 * x * x)
    np.testing.assert_allclose(found.acceleration, [ax, 2 * v * v + 2 * x * ax], rtol=1e-13)


START = State(0.0, np.array([0.6, -0.8]), np.array([0.4, 0.3]))


@dataclass(frozen=True)
class OnCircle(Constraint):
    """`(x^2 + y^2 - l^2)/2 = 0`, derived by hand."""

    kind: ClassVar[str] = "holonomic"

    def rows(self, plant: Any, t: Any, q: Array, v: Array) -> Rows:
        return Rows(
            np.array([[q[0], q[1]]]), np.array([-(v @ v)]), np.array([(q @ q - plant.l**2) / 2.0]), np.array([q @ v])
        )


@dataclass(frozen=True)
class Pendulum(servoctl.Plant):
    """A point on a circle; the circle's equation is derived, or given in closed form."""

    l: float = 1.0  # noqa: E741
    closed: bool = True

    coordinates: ClassVar = {"x": "m", "y": "m"}
    actuators: ClassVar = {}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.eye(2)

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([0.0, -9.81])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rope": OnCircle() if self.closed else (q @ q - self.l**2) / 2.0}

    def energy(self, q: Array, v: Array, t: float) -> float:
        return float(v @ v / 2.0 + 9.81 * q[1])


def test_rows_in_closed_form_are_those_of_the_equation() -> None:
    closed, derived = (Model(Pendulum(closed=closed), {}, START) for closed in (True, False))
    state = State(0.3, np.array([0.5, -0.7]), np.array([-0.2, 1.1]))
    ours, expected = (model.matrices(state).passive for model in (closed, derived))
    for part in ("A", "b", "violation", "violation_rate"):
        np.testing.assert_allclose(getattr(ours, part), getattr(expected, part), rtol=1e-14, atol=1e-15)
    assert closed.passive_rows == derived.passive_rows


@dataclass(frozen=True)
class Rolling(Pendulum):
    """A constraint of another kind keeps its kind."""

    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"blade": Nonholonomic("der(x)*y - der(y)*x")}


def test_a_constraint_keeps_its_kind() -> None:
    (row,) = Model(Rolling(), {}, START).passive_rows
    assert (row.kind, row.has_violation, row.has_rate) == ("nonholonomic", True, False)


@dataclass(frozen=True)
class Broken(Pendulum):
    def passive_constraints(self, q: Array, t: float) -> dict[str, Any]:
        return {"rope": servoctl.Holonomic("x**2 + heigth")}


def test_a_constraint_that_fails_is_named() -> None:
    with pytest.raises(PlantError, match=r"^Broken\.passive_constraints: rope: .*heigth"):
        Model(Broken(), {}, START)
