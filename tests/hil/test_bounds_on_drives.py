"""Bounds on emulated drives: held under quantised and late samples, and told as in a simulated run."""

import numpy as np

from tests.faces import on_drives

CEILING = "bounds=[{name: ceiling, holonomic: '0.3*l - l*sin(theta1) - l*sin(theta2) - l/2*sin(theta3)'}]"


FUNNEL = "law.correction={funnel: {P: 0.1, rate: 10, start: 0.5, end: 0.1, shrink: 1}}"


def test_drives_carry_the_object_no_higher_than_a_ceiling() -> None:
    result = on_drives("coordinated_robots", CEILING, FUNNEL, duration=3.0)
    assert result.exit_code == 0
    run = result.trajectory
    l = 1.0  # noqa: E741 - as in the equation
    q = {name: run[f"q.{name}"] for name in ("theta1", "theta2", "theta3")}
    height = l * np.sin(q["theta1"]) + l * np.sin(q["theta2"]) + l / 2 * np.sin(q["theta3"])
    assert height.max() < 0.3 + 1e-3
    assert run["violation.object_y"].min() < -0.3  # the task asks for more
    metrics = run.summary()["bounds"]["ceiling"]
    assert metrics["min"] > -1e-3 and metrics["active_time"] > 0.5
    event = next(event for event in run.summary()["events"] if event["event"] == "bound")
    assert event["bound"] == "ceiling" and event["given_up"]["object_y"] > 0.1
    left = next(event for event in run.summary()["events"] if event["event"] == "funnel")  # the ceiling is in the way
    at = int(np.searchsorted(run.t, left["t"]))
    beta = run["violation_rate.object_y"] + 10.0 * run["violation.object_y"]
    width = 0.4 * np.exp(-run["task_time"]) + 0.1
    assert left["row"] == "object_y" and abs(beta[at - 1]) < width[at - 1] and abs(beta[at]) > width[at]
