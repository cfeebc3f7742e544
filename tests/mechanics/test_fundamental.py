"""The fundamental equation against matrix roots, multipliers and Gauss's principle; passive rows in closed form."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from multipliers import multiplier_equation
from scipy.linalg import sqrtm

import servoctl
from plants.coordinated_robots import CoordinatedRobots
from servoctl.assembly import simulate
from servoctl.assembly.evaluate import fundamental_acceleration
from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Constraint, Nonholonomic, Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, Terms, assemble
from servoctl.types import Array, State
from tests.mechanics.equations import fundamental_equation

ROUNDING = 1e-10
"""Conditions below 1e4 for M and for the independent rows: 1e-16 times their squares, with a margin."""


@dataclass(frozen=True)
class Problem:
    """M q'' = Q + Qc, A q'' = b with consistent rows, c anything."""

    M: Array
    Q: Array
    A: Array
    b: Array
    c: Array

    @property
    def terms(self) -> Terms:
        """The same in the form that laws and simulations use; without actuators."""
        n, r = self.M.shape[0], len(self.b)
        nothing = Rows(np.zeros((0, n)), np.zeros(0), np.zeros(0), np.zeros(0))
        rows = Rows(self.A, self.b, np.zeros(r), np.zeros(r))
        state = State(0.0, np.zeros(n), np.zeros(n))
        return assemble(
            state, Matrices(CoordinatedRobots(), self.M, self.Q, np.zeros((n, 0)), self.c, rows, nothing), 1e-10
        )

    def published(self) -> Array:
        """q'' exactly as printed, with explicit matrix square roots and SciPy-independent pseudoinverse."""
        root = np.real(sqrtm(self.M))
        inverse = np.linalg.inv(root)
        Bhat = self.A @ inverse
        plus = np.linalg.pinv(Bhat, rcond=1e-9)
        a = np.linalg.solve(self.M, self.Q)
        Qc = root @ plus @ (self.b - self.A @ a) + root @ (np.eye(len(root)) - plus @ Bhat) @ inverse @ self.c
        return np.linalg.solve(self.M, self.Q + Qc)


SHAPES = [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 4, 4), (5, 3, 2), (6, 9, 4), (3, 5, 1), (4, 2, 0), (3, 0, 0)]
"""Coordinates, rows, rank."""


def problem(n: int, r: int, rank: int, seed: int = 0) -> Problem:
    random = np.random.default_rng(seed)
    root = random.standard_normal((n, n))
    A = random.standard_normal((r, rank)) @ random.standard_normal((rank, n))
    b = A @ random.standard_normal(n)
    Q, c = random.standard_normal((2, n))
    return Problem(root @ root.T + 0.5 * np.eye(n), 10 * Q, A, b, c)


CASES = pytest.mark.parametrize("case", [problem(*shape, seed) for shape in SHAPES for seed in (1, 2)])


@CASES
def test_the_motion_is_the_published_one_and_the_one_of_multipliers(case: Problem) -> None:
    found = fundamental_equation(case.M, case.Q, case.A, case.b, case.c)
    scale = max(1.0, float(np.abs(found.acceleration).max()))
    np.testing.assert_allclose(found.acceleration, case.published(), rtol=0, atol=ROUNDING * scale)
    by_multipliers = multiplier_equation(case.M, case.Q, case.A, case.b, case.c)
    np.testing.assert_allclose(found.acceleration, by_multipliers, rtol=0, atol=ROUNDING * scale)
    np.testing.assert_allclose(case.A @ found.acceleration, case.b, rtol=0, atol=ROUNDING * scale)
    assert found.rank == (np.linalg.matrix_rank(case.A, tol=1e-9) if case.A.size else 0)


@CASES
def test_the_terms_of_the_laws_give_the_same_motion(case: Problem) -> None:
    found, terms = fundamental_equation(case.M, case.Q, case.A, case.b, case.c), case.terms
    a = terms.acceleration(np.zeros(0))
    scale = max(1.0, float(np.abs(a).max()))
    np.testing.assert_allclose(a, found.acceleration, rtol=0, atol=ROUNDING * scale)
    force = terms.passive_force(a, np.zeros(0))
    np.testing.assert_allclose(force, found.constraint_force, rtol=0, atol=100 * ROUNDING * scale)
    np.testing.assert_allclose(terms.consistency, 0.0, atol=ROUNDING * scale)


@CASES
def test_an_ideal_motion_satisfies_the_conditions_of_karush_kuhn_and_tucker(case: Problem) -> None:
    found = fundamental_equation(case.M, case.Q, case.A, case.b)
    np.testing.assert_allclose(case.M @ found.acceleration, case.Q + found.constraint_force, rtol=0, atol=1e-9)
    multipliers = (
        np.linalg.lstsq(case.A.T, found.constraint_force, rcond=None)[0] if case.A.size else np.zeros(len(case.b))
    )
    np.testing.assert_allclose(case.A.T @ multipliers, found.constraint_force, rtol=0, atol=1e-9)


@CASES
def test_an_ideal_motion_deviates_least_from_the_free_one(case: Problem) -> None:
    """Gauss's principle, tried out on admissible accelerations beside the one found."""
    found = fundamental_equation(case.M, case.Q, case.A, case.b).acceleration
    free = np.linalg.solve(case.M, case.Q)
    tangent = np.eye(len(free)) - np.linalg.pinv(case.A, rcond=1e-9) @ case.A if case.A.size else np.eye(len(free))

    def deviation(a: Array) -> float:
        return float((a - free) @ case.M @ (a - free))

    for step in np.random.default_rng(4).standard_normal((10, len(free))):
        assert deviation(found + tangent @ step) >= deviation(found) - 1e-12 * (1.0 + deviation(found))


