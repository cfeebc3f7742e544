"""Integration against exact solutions: orders, tolerances, holds, rows between steps, the last row, and broken runs.

Methods that choose their steps: exact Jacobians, differences that stay finite, and an end where nothing advances.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import cont2discrete

import servoctl
from servoctl.assembly import simulate
from servoctl.engine import compiler
from servoctl.errors import TaskError
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.constraint import Holonomic
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation import adaptive
from servoctl.simulation.adaptive import differences
from servoctl.simulation.rows import Grid
from servoctl.types import Array, Status
from tests.small_plants import Masses

COMPILED = pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"))
ENGINES = pytest.mark.parametrize("engine", ["vm", "numpy", COMPILED])


@dataclass(frozen=True)
class Oscillator(Masses):
    """x'' = -w^2 x - 2 d x' + f: a linear plant with a known answer to everything."""

    names: str = "x"
    forces: str = "f"
    w: float = 3.0
    d: float = 0.2

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-(self.w**2) * q[0] - 2 * self.d * v[0]])

    def exact(self, t: Array, x: float, v: float) -> Array:
        """x(t) of the free motion."""
        w = np.sqrt(self.w**2 - self.d**2)
        return np.exp(-self.d * t) * (x * np.cos(w * t) + (v + self.d * x) / w * np.sin(w * t))


PLANT = Oscillator()


def free(**how: Any) -> Trajectory:
    return simulate(PLANT, {}, None, q=0.7, v=-0.4, **how)


def error(run: Trajectory) -> float:
    return float(np.abs(run["q.x"] - PLANT.exact(run.t, 0.7, -0.4)).max())


@ENGINES
def test_the_error_of_runge_kutta_falls_with_the_fourth_power_of_the_step(engine: str) -> None:
    errors = [error(free(duration=2.0, step=step, engine=engine)) for step in (0.04, 0.02, 0.01)]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(slopes, 4.0, atol=0.1)  # the next term of the error is w h / 5 relative: 2 %
    assert errors[-1] < 1e-6


@ENGINES
def test_rows_between_the_steps_are_as_accurate_as_the_steps(engine: str) -> None:
    """At 0.37 of the step's multiples, none of which is a step but the first."""
    errors = [error(free(duration=2.0, step=h, output_step=0.37 * h, engine=engine)) for h in (0.04, 0.02, 0.01)]
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 4.0, atol=0.15)
    assert errors[-1] < 2 * error(free(duration=2.0, step=0.01))


@pytest.mark.parametrize("method", ["dop853", "radau"])
@pytest.mark.parametrize("rtol", [1e-6, 1e-9])
def test_an_adaptive_method_keeps_its_tolerance(method: str, rtol: float) -> None:
    run = free(duration=4.0, method=method, rtol=rtol, atol=rtol * 1e-2, output_step=0.1)
    assert error(run) < 200 * rtol  # local tolerances add up over some hundred steps
    assert run.metadata["steps"] == 40


