"""Shipped configs against closed forms, inverse kinematics and other integrators; those with bounds keep them.

`tests/data/cases.json` holds the values, computed independently of this code to 13 digits; the tolerances are what a
published figure or a digit of it needs, several orders above the integrators' own.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import servoctl
import servoctl as sc
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

CASES = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())
REVIEW = CASES["case4_review_examples"]


@cache
def trajectory(config: str, *overrides: str) -> sc.Trajectory:
    run = sc.load(config, overrides).simulate()
    assert run.metadata["status"] == "done", run.metadata
    return run


def at(run: sc.Trajectory, values: Any, times: list[float]) -> Any:
    """Rows of the run at the reference's times, which must be among the run's own."""
    index = np.searchsorted(run.t, np.array(times) - 1e-9)
    assert np.abs(run.t[index] - times).max() < 1e-9, "a reference time is not a row of the run"
    return values[index]


def compare(run: sc.Trajectory, case: dict[str, Any], tolerance: float, *, q: str = "q", v: str = "qd") -> None:
    n = len(run.coordinates)
    assert np.abs(at(run, run.q, case["times"]) - np.array(case[q])[:, :n]).max() < tolerance
    assert np.abs(at(run, run.v, case["times"]) - np.array(case[v])[:, :n]).max() < tolerance


def test_two_masses_on_the_constraint_need_a_constant_force() -> None:
    case = CASES["case1_two_mass_spring"]["consistent"]
    run = trajectory("two_mass_spring")
    assert np.abs(run["u.F"] + 7.5).max() < 1e-9
    compare(run, case, 1e-8)


def test_two_masses_off_the_constraint_follow_the_closed_form() -> None:
    case = CASES["case1_two_mass_spring"]["inconsistent_baumgarte"]
    run = trajectory("two_mass_spring_off")
    compare(run, case, 1e-8)
    assert np.abs(at(run, run["u.F"], case["times"]) - case["control_F"]).max() < 1e-8
    assert np.abs(at(run, run["violation.distance"], case["times"]) - case["constraint_error"]).max() < 1e-8
    assert run["u.F"][0] == pytest.approx(case["facts"]["F_range"][0], abs=1e-8)
    assert run["violation.distance"][-1] == pytest.approx(case["facts"]["e_end"], abs=1e-12)


def test_two_masses_without_a_correction_drift_linearly() -> None:
    case = CASES["case1_two_mass_spring"]["inconsistent_no_baumgarte"]
    run = trajectory("two_mass_spring_off", "law.correction=null")
    compare(run, case, 1e-8)
    assert np.abs(at(run, run["u.F"], case["times"]) - case["control_F"]).max() < 1e-8
    assert run["violation.distance"][-1] == pytest.approx(-1.2, abs=1e-9)


@pytest.mark.parametrize(("config", "variant"), [("coordinated_robots", "b"), ("coordinated_robots_published", "e")])
def test_coordinated_robots_reproduce_the_input_ranges(config: str, variant: str) -> None:
    ranges = CASES["case2_coordinated_robots"]["variants"][variant]["ranges"]
    run = trajectory(config)
    assert run.t[-1] == 2 * np.pi
    assert np.abs(run.u.min(axis=0) - ranges["min"]).max() < 1e-4
    assert np.abs(run.u.max(axis=0) - ranges["max"]).max() < 1e-4


@pytest.mark.parametrize("config", ["coordinated_robots", "coordinated_robots_published"])
def test_coordinated_robots_keep_both_loops_closed_over_a_period(config: str) -> None:
    run = trajectory(config)
    for name in ("object_x", "object_y", "level", "loop.0", "loop.1"):
        assert run.violation(name).max() < 1e-9


@pytest.mark.parametrize(("config", "variant"), [("coordinated_robots", "b"), ("coordinated_robots_published", "e")])
def test_coordinated_robots_follow_their_kinematics(config: str, variant: str) -> None:
    case = CASES["case2_coordinated_robots"]
    run = trajectory(config, "run.output_step=0.15707963267948966", "run.integrator.step=0.0015707963267948966")
    compare(run, case, 1e-9)
    assert np.abs(at(run, run.u, case["times"]) - case["variants"][variant]["u"]).max() < 1e-8
    reaction = np.column_stack(list(run.group("passive_force").values()))
    assert np.abs(at(run, reaction, case["times"]) - case["variants"][variant]["passive_reaction_Qc"]).max() < 1e-7


@pytest.mark.parametrize(("config", "key"), [("scara", "none"), ("scara_stabilised", "baumgarte")])
def test_scara_follows_its_closed_form_for_twenty_seconds(config: str, key: str) -> None:
    case = CASES["case3_scara"]["cases"]["signfix_q2_minus55"][key]
    run = trajectory(config)
    assert run.t[-1] == 20.0
    compare(run, case, 1e-7)
    assert np.abs(at(run, run.u, case["times"]) - case["constraint_torque"]).max() < 1e-7
    phi = np.column_stack([run[f"violation.{row}"] for row in run.rows])
    assert np.abs(at(run, phi, case["times"]) - case["Phi"]).max() < 1e-7
    assert np.abs(phi[-1] - case["facts"]["Phi_end"]).max() < 1e-7


def test_scara_from_exact_angles_ends_where_its_rounded_speeds_lead() -> None:
    case = CASES["case3_scara"]["cases"]["exact_angles_rounded_speeds"]
    start = ", ".join(repr(angle) for angle in case["q0"])
    run = trajectory("scara", f"initial.q=[{start}]")
    compare(run, case["none"], 1e-7)
    ends = [run[f"violation.{row}"][-1] for row in run.rows]
    assert ends == pytest.approx(case["none"]["facts"]["Phi_end"], abs=1e-7)


def test_projectile_in_polar_coordinates_flies_the_parabola() -> None:
    case = REVIEW["projectile"]
    run = trajectory("projectile")
    polar = np.array(case["polar"])
    assert np.abs(at(run, run.q, case["times"]) - polar[:, :2]).max() < 1e-7
    assert np.abs(at(run, run.v, case["times"]) - polar[:, 2:]).max() < 1e-7
    r, theta = run.q.T
    assert np.abs(r * np.cos(theta) - (2 + 3 * run.t)).max() < 1e-7
    assert np.abs(r * np.sin(theta) - (1 + 4 * run.t - 9.81 / 2 * run.t**2)).max() < 1e-7


@pytest.mark.parametrize(
    ("config", "force"), [("spiral", "FC_true_generalised"), ("spiral_published", "FC_paper_metric")]
)
def test_spiral_needs_the_force_of_its_metric(config: str, force: str) -> None:
    case = REVIEW["spiral_8_1"]
    run = trajectory(config)
    compare(run, case, 1e-7)
    assert np.abs(at(run, run.u, case["times"]) - case[force]).max() < 1e-7
    assert np.abs(run.q[:, 0] - np.exp(3 - run.t / 10)).max() < 1e-7
    assert at(run, run.q, [20.0])[0, 0] == pytest.approx(np.e, abs=1e-7)  # called "very small" in print


def test_swarm_with_feedback_gathers_exponentially() -> None:
    case = REVIEW["swarm_8_2"]["runs"]["zero_velocity_feedback_kappa5"]
    run = trajectory("swarm")
    case = {**case, "times": REVIEW["swarm_8_2"]["times"]}
    compare(run, case, 1e-7)
    assert np.abs(run.violation("aggregation") - 103.449670736572 * np.exp(-5 * run.t)).max() < 1e-7
    assert np.abs(at(run, run.u, case["times"]) - case["constraint_force"]).max() < 1e-6  # forces reach 400 N
    last = run.q[-1].reshape(-1, 2)
    spacing = min(np.linalg.norm(a - b) for i, a in enumerate(last) for b in last[i + 1 :])
    assert spacing == pytest.approx(case["facts"]["min_distance_end"], abs=1e-7)


def test_swarm_at_rest_without_feedback_never_moves() -> None:
    run = trajectory("swarm_still")
    assert np.array_equal(run.q, np.broadcast_to(run.q[0], run.q.shape))
    assert np.abs(run.violation("aggregation") - 103.449670736572).max() < 1e-9


def test_swarm_that_starts_on_its_constraint_needs_no_feedback() -> None:
    case = REVIEW["swarm_8_2"]["runs"]["consistent_start"]
    speeds = ", ".join(repr(x) for pair in case["v0"] for x in pair)
    run = trajectory("swarm_still", f"initial.v=[{speeds}]")
    compare(run, {**case, "times": REVIEW["swarm_8_2"]["times"]}, 1e-7)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ("flexible_joint_links", "I1_virtual_control"),
        ("flexible_joint_link_force", "I0b_link_force_with_P_feedback"),
    ],
)
def test_flexible_joint_arm_follows_the_published_law_where_it_can_act(config: str, key: str) -> None:
    flexible = REVIEW["flexible_joint_8_3"]
    case = {**flexible["runs"][key], "times": flexible["times"]}
    run = trajectory(config)
    compare(run, case, 1e-7)
    assert np.abs(run["violation.opposite_speeds"] - 0.9 * np.exp(-4 * run.t)).max() < 1e-7
    assert np.abs(at(run, run.u, case["times"]) - case["control"]).max() < 1e-7


def run(name: str, *overrides: str) -> Trajectory:
    return servoctl.load(name, [*overrides], engine="vm").simulate()


def tip_error(run: Trajectory) -> Array:
    return np.hypot(run["violation.tip_x"], run["violation.tip_y"])


def test_an_arm_with_a_link_to_spare_keeps_its_elbow_up_at_no_cost_for_the_tip() -> None:
    free, held = run("elbow_above_table", "bounds=[]"), run("elbow_above_table")
    assert 0.6 * np.sin(free["q.theta1"]).min() == pytest.approx(-0.094, abs=0.001)
    assert 0.0 <= 0.6 * np.sin(held["q.theta1"]).min() < 1e-4
    assert tip_error(held).max() <= 1.1 * tip_error(free).max()
    assert np.abs(held["violation.tool"]).max() > 0.1