def test_contradicting_rows_are_reported_and_met_by_least_squares() -> None:
    A, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, 2.0])
    found = fundamental_equation(np.diag([1.0, 4.0]), np.array([3.0, 8.0]), A, b)
    np.testing.assert_allclose(found.acceleration, [1.0, 2.0], rtol=1e-14)
    np.testing.assert_allclose(found.inconsistency, [-1.0, 1.0], rtol=1e-14)
    assert found.rank == 1


@pytest.mark.parametrize("M", [np.diag([1.0, -1.0]), np.zeros((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]])])
def test_a_mass_matrix_that_is_not_positive_definite_is_refused_with_its_eigenvalue(M: Array) -> None:
    text = f"not positive definite (smallest eigenvalue {np.linalg.eigvalsh(M)[0]:.1e})"
    with pytest.raises(PlantError, match=re.escape(text)):
        fundamental_equation(M, np.zeros(2), np.zeros((0, 2)), np.zeros(0))


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


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_only_the_nonideal_part_of_a_passive_force_does_work(mu: float) -> None:
    plant, state = Bead(mu=mu), bead_on_its_wire(0.6, -1.3)
    found = fundamental_acceleration(plant, state)
    assert found.constraint_force @ state.v == pytest.approx(-mu * state.v @ state.v, abs=1e-13)


def test_the_closed_chain_of_two_robots_reacts_without_work() -> None:
    plant = CoordinatedRobots()
    q = np.deg2rad([60.0, -60.0, 0.0, 60.0, -60.0])
    J = np.vstack([-np.sin(q), np.cos(q)])  # of sum l cos = L, sum l sin = 0
    v = (np.eye(5) - np.linalg.pinv(J) @ J) @ np.array([1.0, -2.0, 0.5, 0.3, 1.1])
    found = fundamental_acceleration(plant, State(0.0, q, v))
    assert found.rank == 2
    assert found.constraint_force @ v == pytest.approx(0.0, abs=1e-12 * np.abs(found.constraint_force).max() * 5)
    bending = -np.vstack([np.cos(q), np.sin(q)]) @ (v * v)
    np.testing.assert_allclose(J @ found.acceleration + bending, 0.0, atol=1e-11)
    assert np.abs(found.constraint_force).max() > 1.0


def test_a_bead_stays_on_its_wire_and_keeps_its_energy() -> None:
    start = bead_on_its_wire(0.6, 0.0)
    run = simulate(Bead(), {}, None, q=start.q, v=start.v, duration=2.0, method="dop853", rtol=1e-12)
    # the solver's own tolerance, over about one period
    assert np.abs(run["q.y"] - run["q.x"] ** 2).max() < 1e-9
    assert run.metadata["energy_drift"] < 1e-9
    assert np.ptp(run["q.x"]) > 1.1


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


def test_parameters_in_closed_form_stay_inputs() -> None:
    model = Model(Pendulum(), {}, START).of(Pendulum(l=2.0), {}, START)
    assert model.matrices(START).passive.violation[0] == pytest.approx((1.0 - 4.0) / 2.0)


def test_a_run_with_rows_in_closed_form_is_that_with_the_equation() -> None:
    ends = []
    for closed in (True, False):
        run = servoctl.simulate(Pendulum(closed=closed), {}, None, q=START.q, v=0.0, duration=0.5, step=0.01)
        ends.append([run["q.x"][-1], run["q.y"][-1]])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12)


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
