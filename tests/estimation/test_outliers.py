"""Readings far from their prediction as events: one per burst, with its figures."""

from typing import Any

import numpy as np
import pytest

import servoctl as sc
from servoctl.estimation.attached import PATIENCE, TRUST, after_fitting, outliers_in_row
from servoctl.estimation.outliers import Burst, OutlierBursts
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.estimated import outlier_events


def events_of(sigmas: dict[str, dict[int, float]], rows: int = 4000, h: float = 1e-3) -> list[dict[str, Any]]:
    """Events of a run whose innovations are 1, but for those given: coordinate -> row -> innovation."""
    columns = {"t": h * np.arange(rows)}
    for name, values in sigmas.items():
        innovation = np.ones(rows)
        for row, value in values.items():
            innovation[row] = value
        columns[f"estimate.innovation.{name}"] = innovation
    return outlier_events(Trajectory(columns))


def test_a_burst_is_one_event_with_its_largest_size_and_its_longest_row() -> None:
    events = events_of({"a": {100: 6.0, 101: 9.0, 103: 7.0, 3000: 5.5}, "b": {101: 6.5}})
    times = [time for event in events for time in (event["t"], event["until"])]
    assert times == pytest.approx([0.1, 0.103, 3.0, 3.0])
    assert events[0]["coordinates"] == {
        "a": {"sigmas": 9.0, "count": 3, "in_row": 2}, "b": {"sigmas": 6.5, "count": 1, "in_row": 1},
    }  # fmt: skip
    said = "0.1 to 0.103 s: 3 readings, 2 in a row, up to 9 standard deviations; also b 6.5"
    assert events[0]["text"] == f"a: the estimator left out readings far from their prediction ({said})"
    assert events[1]["text"].endswith("(at 3 s: 1 reading, up to 5.5 standard deviations)")


def test_more_in_a_row_than_the_estimator_leaves_out_are_said_and_none_give_no_event() -> None:
    assert "after 3 in a row the reading is believed" in events_of({"a": dict.fromkeys(range(50, 54), 8.0)})[0]["text"]
    assert "believed" not in events_of({"a": dict.fromkeys(range(50, 53), 8.0)})[0]["text"]
    assert events_of({"a": {7: 5.0, 8: np.nan}}) == []  # 5 is not beyond 5; no reading is no outlier
    assert outlier_events(Trajectory({"t": np.zeros(3)})) == []


def test_tick_by_tick_a_burst_is_reported_one_second_after_its_last_outlier() -> None:
    bursts, found = OutlierBursts(["a"]), list[tuple[int, Burst]]()
    for row in range(3000):
        outlier = row in (100, 900)
        found += [(row, burst) for burst in bursts.tick(1e-3 * row, np.array([7.0 if outlier else 1.0]))]
    assert [row for row, _ in found] == [1901]
    assert found[0][1].counts["a"].count == 2
    assert bursts.close() == []


@pytest.mark.parametrize("before", [0.0, 1.0, PATIENCE, PATIENCE + 1.0, PATIENCE + 4.0, PATIENCE + TRUST])
def test_many_readings_that_fit_count_as_they_would_one_by_one(before: float) -> None:
    one_by_one = before
    for readings in range(1, 8):
        one_by_one = float(outliers_in_row(1.0, one_by_one))
        assert after_fitting(before, readings) == one_by_one
    at_once, steps = OutlierBursts(["a"]), OutlierBursts(["a"])
    for t in range(PATIENCE + 1):
        for bursts in (at_once, steps):
            bursts.tick(1e-3 * t, np.array([7.0]))
    at_once.met(TRUST - 3)
    for t in range(TRUST - 3):
        steps.tick(1e-3 * t, np.array([1.0]))
    for t in range(4):  # a reading far off is believed until enough have fit
        for bursts in (at_once, steps):
            bursts.tick(2.0 + 1e-3 * t, np.array([1.0 if t < 3 else 7.0]))
    assert at_once.close() == steps.close() != []


def test_a_machine_far_from_its_model_is_one_event_of_its_run_and_an_exact_one_is_none() -> None:
    few = ["run.period=0.001", "run.duration=0.3", "estimation.kind=model", "realism.measured=q"]
    few += ["realism.quantisation.q=1e-5"]
    calm = sc.load("two_mass_spring", few, engine="vm").simulate()
    assert [event for event in calm.summary()["events"] if event["event"] == "outlier"] == []
    slow = "estimation.disturbance=0.1"  # follows no error of this size within ten ticks
    wrong = sc.load("two_mass_spring", [*few, slow, "realism.parameter_error.m1=3"], engine="vm").simulate()
    found = [event for event in wrong.summary()["events"] if event["event"] == "outlier"]
    d = wrong["estimate.disturbance.x1"]
    known = wrong.summary()["estimate"]["x1"]
    assert known["max"] == pytest.approx(np.abs(d).max())
    assert known["rms"] == pytest.approx(np.sqrt(np.trapezoid(d**2, wrong.t) / (wrong.t[-1] - wrong.t[0])))
    assert known["sigma"] == wrong["estimate.sigma.x1"][-1] > 0.0
    left_out = found[0]["coordinates"]["x1"]
    assert left_out["in_row"] == 3 and "believed, not the model" in found[0]["text"]
    assert len(found) == 1
    assert 5.0 < left_out["sigmas"] < wrong["estimate.innovation.x1"].max()  # later readings were believed
