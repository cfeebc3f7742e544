"""Statistics of ticks, against NumPy."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.loop.timing import Distribution, TickStatistics


def counted(durations: list[int]) -> Distribution:
    distribution = Distribution()
    for duration in durations:
        distribution.add(duration)
    return distribution


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=200), st.sampled_from([0.1, 50.0, 90.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_never_too_small_and_at_most_a_64th_too_large(durations: list[int], percent: float) -> None:
    exact = int(np.percentile(np.array(durations, dtype=object), percent, method="inverted_cdf"))
    got = counted(durations).percentile(percent)
    assert exact <= got <= exact + exact // 64


@given(st.lists(st.integers(0, 10**10), min_size=2, max_size=200))
def test_mean_deviation_and_extremes_are_exact(durations: list[int]) -> None:
    distribution = counted(durations)
    assert distribution.n == len(durations)
    assert (distribution.least, distribution.most) == (min(durations), max(durations))
    assert distribution.mean == pytest.approx(np.mean(durations), rel=1e-12)
    assert distribution.std == pytest.approx(np.std(durations, ddof=1), rel=1e-9, abs=1e-3)


def test_small_durations_are_exact_to_the_nanosecond() -> None:
    assert counted(list(range(101))).percentile(50) == 50


def test_without_durations_there_are_no_figures() -> None:
    assert Distribution().as_dict() == {"n": 0}
    assert Distribution().percentile(50) == 0
    assert counted([3]).as_dict() == {"n": 1, "mean": 3e-9, "p50": 3e-9, "p99": 3e-9, "p99_9": 3e-9, "max": 3e-9}


def test_negative_durations_count_as_zero() -> None:
    assert counted([-5]).most == 0


def test_skipped_periods_and_runs_of_late_ticks_are_counted() -> None:
    timing, period, deadline = TickStatistics(1000), 1000, 0
    for skipped in [0, 2, 1, 0, 1, 1, 1, 0]:
        deadline += (1 + skipped) * period
        timing.tick(deadline, deadline + 30, deadline + 130, skipped)
    figures = timing.as_dict()
    assert figures["ticks"] == 8
    assert figures["skipped_periods"] == 6
    assert figures["late_ticks"] == 5
    assert figures["longest_late_run"] == 3
    assert figures["least_slack_s"] == pytest.approx(870e-9)
    assert figures["lateness_s"]["max"] == pytest.approx(30e-9)
    assert figures["execution_s"]["mean"] == pytest.approx(100e-9)
    assert figures["period_s"]["n"] == 7
    assert figures["period_s"]["max"] == pytest.approx(3e-6)


def test_an_overrun_has_negative_slack() -> None:
    timing = TickStatistics(1000)
    timing.tick(0, 10, 1500, 0)
    assert timing.least_slack == -500


def test_the_figures_are_json() -> None:
    timing = TickStatistics(1000, ["j1"])
    assert json.loads(json.dumps(timing.as_dict(), allow_nan=False))["age_s"] == {"j1": {"n": 0}}
