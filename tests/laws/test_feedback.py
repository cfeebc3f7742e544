"""A function of time and state as a law."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl as sc
from plants.two_mass_spring import TwoMassSpring
from servoctl.errors import ServoctlError


def simulated(function: Callable[..., Any], engine: str = "vm", **more: Any) -> sc.Trajectory:
    task = {"distance": sc.Holonomic("x2 - x1 - l")}
    return sc.simulate(TwoMassSpring(), task, sc.law(function), q=[0.1, 0.6], duration=0.5, engine=engine, **more)


@pytest.mark.parametrize("engine", ["numpy", "vm", "c"])
@pytest.mark.parametrize("period", [None, 0.01])
def test_the_inputs_are_those_of_the_function_on_every_engine(engine: str, period: float | None) -> None:
    K = np.array([[20.0, 1.0, 5.0, 0.5]])
    run = simulated(lambda t, q, v: np.sin(t) - K @ np.concatenate([q, v]), engine, period=period)
    state = np.column_stack([run.q, run.v])
    np.testing.assert_allclose(run["u.F"], np.sin(run.t) - state @ K[0], rtol=0, atol=1e-12)
    assert run.metadata["status"] == "done"


def test_the_motion_is_that_of_the_linear_loop() -> None:
    """Two masses and a spring under state feedback are linear about the rest length: expm is the reference."""
    from scipy.linalg import expm

    plant, K = TwoMassSpring(), np.array([20.0, 1.0, 5.0, 0.5])
    run = simulated(lambda t, q, v: [-K @ np.concatenate([q - np.array([0.0, plant.l]), v])])
    m1, m2, k = plant.m1, plant.m2, plant.k
    A = np.array([[0, 0, 1, 0], [0, 0, 0, 1], [-k / m1, k / m1, 0, 0], [k / m2, -k / m2, 0, 0]], dtype=float)
    A[2] -= K / m1
    start = np.array([0.1, 0.6 - plant.l, 0.0, 0.0])
    wanted = expm(A * 0.5) @ start + np.array([0.0, plant.l, 0.0, 0.0])
    np.testing.assert_allclose([*run.q[-1], *run.v[-1]], wanted, atol=1e-9)


def test_two_functions_with_other_numbers_are_two_laws() -> None:
    def stiff(k: float) -> Callable[..., Any]:
        return lambda t, q, v: [-k * q[0]]

    assert [simulated(stiff(k))["u.F"][0] for k in (1.0, 3.0)] == pytest.approx([-0.1, -0.3])


@pytest.mark.parametrize("period", [None, 0.01])
def test_a_function_that_symbols_cannot_follow_runs_in_numpy_and_says_so(period: float | None) -> None:
    """A bang-bang law: the same motion as with `where`, which symbols can follow."""
    run = simulated(lambda t, q, v: [-1.0 if v[0] > 0.0 else 1.0], "auto", period=period)
    traced = simulated(lambda t, q, v: [sc.where(v[0] > 0.0, -1.0, 1.0)], "vm", period=period)
    np.testing.assert_allclose(run.q, traced.q, rtol=0, atol=1e-12)
    (note,) = (line for line in run.metadata["warnings"] if line.startswith("a function of the law runs in NumPy: "))
    assert "test_feedback.py:" in note and "the truth of a symbol is not known" in note
    assert not any("NumPy" in line for line in traced.metadata["warnings"])


def test_an_exception_of_such_a_function_stops_the_run_with_its_line() -> None:
    def law(t: float, q: Any, v: Any) -> list[float]:
        if t > 0.1:
            raise ArithmeticError("out of ideas")
        return [float(q[0])]

    run = simulated(law)
    assert run.metadata["status"] == "stopped" and run.t[-1] == pytest.approx(0.1, abs=2e-3)
    assert "law: the function failed at t = 0.1" in run.metadata["error"]
    assert "ArithmeticError: out of ideas (line " in run.metadata["error"]


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda t, q, v: [1.0, 2.0], r"returns shape \(2,\), the plant has 1 inputs"),
        (lambda t, q: [1.0], r"takes other arguments than \(t, q, v\): too many positional arguments"),
        (3, r"expected a function \(t, q, v\) -> inputs, got 3"),
    ],
)
def test_what_is_no_feedback_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(ServoctlError, match=sentence):
        simulated(function)


def test_a_feedback_that_is_not_a_number_stops_the_run() -> None:
    assert simulated(lambda t, q, v: [np.nan * q[0]]).metadata["status"] == "stopped"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: sc.Baumgarte(alpha=-1, beta=2), r"Baumgarte: alpha: expected a number >= 0 \[1/s\], got -1"),
        (lambda: sc.Baumgarte(alpha={"a": [1, np.nan]}, beta=2), r"Baumgarte: alpha\.a: .* got nan"),
        (lambda: sc.SecondOrderCorrection(1, "x"), "SecondOrderCorrection: stiffness: .* got 'x'"),
        (lambda: sc.PFeedback(P=0), r"PFeedback: P: expected a positive time \[s\], got 0"),
    ],
)
def test_gains_are_refused_when_constructed(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(sc.errors.TaskError, match=sentence):
        make()


def test_the_package_shows_its_public_names_and_a_run_says_what_it_is() -> None:
    assert dir(sc) == sorted(sc.__all__) and "law" in dir(sc)
    said = repr(sc.load("crane", engine="vm"))
    assert said == "<Run crane: Crane (2 coordinates, 1 inputs), load; 12 s by rk4, engine vm>"


def test_the_example_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = [line[4:] for line in (sc.__doc__ or "").splitlines() if line.startswith("    ")]
    names: dict[str, Any] = {}
    exec("\n".join(code), names)
    assert [path.name for path in tmp_path.iterdir()] == ["run.png"]
    assert names["run"].summary()["tasks"]["distance"]["max_violation"] < 1e-10
