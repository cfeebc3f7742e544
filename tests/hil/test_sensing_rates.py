"""Speeds from positions, samples that are judged one by one: against what their definitions promise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hil.drives import Sample
from hil.loop import Implausibility
from hil.loop.clock import nanoseconds
from hil.sensing.channels import Channel
from hil.sensing.plausibility import AxisMemory, judge
from hil.sensing.sensing import RateFilter, Track

MS = 1_000_000
T = 0.0025
FILTER = RateFilter(2 * T)


def follow(positions: list[float], period: float = T, filter: RateFilter = FILTER) -> Track:
    track = None
    for k, position in enumerate(positions):
        track = filter.update(track, position, nanoseconds(k * period))
    assert track is not None
    return track


def lag(filter: RateFilter, interval: float) -> float:
    """Delay of the rate under constant acceleration [s], exact."""
    alpha, beta = filter.gains(interval)
    return interval * (2.0 * alpha - beta) / (2.0 * beta)


def rate_bound(filter: RateFilter, resolution: float, interval: float) -> float:
    """Largest error of the rate caused by position errors up to `resolution` [joint unit/s].

    This is the 1-norm of the impulse response of `beta / T z (z - 1) / (z - p)^2`, times the resolution.
    """
    beta, p = filter.gains(interval)[1], math.exp(-2.0 * interval / filter.tau)
    # impulse response k -> p^k (1 - k (1 - p) / p): one change of sign, at k = p / (1 - p)
    k = np.arange(int(40.0 * filter.tau / interval) + 60)
    response = p**k * (1.0 - k * (1.0 - p) / p)
    return beta / interval * float(np.abs(response).sum()) * resolution


def test_a_constant_speed_is_found_without_error() -> None:
    assert follow([3.0 + 0.7 * k * T for k in range(60)]).rate == pytest.approx(0.7, abs=1e-9)


def test_the_speed_lags_by_the_stated_time_under_constant_acceleration() -> None:
    track = follow([5.0 * (k * T) ** 2 / 2 for k in range(100)])
    assert 5.0 * 99 * T - track.rate == pytest.approx(5.0 * lag(FILTER, T), rel=1e-6)
    assert lag(FILTER, T) == pytest.approx(T * (1 / np.tanh(0.5) - 0.5))
    assert lag(RateFilter(0.1), 1e-3) == pytest.approx(0.1 - 1e-3 / 2, rel=1e-3), "the time constant less T/2"


def test_no_position_error_within_the_resolution_exceeds_the_bound_of_the_rate() -> None:
    resolution, bound = 1e-4, rate_bound(FILTER, 1e-4, T)
    random = np.random.default_rng(0)
    # the worst case has the signs of the impulse response, backwards; the first sample sets the position
    impulse = [follow([0.0] * (80 - k) + [1.0] + [0.0] * k).rate for k in range(80)]
    assert follow([0.0, *(resolution * np.sign(impulse[::-1]))]).rate == pytest.approx(bound, rel=1e-6)
    for _ in range(20):
        assert abs(follow(list(resolution * random.uniform(-1.0, 1.0, 60))).rate) < bound


def test_uneven_samples_are_taken_at_their_times() -> None:
    track, random, time = None, np.random.default_rng(1), 0
    for _ in range(100):
        time += int(random.integers(MS, 5 * MS))
        track = FILTER.update(track, 0.4 * time * 1e-9, time)
    assert track is not None and track.rate == pytest.approx(0.4, abs=1e-8)


def test_the_same_sample_changes_nothing() -> None:
    track = follow([0.0, 0.1, 0.2])
    assert FILTER.update(track, 99.0, track.time) is track


CHANNEL = Channel("u1", 1e-4, speed_limit=6.0, turn=2 * math.pi, interval=T)
ALLOWED = 1.5 * 6.0 * T + 3e-4


def sample(position: float, tick: int, velocity: float = 0.0) -> Sample:
    return Sample(position, velocity, math.nan, nanoseconds(tick * T))


def run(positions: list[float], expected: float = math.nan, channel: Channel = CHANNEL) -> list[Implausibility | None]:
    memory, said = AxisMemory(), []
    for k, position in enumerate(positions):
        memory, finding = judge(channel, "rad", memory, sample(position, k), 0.0, expected)
        said.append(finding)
    return said


def test_one_jump_is_left_out_and_two_stop() -> None:
    memory, _ = judge(CHANNEL, "rad", AxisMemory(), sample(1.0, 0), 0.0, math.nan)
    memory, finding = judge(CHANNEL, "rad", memory, sample(1.1, 1), 0.0, math.nan)
    assert finding == Implausibility("u1", "encoder jumped: +0.1 rad in 2.5 ms, at most 0.0228 rad are possible", False)
    assert memory.accepted is not None and memory.accepted.position == 1.0
    after, finding = judge(CHANNEL, "rad", memory, sample(1.001, 2), 0.0, math.nan)
    assert finding is None and after.rejected == 0
    after, finding = judge(CHANNEL, "rad", memory, sample(1.1, 2), 0.0, math.nan)
    assert finding is not None and finding.stops
    assert after.accepted is not None and after.accepted.position == 1.0


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
    step = factor * (1.5 * fastest * T + 3e-4 + 0.005)
    memory, _ = judge(UNLIMITED, "rad", AxisMemory(), sample(0.0, 0), 0.0, math.nan)
    found = judge(UNLIMITED, "rad", memory, sample(step, 1, said), rate, model)[1]
    assert (found is None) == (abs(factor) < 1)


def test_a_gap_does_not_widen_the_largest_jump() -> None:
    memory, _ = judge(CHANNEL, "rad", AxisMemory(), sample(0.0, 0), 0.0, math.nan)
    for tick, position, good in [(5, 1.2 * ALLOWED, False), (5, 2.0 * 4 * T, True)]:
        # at 2 rad/s the joint has gone on over four periods
        found = judge(CHANNEL, "rad", memory, sample(position, tick), 0.0 if not good else 2.0, math.nan)[1]
        assert (found is None) == good


def test_a_wrap_is_called_one() -> None:
    found = run([3.1, 3.1 - 2 * math.pi])[1]
    assert found is not None and found.reason.startswith("encoder wrapped by -1 turn: -6.283 rad in 2.5 ms")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_samples_that_are_not_numbers_are_left_out(bad: float) -> None:
    found = run([0.0, bad, 0.0, bad, bad])
    assert [f is not None and f.stops for f in found] == [False, False, False, False, True]
    assert found[1] is not None and found[1].reason == f"position is not a finite number ({bad})"
    assert judge(CHANNEL, "rad", AxisMemory(), sample(0.0, 0, math.inf), 0.0, 0.0)[1] is not None


def test_the_same_frame_is_not_counted_twice() -> None:
    memory, _ = judge(CHANNEL, "rad", AxisMemory(), sample(1.0, 0), 0.0, math.nan)
    memory, first = judge(CHANNEL, "rad", memory, sample(9.0, 1), 0.0, math.nan)
    again, second = judge(CHANNEL, "rad", memory, sample(9.0, 1), 0.0, math.nan)
    assert first is not None and second is None and again is memory


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
    memory, last = AxisMemory(), None
    for k, position in enumerate(positions):
        memory, finding = judge(CHANNEL, "rad", memory, sample(position, k), 0.0, 0.0)
        now = memory.accepted
        assert finding is not None or (now is not None and now.position == position)
        assert now is None or math.isfinite(now.position)
        if now is not None and last is not None:
            assert abs(now.position - last) <= ALLOWED
        last = None if now is None else now.position
