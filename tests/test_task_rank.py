"""A run whose task rank rises by drift alone ends with a sentence; one whose rank really rises goes on."""

import servoctl as sc
from tests.small_plants import Masses

LAW = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5, beta=5))


def run(rows: dict[str, str], step: float, **start: list[float]) -> sc.Trajectory:
    constraints = {name: sc.Holonomic(text) for name, text in rows.items()}
    return sc.simulate(Masses(), constraints, LAW, duration=2.0, step=step, **start)  # type: ignore[arg-type]


def test_rows_that_depend_on_each_other_where_the_task_holds_end_the_run_by_name() -> None:
    rows = {"path": "x - sin(3*t)", "again": "(1 + y)*(x - sin(3*t))"}
    trajectory = run(rows, 0.05, q=[0.0, 0.5], v=[3.0, 0.0])
    assert trajectory["rank"][0] == 1 and trajectory.metadata["status"] == "stopped"
    error = trajectory.metadata["error"]
    assert "task rank 2, but 1 at the nearest state that satisfies the task" in error
    assert "dependent rows (again) look independent" in error and "law.rank_tolerance" in error


def test_a_tolerance_above_the_drift_lets_it_run() -> None:
    rows = {"path": sc.Holonomic("x - sin(3*t)"), "again": sc.Holonomic("(1 + y)*(x - sin(3*t))")}
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(alpha=5, beta=5), rank_tolerance=1e-3)
    trajectory = sc.simulate(Masses(), rows, law, q=[0.0, 0.5], v=[3.0, 0.0], duration=2.0, step=0.01)
    assert trajectory.metadata["status"] == "done" and set(trajectory["rank"]) == {1}
    assert abs(trajectory["u.Fy"]).max() < 1e-2


def test_a_rank_that_really_rises_is_no_fault() -> None:
    # at x = 0 the row x^2/2 has no gradient; it gains one as x grows
    trajectory = run({"square": "x**2/2 - t**2/2", "height": "y"}, 0.01, q=[0.0, 0.0], v=[1.0, 0.0])
    assert trajectory["rank"][0] == 1 and trajectory["rank"][-1] == 2
    assert trajectory.metadata["status"] == "done"
