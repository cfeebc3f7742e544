"""The shipped configs with bounds keep them, and pay what they have to and no more."""

import numpy as np
import pytest

import servoctl
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array


def run(name: str, *overrides: str) -> Trajectory:
    return servoctl.load(name, [*overrides], engine="vm").simulate()


def tip_error(run: Trajectory) -> Array:
    return np.hypot(run["violation.tip_x"], run["violation.tip_y"])


def test_the_tip_of_an_arm_goes_around_a_disc_and_back_to_its_circle() -> None:
    free, held = run("arm_obstacle", "bounds=[]"), run("arm_obstacle")
    for each, least, most in ((free, -0.075, -0.073), (held, 0.0, 1e-3)):
        x, y = (
            0.7 * (np.cos(each["q.theta1"]) + np.cos(each["q.theta2"])),
            0.7 * (np.sin(each["q.theta1"]) + np.sin(each["q.theta2"])),
        )
        depth = np.hypot(x - 0.73345, y - 0.54255) - 0.08
        assert least <= depth.min() <= most
    np.testing.assert_allclose(held["bound.disc"], depth, atol=1e-12)
    assert tip_error(held).max() == pytest.approx(0.192, abs=0.005)
    assert tip_error(held)[-1] <= 1.5 * tip_error(free)[-1]
    assert [name for name in held.drawing if name.startswith(("shape.", "obstacle."))] == [
        "shape.arm_2",
        "obstacle.disc",
    ]


def test_an_arm_with_a_link_to_spare_keeps_its_elbow_up_at_no_cost_for_the_tip() -> None:
    free, held = run("elbow_above_table", "bounds=[]"), run("elbow_above_table")
    assert 0.6 * np.sin(free["q.theta1"]).min() == pytest.approx(-0.094, abs=0.001)
    assert 0.0 <= 0.6 * np.sin(held["q.theta1"]).min() < 1e-4
    assert tip_error(held).max() <= 1.1 * tip_error(free).max()
    assert np.abs(held["violation.tool"]).max() > 0.1


def test_a_rope_stays_taut_though_the_load_is_asked_to_fall_faster_than_it_can() -> None:
    free, held = run("crane_rope", "bounds=[]"), run("crane_rope")
    # the force of the rope on the winch is the passive force on its length
    assert free["passive_force.l"].min() < -200.0
    assert held["passive_force.l"].min() == pytest.approx(20.0, abs=1e-6)
    assert np.abs(held["violation.trolley"]).max() < 2e-4
    assert np.abs(held["violation.height"][-1]) < 1e-4


def test_an_obstacle_that_no_bound_uses_is_said_before_the_run() -> None:
    warnings = servoctl.load("arm_obstacle", ["bounds=[]"], engine="numpy").warnings
    assert [line for line in warnings if line.startswith("plant.")] == [
        "plant.shapes.arm_2: no bound uses it, so nothing keeps clear of it (give clearance: [..., arm_2] in bounds)",
        "plant.obstacles.disc: no bound uses it, so nothing keeps clear of it (give clearance: [..., disc] in bounds)",
    ]
    assert not any(line.startswith("plant.") for line in servoctl.load("arm_obstacle", engine="numpy").warnings)
