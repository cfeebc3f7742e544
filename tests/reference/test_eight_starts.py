"""The overconstrained parallelogram from eight starts: by default its angle is the reduced pendulum's, by fixed and by
adaptive methods; with a correction in place of projection it is right, or the run says that it is not.
"""

import numpy as np
import pytest

import servoctl as sc
from tests.benchmarks.parallelogram import EIGHT_STARTS, pendulum, start_overrides

pytestmark = pytest.mark.optimised  # thirty runs of 20 s with two compiled programs

SMALL_STEP, LARGE_STEP = "{method: rk4, step: 0.005}", "{method: rk4, step: 0.01}"
ADAPTIVE, IMPLICIT = "{method: dop853, rtol: 1e-9, atol: 1e-12}", "{method: radau, rtol: 1e-5, atol: 1e-7}"
SEVERAL_SWINGS = "run.duration=7"
"""Long enough for a slow method to pass the flat pose from every start, there and back."""

CORRECTED = "plant.passive={correction: {baumgarte: {alpha: 10, beta: 10}}, projection: false}"


def error_of(run: sc.Trajectory, theta: float, rate: float) -> float:
    """Largest error of the angle against the reduced pendulum [rad]."""
    return float(np.abs(run["q.link1_phi"] - pendulum(theta, rate)(run.t)[0]).max())


def simulated(start: tuple[float, float], integrator: str, *more: str) -> sc.Trajectory:
    overrides = [*start_overrides(*start), f"run.integrator={integrator}", "run.output_step=0.05", *more]
    return sc.load("parallelogram", overrides, engine="c").simulate()


@pytest.mark.parametrize(
    ("start", "integrator"),
    [*((start, LARGE_STEP) for start in EIGHT_STARTS), *((start, ADAPTIVE) for start in EIGHT_STARTS[::3])],
)
def test_the_default_is_right_from_every_start(start: tuple[float, float], integrator: str) -> None:
    run = simulated(start, integrator)
    assert (run.metadata["status"], run.t[-1]) == ("done", 20.0)
    assert error_of(run, *start) < 1e-3
    assert set(run["passive_rank"]) <= {10, 11}


@pytest.mark.slow
@pytest.mark.parametrize("start", EIGHT_STARTS[::3])
def test_the_default_is_right_by_an_implicit_method_too(start: tuple[float, float]) -> None:
    run = simulated(start, IMPLICIT, SEVERAL_SWINGS)
    assert (run.metadata["status"], run.t[-1]) == ("done", 7.0)
    assert error_of(run, *start) < 1e-3
    flat_poses = np.count_nonzero(np.diff(np.sign(np.sin(run["q.link1_phi"]))))
    assert flat_poses >= 2


@pytest.mark.parametrize("start", EIGHT_STARTS)
@pytest.mark.parametrize("integrator", [SMALL_STEP, ADAPTIVE], ids=["rk4 5 ms", "dop853"])
def test_a_corrected_run_is_right_or_reports_that_it_is_not(start: tuple[float, float], integrator: str) -> None:
    run = simulated(start, integrator, CORRECTED)
    assert "only projection gives the right motion from every start" in run.metadata["warnings"][0]
    if run.metadata["status"] == "done":
        # steps of 5 ms from the top at 0.2 rad/s: 0.94e-3 to 1.02e-3, by rounding in the flat pose
        assert error_of(run, *start) < 1.5e-3
        return
    error = run.metadata["error"]
    assert error.startswith(f"t = {run.t[-1]:.6g} s: ")
    assert "foot1.0, foot1.1, " in error
    assert "rank" in error
    assert "plant.passive.projection: true" in error
