"""Speeds from positions, samples that are judged one by one: against what their definitions promise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hil.loop import Implausibility
from hil.loop.clock import nanoseconds
from hil.sensing.channels import Channel
from tests.hil.one_joint import OneJoint

MS = 1_000_000
T = 0.0025
FREE = Channel("u1", 1e-9, leap=math.inf)
"""A joint that may move as far as it likes."""


def speed_after(positions: list[float], times: list[int] | None = None, tau: float = 2 * T) -> float:
    """Speed of the joint by a filter of the positions alone, which came at these times [ns], or once per period."""
    joint, rate = OneJoint(FREE, filter_time=tau), 0.0
    for k, position in enumerate(positions):
        time = nanoseconds(k * T) if times is None else times[k]
        rate = joint.read(position, time, math.nan).rates[0]
    return rate


def gains(tau: float, interval: float) -> tuple[float, float]:
    """alpha and beta of an observer with a double pole at exp(-2 T / tau)."""
    p = math.exp(-2.0 * interval / tau)
    return 1.0 - p * p, (1.0 - p) ** 2


def lag(tau: float, interval: float) -> float:
    """Delay of the rate under constant acceleration [s], exact."""
    alpha, beta = gains(tau, interval)
    return interval * (2.0 * alpha - beta) / (2.0 * beta)


def rate_bound(tau: float, resolution: float, interval: float) -> float:
    """Largest error of the rate caused by position errors up to `resolution` [joint unit/s].

    This is the 1-norm of the impulse response of `beta / T z (z - 1) / (z - p)^2`, times the resolution.
    """
    beta, p = gains(tau, interval)[1], math.exp(-2.0 * interval / tau)
    # impulse response k -> p^k (1 - k (1 - p) / p): one change of sign, at k = p / (1 - p)
    k = np.arange(int(40.0 * tau / interval) + 60)
    response = p**k * (1.0 - k * (1.0 - p) / p)
    return beta / interval * float(np.abs(response).sum()) * resolution


def test_a_constant_speed_is_found_without_error() -> None:
    assert speed_after([3.0 + 0.7 * k * T for k in range(60)]) == pytest.approx(0.7, abs=1e-9)


def test_the_speed_lags_by_the_stated_time_under_constant_acceleration() -> None:
    rate = speed_after([5.0 * (k * T) ** 2 / 2 for k in range(100)])
    assert 5.0 * 99 * T - rate == pytest.approx(5.0 * lag(2 * T, T), rel=1e-6)
    assert lag(2 * T, T) == pytest.approx(T * (1 / np.tanh(0.5) - 0.5))
    assert lag(0.1, 1e-3) == pytest.approx(0.1 - 1e-3 / 2, rel=1e-3), "the time constant less T/2"


def test_no_position_error_within_the_resolution_exceeds_the_bound_of_the_rate() -> None:
    resolution, bound = 1e-4, rate_bound(2 * T, 1e-4, T)
    random = np.random.default_rng(0)
    # the worst case has the signs of the impulse response, backwards; the first sample sets the position
    impulse = [speed_after([0.0] * (80 - k) + [1.0] + [0.0] * k) for k in range(80)]
    assert speed_after([0.0, *(resolution * np.sign(impulse[::-1]))]) == pytest.approx(bound, rel=1e-6)
    for _ in range(20):
        assert abs(speed_after(list(resolution * random.uniform(-1.0, 1.0, 60)))) < bound


def test_uneven_samples_are_taken_at_their_times() -> None:
    times = np.cumsum(np.random.default_rng(1).integers(MS, 5 * MS, 100)).tolist()
    assert speed_after([0.4 * time * 1e-9 for time in times], times) == pytest.approx(0.4, abs=1e-8)


def test_the_filter_goes_on_from_the_last_speed_that_a_node_has_measured() -> None:
    joint = OneJoint(FREE, filter_time=2 * T)
    joint.read(0.0, 0, 0.7)
    assert joint.read(0.7 * T, nanoseconds(T), math.nan).rates[0] == pytest.approx(0.7, abs=1e-12)


def test_the_same_sample_changes_nothing() -> None:
    joint = OneJoint(FREE, filtered=True)
    for k in range(3):
        before = joint.read(0.1 * k, k * MS).rates
    assert joint.read(99.0, 2 * MS).rates == before


CHANNEL = Channel("u1", 1e-4, speed_limit=6.0, interval=T)
ALLOWED = 1.5 * 6.0 * T + 3e-4


def run(positions: list[float], expected: float = math.nan, channel: Channel = CHANNEL) -> list[Implausibility | None]:
    """What is wrong with samples without a speed, tick by tick."""
    joint = OneJoint(channel, expected)
    return [joint.tick(position, k, math.nan) for k, position in enumerate(positions)]


def test_one_jump_is_left_out_and_two_stop() -> None:
    joint = OneJoint(CHANNEL)
    assert joint.tick(1.0, 0) is None
    jump = Implausibility("u1", "encoder jumped: +0.1 rad in 2.5 ms, at most 0.0228 rad are possible", False)
    assert joint.tick(1.1, 1) == jump
    assert joint.sensing.measurement.positions == [1.0] and joint.sensing.measurement.ages == [T]
    assert joint.tick(1.001, 2) is None
    assert [finding is not None and finding.stops for finding in (joint.tick(1.1, 3), joint.tick(1.1, 4))] == [
        False,
        True,
    ]
    assert joint.sensing.measurement.positions == [1.001]


@pytest.mark.parametrize("factor", [0.999, -0.999, 1.001, -1.001])
def test_the_limit_is_what_the_speed_allows_and_three_steps(factor: float) -> None:
    assert (run([0.0, factor * ALLOWED])[1] is None) == (abs(factor) < 1)


UNLIMITED = replace(CHANNEL, speed_limit=math.inf, leap=0.005)


@pytest.mark.parametrize(
    ("rate", "said", "model"), [(0.0, 0.0, math.nan), (2.0, 0.0, 0.0), (0.0, -3.0, 0.0), (0.0, math.nan, 4.0)]
)
@pytest.mark.parametrize("factor", [0.999, -0.999, 1.001, -1.001])
def test_without_a_speed_limit_the_reported_speed_and_a_leap_bound_the_motion(
    rate: float, said: float, model: float, factor: float
) -> None:
    fastest = max(abs(speed) for speed in (rate, said, model) if not math.isnan(speed))
    joint = OneJoint(replace(CHANNEL, speed_limit=math.inf, leap=0.005), model)
    joint.tick(0.0, 0, rate)
    found = joint.tick(factor * (1.5 * fastest * T + 3e-4 + 0.005), 1, said)
    assert (found is None) == (abs(factor) < 1)


def test_a_gap_does_not_widen_the_largest_jump() -> None:
    for position, rate, good in [(1.2 * ALLOWED, 0.0, False), (2.0 * 4 * T, 2.0, True)]:
        # at 2 rad/s the joint has gone on over four periods
        joint = OneJoint(CHANNEL)
        joint.tick(0.0, 0, rate)
        assert (joint.tick(position, 5, rate) is None) == good


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_samples_that_are_not_numbers_are_left_out(bad: float) -> None:
    found = run([0.0, bad, 0.0, bad, bad])
    assert [f is not None and f.stops for f in found] == [False, False, False, False, True]
    assert found[1] is not None and found[1].reason == f"position is not a finite number ({bad})"
    said = OneJoint(CHANNEL).tick(0.0, 0, math.inf)
    assert said is not None and said.reason == "velocity is not a finite number (inf)"


def test_the_same_frame_is_not_counted_twice() -> None:
    joint = OneJoint(CHANNEL)
    joint.tick(1.0, 0)
    assert joint.tick(9.0, 1) is not None and joint.tick(9.0, 1) is None
    after = joint.tick(9.0, 2)
    assert after is not None and after.stops  # two were rejected, not three


def ticks_until(found: list[Implausibility | None]) -> int | None:
    return next((k for k, finding in enumerate(found) if finding is not None), None)


@pytest.mark.parametrize("expected", [6.0, 0.5, 0.05])
def test_a_stuck_encoder_on_a_moving_joint_is_found_within_a_tenth_of_a_second(expected: float) -> None:
    tick = ticks_until(run([0.3] * 60, expected))
    assert tick is not None and 0.02 <= tick * T <= 0.1
    found = run([0.3] * 60, expected)[tick]
    assert found is not None and found.stops and "encoder stands still at 0.3 rad for" in found.reason


def test_a_joint_at_rest_is_not_stuck() -> None:
    assert ticks_until(run([0.3] * 4000, 0.005)) is None, "the model creeps, static friction holds"
    steps = [1e-4 * (k // 20) for k in range(4000)]
    assert ticks_until(run(steps, 1e-4 / (20 * T))) is None, "a slow joint moves by a step now and then"
    assert ticks_until(run([0.3] * 4000)) is None, "nothing is expected"


def test_an_encoder_coarser_than_its_wire_is_not_stuck_within_its_own_step() -> None:
    """An ODrive whose bits per turn nobody has said: floats on the wire, standing exactly at zero."""
    fine = replace(CHANNEL, resolution=1e-8)
    assert ticks_until(run([0.0] * 400, 1e-4, fine)) is not None
    assert ticks_until(run([0.0] * 400, 1e-4, replace(fine, visible=1e-5))) is None
    assert ticks_until(run([0.0] * 400, 6.0, replace(fine, visible=1e-5))) is not None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
@example([1.7976931348623157e308, -1e292])  # their difference is not finite
def test_accepted_samples_never_move_faster_than_the_joint_can(positions: list[float]) -> None:
    joint, last = OneJoint(CHANNEL, 0.0), None
    for k, position in enumerate(positions):
        finding = joint.tick(position, k)
        measurement = joint.sensing.measurement
        now = measurement.positions[0] if measurement.ages[0] == 0.0 else last
        assert finding is not None or now == position
        assert now is None or math.isfinite(now)
        if now is not None and last is not None:
            assert abs(now - last) <= ALLOWED
        last = now
