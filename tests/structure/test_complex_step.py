"""Rows of large tasks by complex steps: equal to automatic differentiation, and refused where they would be wrong."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from plants.swarm import Aggregation, Swarm
from servoctl.engine.analytic import analytic, complex_steps
from servoctl.errors import TraceError
from servoctl.mechanics.complex_step import by_complex_step
from servoctl.types import Array

N = 35
RANDOM = np.random.default_rng(5)
START = sc.State(0.0, 5.0 * RANDOM.standard_normal(2 * N), RANDOM.standard_normal(2 * N))


def test_the_swarm_by_complex_steps_is_the_swarm_by_symbols() -> None:
    model = sc.Model(Swarm(N=N), {"gather": Aggregation(a=0.7)}, START)
    assert list(model.stepped) == ["gather"] and len(model.parts) == 2 * N
    rows = model.rows(START)[1]
    symbols = model.symbols()
    from servoctl.engine.kernel import Kernel

    exact = model.symbolic_matrices(symbols).task
    A, b, psi = Kernel.compile("rows", symbols, {"A": exact.A, "b": exact.b, "psi": exact.violation})(
        START.t, START.q, START.v, model.parameters
    )
    np.testing.assert_allclose(rows.A, A, atol=1e-15)
    np.testing.assert_allclose(rows.b, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())
    np.testing.assert_allclose(rows.violation, psi, rtol=1e-12)


def test_the_rows_follow_new_parameters_of_the_task() -> None:
    model = sc.Model(Swarm(N=N), {"gather": Aggregation()}, START)
    other = model.retuned(Swarm(N=N, m=3.0), {"gather": Aggregation(a=2.0, b=0.1)}, START)
    assert other is not None
    psi = Aggregation(a=2.0, b=0.1).psi(START.q, START.v, 0.0)
    np.testing.assert_allclose(other.rows(START)[1].violation, psi, rtol=1e-14)


@dataclass(frozen=True)
class Follow(sc.Nonholonomic):
    """psi = c v + f(q, t) with what a case adds to it."""

    case: str = ""

    def psi(self, q: Array, v: Array, t: float) -> Any:
        if self.case == "slope of the state":
            return q * v
        if self.case == "lost":
            kept = np.array([0.0] * len(q))
            kept[:] = np.sin(q)
            return v + kept
        if self.case == "conjugate":
            return v + np.conj(q)
        if self.case == "neighbours":
            return v + np.roll(v, 1)
        if self.case == "time":
            return 2.0 * v + np.sqrt(1.0 + q * q) * np.sin(t)
        if self.case == "distance":
            return v + np.abs(q) + np.maximum(q, 0.2) + np.linalg.norm(q.reshape(-1, 2), axis=1).repeat(2)
        return v + q


@pytest.mark.parametrize("case", ["slope of the state", "lost", "conjugate", "neighbours"])
def test_what_complex_steps_cannot_follow_is_traced_instead(case: str) -> None:
    assert by_complex_step({"follow": Follow(case=case)}, START) == {}


@pytest.mark.parametrize("case", ["time", "distance"])
def test_rates_agree_with_differences(case: str) -> None:
    task = Follow(case=case)
    found = by_complex_step({"follow": task}, START)["follow"]
    at, h = sc.State(0.7, START.q, START.v), 1e-6
    ahead, behind = (task.psi(at.q + s * h * at.v, at.v, at.t + s * h) for s in (1, -1))
    np.testing.assert_allclose(-found.at(task, at).b, (ahead - behind) / (2 * h), rtol=1e-7, atol=1e-7)


FUNCTIONS = {
    "sqrt": 0.7, "square": -0.4, "reciprocal": 0.3, "absolute": -0.6, "fabs": -0.6, "exp": 0.4, "expm1": 0.2,
    "log": 0.8, "log1p": 0.8, "sin": 0.5, "cos": 0.5, "tan": 0.5, "arcsin": 0.3, "arccos": 0.3, "arctan": 2.0,
    "sinh": 0.7, "cosh": 0.7, "tanh": 0.7,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_functions_agree_with_differences(name: str) -> None:
    function, x, h = getattr(np, name), FUNCTIONS[name], 1e-6
    slope = np.asarray(function(analytic(np.array([x + 1e-30j])))).view(complex).imag[0] / 1e-30
    assert slope == pytest.approx((function(x + h) - function(x - h)) / (2 * h), rel=1e-8)


@pytest.mark.parametrize("name", ["divide", "power", "arctan2", "hypot", "maximum", "minimum", "multiply"])
def test_derivatives_of_functions_of_two_agree_with_differences(name: str) -> None:
    function, h = getattr(np, name), 1e-6
    x, y, dx, dy = 0.8, 1.3, 0.4, -0.7
    pair = (analytic(np.array([value + 1e-30j * rate])) for value, rate in ((x, dx), (y, dy)))
    slope = np.array(function(*pair), subok=False).imag[0] / 1e-30
    along = (function(x + h * dx, y + h * dy) - function(x - h * dx, y - h * dy)) / (2 * h)
    assert slope == pytest.approx(along, rel=1e-8)


def test_a_lost_derivative_is_an_error() -> None:
    z = analytic(np.array([1.0 + 1e-30j]))
    for work in (lambda: np.conjugate(z), lambda: z.real, lambda: np.floor(z)):
        with pytest.raises(TraceError, match="complex step"):
            work()
    with complex_steps(), pytest.raises(np.exceptions.ComplexWarning):
        np.array([0.0])[:] = z


def test_a_function_outside_its_real_domain_stays_without_a_number() -> None:
    with np.errstate(all="ignore"):
        found = np.log(analytic(np.array([-1.0 + 1e-30j])))
    assert np.isnan(np.array(found, subok=False).real[0])
