"""Statistics of ticks, against NumPy."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.core.compiled import library
from hil.loop.timing import COUNTS, PARTS, TickStatistics, figures, percentile
from servoctl.types import Array


def counted(durations: list[int]) -> Array:
    """Durations as the tick in C counts them."""
    ffi, functions = library()
    numbers = np.zeros(COUNTS, dtype=np.uint64)
    counts = ffi.from_buffer("unsigned long long[]", numbers)
    for duration in durations:
        functions.log_count(counts, duration)
    return numbers


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=200), st.sampled_from([0.1, 50.0, 90.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_never_too_small_and_at_most_a_64th_too_large(durations: list[int], percent: float) -> None:
    exact = int(np.percentile(np.array(durations, dtype=object), percent, method="inverted_cdf"))
    got = percentile(counted(durations), percent)
    assert exact <= got <= exact + exact // 64


@given(st.lists(st.integers(0, 10**10) | st.sampled_from([2**32 - 1, 2**32, 2**33 + 5]), min_size=2, max_size=200))
def test_mean_deviation_and_extremes_are_exact(durations: list[int]) -> None:
    counts = counted(durations)
    n, least, most, total, low, high = map(int, counts[:6])
    assert (n, least, most, total) == (len(durations), min(durations), max(durations), sum(durations))
    assert low + (high << 64) == sum(duration**2 for duration in durations)
    found = figures(counts)
    assert found["mean"] == pytest.approx(np.mean(durations) / 1e9, rel=1e-12)
    assert found["std"] == pytest.approx(np.std(durations, ddof=1) / 1e9, rel=1e-9, abs=1e-12)


def test_small_durations_are_exact_to_the_nanosecond() -> None:
    assert percentile(counted(list(range(101))), 50) == 50


def test_without_durations_there_are_no_figures() -> None:
    assert figures(counted([])) == {"n": 0}
    assert percentile(counted([]), 50) == 0
    assert figures(counted([3])) == {"n": 1, "mean": 3e-9, "p50": 3e-9, "p99": 3e-9, "p99_9": 3e-9, "max": 3e-9}


def test_negative_durations_count_as_zero() -> None:
    assert figures(counted([-5]))["max"] == 0


def ticks(skips: list[int], overrun: int = 0, age: float = math.inf, let_go: bool = False) -> dict[str, Any]:
    """Figures of ticks with so many skipped periods of 1000 ns before each; each is late by 30 ns and takes 100 ns."""
    ffi, functions = library()
    timing, now = TickStatistics(1000, ["j1"]), 0
    tick, log, when = (ffi.new(f"{kind} *") for kind in ("tick", "tick_log", "tick_times"))
    ages = ffi.new("double[]", [age])
    tick.channels, tick.ages, log.let_go = 1, ages, let_go
    log.ages, log.block = ffi.from_buffer("unsigned long long[]", timing.counts[len(PARTS)]), COUNTS
    log.nominal, log.marks = timing.nominal, ffi.from_buffer("long long[]", timing.marks)
    for name, counts in zip(PARTS, timing.counts, strict=False):
        setattr(log, name, ffi.from_buffer("unsigned long long[]", counts))
    for skipped in skips:
        now += 1000 * (1 + skipped)
        when.deadline, when.began, when.skipped = now, now + 30, skipped
        when.read = when.decided = when.written = now + 130 + overrun
        functions.log_times(tick, log, when)
    return timing.as_dict()


def test_skipped_periods_and_runs_of_late_ticks_are_counted() -> None:
    figures = ticks([0, 2, 1, 0, 1, 1, 1, 0])
    assert figures["ticks"] == 8
    assert figures["age_s"] == {"j1": {"n": 0}}  # a sample that never came has no age; it counted as 0
    assert figures["skipped_periods"] == 6
    assert figures["late_ticks"] == 5
    assert figures["longest_late_run"] == 3
    assert figures["least_slack_s"] == pytest.approx(870e-9)
    assert figures["lateness_s"]["max"] == pytest.approx(30e-9)
    assert figures["execution_s"]["mean"] == pytest.approx(100e-9)


def test_ages_count_until_drives_go_off() -> None:
    """One behind a closed brake is let go first: with 90 ms it was the oldest of every sound run."""
    assert ticks([0], age=2e-3)["age_s"]["j1"]["max"] == pytest.approx(2e-3, rel=1e-12)
    assert ticks([0], age=90e-3, let_go=True)["age_s"]["j1"] == {"n": 0}


def test_an_overrun_has_negative_slack() -> None:
    assert ticks([0], overrun=1370)["least_slack_s"] == pytest.approx(-500e-9)


def test_the_figures_are_json() -> None:
    assert json.loads(json.dumps(ticks([]), allow_nan=False))["age_s"] == {"j1": {"n": 0}}
