"""The right motion where passive rows are dependent: angle and energy against the reduced pendulum.

`(3 (I + m L^2/4) + m2 L^2) theta'' = -(3 m/2 + m2) g L cos(theta)`; the fixed step is 5 ms where the default is 1 ms,
which costs accuracy and saves minutes.
"""

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import ConfigError
from tests.benchmarks.parallelogram import pendulum

STEP = "run.integrator={method: rk4, step: 0.005}"


def run(config: str, *overrides: str) -> tuple[sc.Trajectory, np.ndarray]:
    """The run, and the error of its angle."""
    trajectory = sc.load(config, [STEP, "run.output_step=0.1", *overrides]).simulate()
    assert trajectory.metadata["status"] == "done"
    theta = trajectory["q.link1_phi"]
    return trajectory, theta - pendulum(theta[0], trajectory["v.link1_phi"][0], trajectory.t[-1])(trajectory.t)[0]


@pytest.mark.slow
def test_the_parallelogram_swings_right_for_two_hundred_seconds_when_projected() -> None:
    _, error = run("parallelogram", "run.duration=200", "plant.passive={projection: true}")
    assert np.abs(error).max() < 1e-6


@pytest.mark.parametrize(("config", "bound"), [("parallelogram", 1e-7), ("parallelogram_flat", 1e-6)])
def test_projection_alone_keeps_the_motion_ten_times_better(config: str, bound: float) -> None:
    trajectory, error = run(config, "run.duration=10", "plant.passive={projection: true}")
    assert np.abs(error).max() < bound
    assert max(trajectory.violation(row).max() for row in trajectory.passive_rows) < 1e-13


@pytest.mark.parametrize("engine", ["vm", "c"])
def test_small_gains_end_before_the_motion_is_lost_at_the_flat_pose_and_the_rank_says_why(engine: str) -> None:
    slow = "plant.passive.correction={baumgarte: {alpha: 5, beta: 5}}"
    trajectory = sc.load("parallelogram_flat", [STEP, "run.duration=20", slow], engine=engine).simulate()
    assert trajectory.metadata["status"] == "stopped"
    theta = trajectory["q.link1_phi"]
    right = np.abs(theta - pendulum(theta[0], 1.0, trajectory.t[-1])(trajectory.t)[0]) < 1e-2
    assert right[trajectory.t < trajectory.t[-1] - 0.2].all()
    assert "rank" in trajectory.metadata["error"]
    assert "plant.passive.projection: true" in trajectory.metadata["error"]


def test_dependent_rows_without_a_correction_are_refused() -> None:
    none = "plant.passive.correction={baumgarte: {alpha: 0, beta: 0}}"
    with pytest.raises(ConfigError, match=r"plant\.passive.*rank 11 of 12 mechanism rows, and nothing corrects foot1"):
        sc.load("parallelogram", [none])


def test_a_configured_correction_replaces_the_projection() -> None:
    written = sc.load("parallelogram", ["plant.passive.correction={baumgarte: {alpha: 10, beta: 10}}"], engine="vm")
    assert not written.system.passive.projection
    assert written.system.passive.stiffness == (100.0,) * 12
    default = sc.load("parallelogram", engine="vm").system.passive
    assert (default.projection, default.stiffness, default.allowed) == (True, (0.0,) * 12, 11)
