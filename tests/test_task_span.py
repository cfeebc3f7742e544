"""The metrics of a task are of the time in which it was followed."""

import numpy as np
import pytest

from servoctl.run_folder.trajectory import Trajectory


def run(span: list[float] | None) -> Trajectory:
    columns = {"t": np.arange(5.0), "violation.x": np.array([9.0, 1.0, -2.0, 1.0, 7.0])}
    said = {"tasks": {"x": ["x"]}} | ({} if span is None else {"task_span": span})
    return Trajectory(columns, {}, said)


@pytest.mark.parametrize("span, most, last", [(None, 9.0, 7.0), ([1.0, 3.0], 2.0, 1.0), ([2.0, 2.0], 2.0, 2.0)])
def test_only_the_rows_between_count(span: list[float] | None, most: float, last: float) -> None:
    metrics = run(span).summary()["tasks"]["x"]
    assert metrics["max_violation"] == most
    assert abs(metrics["final_violation"]) == last


def test_a_task_that_never_began_has_no_metrics() -> None:
    metrics = run([]).summary()["tasks"]["x"]
    assert metrics["max_violation"] is None
    assert metrics["final_violation"] is None