@pytest.mark.parametrize("method", ["dop853", "radau"])
def test_logged_values_are_evaluated_at_rows_only(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = servoctl.load("two_mass_spring", [f"run.integrator={{method: {method}}}", "run.output_step=0.5"], engine="vm")
    rates, inner, logged = run.loop.rates, [], []

    def derivative(t: float, x: Array) -> Array:
        inner.append(t)
        return rates(t, x)[0]

    def whole(t: float, x: Array) -> tuple[Array, Array]:
        logged.append(t)
        return rates(t, x)

    monkeypatch.setattr(run.loop, "derivative", derivative)
    monkeypatch.setattr(run.loop, "rates", whole)
    rows = run.simulate().t
    assert sorted(set(logged)) == rows.tolist()
    assert set(inner) - set(logged)


@pytest.mark.parametrize("how", [
    {"step": 0.03}, {"step": 0.001, "output_step": 0.03}, {"step": 0.004, "output_step": 0.007}, {"step": 5.0},
    {"method": "dop853", "output_step": 0.03}, {"method": "dop853"}, {"method": "radau", "output_step": 0.03},
    {"period": 0.03, "step": 0.01}, {"period": 0.03, "method": "dop853"}, {"step": 0.1},
    {"step": 0.01, "output_step": 0.1},
], ids=str)  # fmt: skip
def test_the_last_row_is_exactly_at_the_end_and_rows_never_repeat(how: dict[str, Any]) -> None:
    run = free(duration=0.7, **how)
    assert run.t[0] == 0.0 and run.t[-1] == 0.7
    assert np.diff(run.t).min() > 1e-9
    spacing = how.get("output_step", how.get("period", how.get("step")))
    if spacing is not None:
        count = int(np.ceil(0.7 / spacing - 1e-9))
        assert len(run) == count + 1
        np.testing.assert_allclose(run.t[:-1], spacing * np.arange(count), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("end", "step", "count"), [(1.0, 0.1, 10), (0.3, 0.1, 3), (1.0, 0.3, 4), (0.05, 0.1, 1)])
def test_a_grid_ends_at_the_end_without_an_empty_step(end: float, step: float, count: int) -> None:
    times = Grid(2.0, 2.0 + end, step)
    assert len(times) == count + 1 and times[-1] == 2.0 + end
    assert np.diff(times).min() > 0.1 * min(step, end)


def test_a_run_may_start_at_another_time() -> None:
    run = simulate(
        PLANT, {}, None, q=0.0, v=0.0, t=5.0, duration=0.5, inputs={"f": "t - 5"}, step=0.01, output_step=0.1
    )
    np.testing.assert_allclose(run.t, [5.0, 5.1, 5.2, 5.3, 5.4, 5.5], rtol=1e-14)
    np.testing.assert_allclose(run["u.f"], run.t - 5.0, atol=1e-14)


@ENGINES
@pytest.mark.parametrize("how", [{"method": "rk4", "step": 0.005}, {"method": "dop853", "rtol": 1e-12, "atol": 1e-14}])
def test_a_sampled_run_is_the_exact_discretisation_with_a_zero_order_hold(engine: str, how: dict[str, Any]) -> None:
    """Ticks at x_k+1 = Ad x_k + Bd u_k, with u_k the law's own at x_k; the last hold is a shorter one."""
    period, law = 0.05, ConstraintFollowing(Baumgarte(2.0, 3.0))
    how = {**how, "engine": engine, "period": period}
    run = simulate(PLANT, {"x": Holonomic("x")}, law, q=0.7, v=-0.4, duration=1.02, **how)
    A, B = np.array([[0.0, 1.0], [-(PLANT.w**2), -2 * PLANT.d]]), np.array([[0.0], [1.0]])
    K = np.array([PLANT.w**2 - 9.0, 2 * PLANT.d - 4.0])  # u cancels the plant, then pulls back
    state, rows = np.array([0.7, -0.4]), []
    for k in range(22):
        rows.append([*state, K @ state])
        hold = period if k < 20 else 0.02
        Ad, Bd, *_ = cont2discrete((A, B, np.eye(2), np.zeros((2, 1))), hold)
        state = Ad @ state + Bd[:, 0] * (K @ state)
    found = np.stack([run["q.x"], run["v.x"], run["u.f"]], axis=1)
    tolerance = 1e-8 if how["method"] == "rk4" else 1e-11  # (w 5 ms)^5 / 120 per step, times 200 steps
    np.testing.assert_allclose(found, rows, rtol=0, atol=tolerance)
    np.testing.assert_allclose(run.t, [*(period * np.arange(21)), 1.02], rtol=1e-14)


@ENGINES
@pytest.mark.parametrize("how", [{"step": 0.1}, {"method": "dop853"}, {"method": "radau"}], ids=str)
def test_an_open_loop_follows_its_inputs(engine: str, how: dict[str, Any]) -> None:
    run = simulate(Oscillator(w=0.0, d=0.0), {}, None, q=0.0, v=0.0, duration=2.0, inputs={"f": "6*t"}, output_step=0.5,
                   engine=engine, **how)  # fmt: skip
    np.testing.assert_allclose(run["q.x"], run.t**3, atol=1e-9)  # a cubic: rk4 is exact
    np.testing.assert_allclose(run["u.f"], 6 * run.t, atol=1e-13)
    assert "rank" not in run.columns and set(run["status"]) == {Status.OK.code}


@pytest.mark.parametrize("method", ["dop853", "radau"])
def test_steps_of_a_machine_at_rest_do_not_grow_beyond_a_later_push(method: str) -> None:
    """A push of 0.1 s after 5 s: without a longest step the machine stood still to the end."""
    run = simulate(Oscillator(w=0.0, d=0.0), {}, None, q=0.0, v=0.0, duration=10.0, method=method,
                   inputs={"f": "exp(-((t - 5)/0.05)**2)"})  # fmt: skip
    assert run["v.x"][-1] == pytest.approx(0.05 * np.sqrt(np.pi), rel=1e-6)


def test_an_input_without_equation_is_zero() -> None:
    assert not free(duration=0.1, step=0.01)["u.f"].any()


@dataclass(frozen=True)
class Blowing(Oscillator):
    """x'' = 2 x^3: from x = 1, x' = 1 the solution 1 / (1 - t) ends at t = 1."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([2.0 * q[0] ** 3])


@ENGINES
@pytest.mark.parametrize("how", [{"step": 0.001}, {"method": "dop853"}], ids=str)
def test_a_run_that_blows_up_stops_near_its_pole_and_reports_the_time(engine: str, how: dict[str, Any]) -> None:
    run = simulate(Blowing(), {}, None, q=1.0, v=1.0, duration=2.0, engine=engine, **how)
    assert run.metadata["status"] == "stopped"
    assert run.metadata["error"].startswith("t = 1")
    assert 0.99 < run.t[-1] < 1.02
    early = run.t < 0.9
    np.testing.assert_allclose(run["q.x"][early], 1 / (1 - run.t[early]), rtol=1e-6)


@dataclass(frozen=True)
class Rooted(Oscillator):
    """A force that is defined for x >= 0 only, reached at t = 0.5."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([1e-9 * np.sqrt(q[0])])


@ENGINES
@pytest.mark.parametrize("how", [{"step": 0.01}, {"step": 0.01, "output_step": 0.05}, {"period": 0.02, "step": 0.01}])
def test_a_force_that_is_not_finite_stops_the_run_and_names_it(engine: str, how: dict[str, Any]) -> None:
    run = simulate(Rooted(), {}, None, q=1.0, v=-2.0, duration=1.0, engine=engine, **how)
    assert run.metadata["status"] == "stopped"
    assert run.t[-1] == pytest.approx(0.5, abs=0.03)
    assert np.isfinite(run["q.x"]).all()
    assert run.metadata["error"].startswith(f"t = {run.t[-1]:.6g} s: ")


def test_a_mass_of_zero_stops_the_run_and_is_named() -> None:
    @dataclass(frozen=True)
    class Leaking(Oscillator):
        def mass_matrix(self, q: Array, t: float) -> Array:
            return np.array([[1.0 - t]])

    for engine in ("vm", "numpy"):
        run = simulate(Leaking(w=0.0), {}, None, q=1.0, v=0.0, duration=2.0, step=0.01, engine=engine)
        assert run.metadata["status"] == "stopped"
        assert "the state is not finite" in run.metadata["error"]
        assert "smallest eigenvalue of mass_matrix 0 at t = 1 s" in run.metadata["error"]
        assert run.t[-1] == pytest.approx(1.0, abs=0.02)


def test_the_thrown_particle_flies_its_parabola_and_keeps_its_energy() -> None:
    run = servoctl.load("projectile").simulate()
    x, y = run["q.r"] * np.cos(run["q.theta"]), run["q.r"] * np.sin(run["q.theta"])
    np.testing.assert_allclose(x, 2 + 3 * run.t, atol=1e-9)  # rtol 1e-11 over some fifty steps
    np.testing.assert_allclose(y, 1 + 4 * run.t - 9.81 / 2 * run.t**2, atol=1e-9)
    assert 0.0 <= run.metadata["energy_drift"] < 1e-8


def test_a_start_that_no_input_can_hold_is_refused() -> None:
    task = {"still": Holonomic("t - x*0")}
    with pytest.raises(TaskError, match="no state near the start satisfies still"):
        simulate(PLANT, task, ConstraintFollowing(), q=0.0, duration=0.1)


@dataclass(frozen=True)
class Cyclic(Masses):
    """A stiff, driven oscillator y beside a coordinate x that nothing depends on by any amount that counts."""

    forces: str = "F"
    stiffness: float = 4e4

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array(
            [0.1 - 1e-300 * np.sin(q[0]), -self.stiffness * q[1] ** 3 - 0.1 * v[1] + 400.0 * np.cos(7.0 * t)]
        )


@dataclass(frozen=True)
class CyclicOpaque(Cyclic):
    def force(self, q: Array, v: Array, t: float) -> Array:
        return super().force(q, v, t) if float(t) >= 0.0 else np.zeros(2)


@pytest.mark.parametrize(("plant", "engine"), [(Cyclic(), "vm"), (CyclicOpaque(), "numpy")], ids=["vm", "numpy"])
def test_radau_integrates_a_coordinate_that_has_no_effect(plant: Cyclic, engine: str) -> None:
    """Differences that grow for want of an effect overflow after some three hundred Jacobians, here before 10 s."""
    how: dict[str, Any] = {"q": [0.0, 0.3], "v": [1.0, 0.0], "duration": 10.0, "output_step": 0.5, "engine": engine}
    run = simulate(plant, {}, None, method="radau", rtol=1e-2, atol=1e-4, **how)
    assert run.metadata["status"] == "done", run.metadata.get("error")
    np.testing.assert_allclose(run["q.x"], run.t + 0.05 * run.t**2, rtol=1e-9)  # a parabola is exact


@pytest.mark.parametrize("name", ["coordinated_robots", "scara", "crane", "parallelogram", "projectile"])
@pytest.mark.parametrize("held", [False, True])
def test_the_jacobian_of_a_compiled_loop_equals_differences(name: str, held: bool) -> None:
    run = servoctl.load(name, engine="vm")
    loop, t = run.loop, 0.3
    x = loop.vector(run.start)
    command = loop.control(t, x) if held else None
    exact = loop.jacobian(t, x, command)

    def rates(y: Array) -> Array:
        return loop.derivative(t, y) if command is None else loop.derivative(t, y, command)

    assert exact is not None
    close = differences(rates, x, 1.0)
    np.testing.assert_allclose(exact, close, rtol=0, atol=1e-6 * np.abs(close).max())


def test_differences_are_finite_at_the_edge_of_a_domain_and_beyond() -> None:
    def function(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.array([2.0 * x[0] + np.where(x[1] < 0.0, np.nan, 3.0 * x[1]), np.log(x[2]), x[3]])

    found = differences(function, np.array([5.0, 0.0, -1.0, 1e308]), 0.01)
    np.testing.assert_allclose(found, [[2, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], rtol=1e-8)


@dataclass(frozen=True)
class Buzzing(Cyclic):
    """A force that no method follows: 1e13 rad/s, and strong enough to matter."""

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([1e13 * np.cos(1e13 * t), -v[1]])


NOWHERE = (
    r"^t = \S+ s: {} makes no progress: its steps are \S+ s long on average, "
    r"the rest would take \S+e\+1\d of them \(raise rtol or atol, use rk4, or smooth what jumps there\)$"
)


@pytest.mark.parametrize(("method", "engine"), [
    ("dop853", "vm"), ("radau", "vm"), ("dop853", "numpy"),
    pytest.param("dop853", "c", marks=COMPILED.marks), pytest.param("radau", "c", marks=COMPILED.marks),
])  # fmt: skip
def test_a_run_without_progress_ends_with_time_step_and_remedy(
    method: str, engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(adaptive, "WINDOW", 300)
    run = simulate(Buzzing(), {}, None, q=0.0, v=0.0, duration=20.0, method=method, engine=engine, out=tmp_path / "run")
    assert run.metadata["status"] == "stopped"
    assert re.match(NOWHERE.format(method), run.metadata["error"])
    assert run.t[-1] == pytest.approx(0.0, abs=1e-9) and len(run) > 200
    assert (tmp_path / "run" / "summary.json").exists() and (tmp_path / "run" / "trajectory.parquet").exists()


def test_a_hold_without_progress_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "WINDOW", 300)
    run = simulate(Buzzing(), {}, None, q=0.0, v=0.0, duration=1.0, period=0.1, method="dop853", engine="vm")
    assert run.metadata["status"] == "stopped"
    assert "dop853 makes no progress: its steps are" in run.metadata["error"]
    assert run.t.tolist() == [0.0]


def test_a_step_below_the_spacing_of_numbers_is_reported_with_its_size() -> None:
    @dataclass(frozen=True)
    class Wall(Cyclic):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return np.array([servoctl.where(t > 0.5, 1e200, 0.0), 0.0])

    run = simulate(Wall(), {}, None, q=0.0, v=0.0, duration=1.0, method="dop853", engine="vm")
    assert run.metadata["status"] == "stopped"
    sentence = (
        "t = 0.5 s: dop853 cannot go on: the step that its tolerances ask for is shorter than 5.6e-16 s (raise rtol"
    )
    assert run.metadata["error"].startswith(sentence)


def test_a_sampled_run_by_radau_equals_that_by_dop853() -> None:
    law = ConstraintFollowing(Baumgarte(2.0, 3.0))
    how: dict[str, Any] = {
        "q": [0.7, 0.1],
        "v": [0.0, 0.0],
        "duration": 0.5,
        "period": 0.05,
        "rtol": 1e-9,
        "atol": 1e-11,
    }
    runs = [simulate(Cyclic(), {"x": Holonomic("x")}, law, method=method, **how) for method in ("dop853", "radau")]
    for run in runs[1:]:
        np.testing.assert_allclose(run.q, runs[0].q, rtol=0, atol=1e-6)
