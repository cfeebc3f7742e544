"""Methods that choose their steps: exact Jacobians, differences that stay finite, and an end where nothing advances."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl
from servoctl.assembly import simulate
from servoctl.engine import compiler
from servoctl.laws.configured import ConstraintFollowing
from servoctl.laws.corrections import Baumgarte
from servoctl.mechanics.constraint import Holonomic
from servoctl.simulation import adaptive
from servoctl.simulation.adaptive import differences
from servoctl.types import Array
from tests.small_plants import Masses

COMPILED = pytest.param("c", marks=pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler on the path"))


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
