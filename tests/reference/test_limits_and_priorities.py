"""Limits and priorities through the whole program, on the redundantly actuated robots."""

import numpy as np
import pytest

import servoctl as sc

LIMITS = {"u1": 12.0, "u2": 12.0, "u3": 8.1, "u4": 12.0, "u5": 12.0, "u6": 7.0}
TASK = ("object_x", "object_y", "level")


def inside(run: sc.Trajectory, limits: dict[str, float]) -> bool:
    return all(np.abs(run[f"u.{name}"]).max() <= limit for name, limit in limits.items())


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_limit_that_least_torques_exceed_is_kept_without_cost_to_the_task(engine: str) -> None:
    assert np.abs(sc.load("coordinated_robots").simulate()["u.u6"]).max() > 8.2
    duration = "2*pi" if engine == "vm" else "0.05"
    run = sc.load("coordinated_robots_limited", [f"run.duration={duration}"], engine).simulate()
    assert inside(run, LIMITS)
    assert max(run.violation(name).max() for name in TASK) < 1e-9
    assert set(run["status"]) == {sc.Status.OK.code}
    assert np.abs(run["u.u6"]).max() == 7.0


def test_a_limit_below_the_demand_of_the_task_is_kept_and_the_missing_part_is_reported() -> None:
    weak = {name: 5.0 for name in LIMITS}
    run = sc.load("coordinated_robots_limited", [f"law.limits={{{', '.join(f'{k}: 5' for k in weak)}}}"]).simulate()
    assert inside(run, weak)
    assert sc.Status.SATURATED.code in run["status"]
    assert run.metadata["status"] == "done"
    first = run["residual"][0]
    events = [event for event in run.metadata["events"] if event["event"] == "status"]
    assert first > 0.1
    assert run.summary()["status_counts"]["SATURATED"] > 0
    assert all(set(event["at_limit"]) <= set(LIMITS) for event in events if event["to"] == "SATURATED")


def test_on_infeasible_fault_ends_a_run_at_the_first_saturated_row() -> None:
    run = sc.load(
        "coordinated_robots_limited",
        ["law.on_infeasible=fault", "law.limits={u1: 5, u2: 5, u3: 5, u4: 5, u5: 5, u6: 5}"],
    ).simulate()
    assert run.metadata["status"] == "stopped"
    assert "at its limit" in run.metadata["error"]


@pytest.mark.parametrize(("engine", "duration"), [("vm", 0.5), ("numpy", 0.1)])
def test_a_task_of_lower_priority_does_not_change_higher_ones(engine: str, duration: float) -> None:
    other = "{name: elbow, holonomic: l*sin(theta1) - 0.6*l, priority: 2}"
    run = sc.load("coordinated_robots", [f"run.duration={duration}", "initial.max_violation=2"], engine)
    assert run.system.law is not None
    changes = [f"run.duration={duration}", f"task={task_list(other)}"]
    crowded = sc.load("coordinated_robots", changes, engine).simulate()
    assert max(crowded.violation(name).max() for name in TASK) < 1e-9
    assert crowded.violation("elbow")[-1] > 0.1  # the object fixes the elbow, so nothing is left for it
    assert set(crowded["rank"]) == {3}
    assert np.abs(crowded.u - run.simulate().u).max() < 1e-9


def test_the_row_of_lower_priority_gives_way() -> None:
    last = "{name: elbow, holonomic: l*sin(theta1) - 0.86*l, priority: 1}"
    run = sc.load("coordinated_robots", ["run.duration=1", f"task={task_list(last, priority=2)}"]).simulate()
    assert run.violation("elbow")[-1] < 1e-5
    assert max(run.violation(name)[-1] for name in TASK) > 1e-3


def task_list(extra: str, priority: int = 1) -> str:
    """The robots' own task at a priority, and one more entry, as `--set` takes it."""
    equations = {
        "object_x": "l*cos(theta1) + l*cos(theta2) + l/2*cos(theta3) - 1.5*l",
        "object_y": "l*sin(theta1) + l*sin(theta2) + l/2*sin(theta3) - l/2*(1 - cos(t))",
        "level": "theta3",
    }
    own = [f'{{name: {name}, holonomic: "{text}", priority: {priority}}}' for name, text in equations.items()]
    return f"[{', '.join([*own, extra])}]"
