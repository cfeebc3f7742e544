"""Sensing tick by tick: samples of different age, rejected and missing ones, the start pose."""

import math

import numpy as np
import pytest

from hil.drives import Feedback, Sample
from hil.loop.clock import nanoseconds
from hil.sensing.channels import Channel
from hil.sensing.sensing import Sensing
from plants.coordinated_robots import CoordinatedRobots
from servoctl.mechanics.model import Model
from servoctl.types import Array, State
from tests.hil.machines import rate, robots
from tests.hil.samples import Measurement, sense

FINE = 2 * np.pi / 2**16
T = 0.0025
TICK = nanoseconds(T)
SPEED = 15.0
"""Of the motion: joints reach 5.5 rad/s and 109 rad/s^2."""
PLANT = CoordinatedRobots()
B = PLANT.actuation(np.zeros(5), 0.0)


def moved(sample: Sample, by: float) -> Sample:
    return Sample(sample.position + by, sample.velocity, sample.torque, sample.time)


def pose(t: float) -> Array:
    return robots(t, SPEED)


def sensing(feedback: Feedback = Feedback.CYCLIC, **options: float) -> Sensing:
    start = State(0.0, pose(0.0), rate(pose, 0.0))
    channels = [Channel(name, FINE, speed_limit=8.0, interval=T, feedback=feedback) for name in PLANT.actuators]
    made = Sensing(Model(PLANT, {}, start), channels, start, T, engine="vm", **options)
    assert made.coordinates.engine == "vm"
    return made


def measured(i: int, time: int, received: int | None = None, quantum: float = FINE) -> Sample:
    """What drive i measures at a moment [ns]."""
    t = time * 1e-9
    position, velocity = float(B[:, i] @ pose(t)), float(B[:, i] @ rate(pose, t))
    position = quantum * round(position / quantum) if quantum else position
    return Sample(position, velocity, math.nan, time if received is None else received)


def coasted(age: float) -> float:
    """Largest error of a coordinate after samples were carried so far [s]: a t^2 / 2, times |(W H N)^+|_inf = 1.42."""
    return 1.42 * 110.0 * age**2 / 2


def errors(sight: Measurement, now: int) -> tuple[float, float]:
    t = now * 1e-9
    return float(np.abs(sight.estimate.q - pose(t)).max()), float(np.abs(sight.estimate.v - rate(pose, t)).max())


def test_samples_of_different_age_are_brought_to_one_instant() -> None:
    eyes, worst, naive = sensing(), 0.0, 0.0
    for k in range(1, 200):
        now, ages = k * TICK, [150_000 * i for i in range(6)]
        samples = [measured(i, now - age, quantum=0.0) for i, age in enumerate(ages)]
        sight = sense(eyes, 0.0, now, samples)
        assert sight.valid and not sight.findings
        np.testing.assert_allclose(sight.ages, np.array(ages) * 1e-9, atol=1e-12)
        worst = max(worst, errors(sight, now)[0])
        apart = [abs(samples[i].position - B[:, i] @ pose(now * 1e-9)) for i in range(6)]
        naive = max(naive, *apart)
    assert worst < coasted(0.00075) < naive / 50


def test_after_sync_the_moment_of_the_sync_counts_not_when_the_frame_came() -> None:
    eyes, plain = sensing(Feedback.SYNC), sensing(Feedback.CYCLIC)
    worst, late = 0.0, 0.0
    for k in range(1, 100):
        sync, now = k * TICK, k * TICK + 1_000_000
        samples = [measured(i, sync, received=sync + 150_000 * (i + 1), quantum=0.0) for i in range(6)]
        sight = sense(eyes, 0.0, now, samples, sync=sync)
        np.testing.assert_allclose(sight.ages, np.full(6, 1e-3), atol=1e-12)
        worst = max(worst, errors(sight, now)[0])
        late = max(late, errors(sense(plain, 0.0, now, samples), now)[0])
    assert worst < coasted(0.001) < late / 10


def test_a_jump_never_reaches_the_coordinates() -> None:
    eyes, jumped = sensing(), range(50, 52)
    for k in range(1, 60):
        now = k * TICK
        samples = [measured(i, now) for i in range(6)]
        if k in jumped:
            samples[2] = moved(samples[2], 0.5)
        sight = sense(eyes, 0.0, now, samples)
        assert sight.valid and errors(sight, now)[0] < coasted(2 * T) + 2 * FINE, (
            "the last good sample goes on at its speed"
        )
        stops = [(finding.channel, finding.stops) for finding in sight.findings]
        assert stops == ([("u3", k == jumped[-1])] if k in jumped else [])
        assert sight.ages[2] == pytest.approx((k - 49) * T if k in jumped else 0.0, abs=1e-12)


def test_redundant_sensors_find_a_slow_drift() -> None:
    eyes = sensing()
    for k in range(1, 400):
        now, drift = k * TICK, 0.05 * k * T
        samples = [measured(i, now) for i in range(6)]
        samples[4] = moved(samples[4], drift)
        sight = sense(eyes, 0.0, now, samples)
        if sight.findings:
            break
    assert sight.findings[0].channel == "u5"
    assert 2 * FINE < drift < 0.01


def test_a_drive_that_never_reported_is_not_valid() -> None:
    sight = sense(sensing(), 0.0, TICK, [None, *[measured(i, TICK) for i in range(1, 6)]])
    assert not sight.valid
    assert math.isinf(sight.ages[0]) and np.isfinite(sight.ages[1:]).all()
    assert np.isfinite(sight.estimate.q).all()


def test_the_start_pose_is_compared_with_the_measurement() -> None:
    eyes, q = sensing(), pose(0.0)
    samples = [measured(i, 0, quantum=0.0) for i in range(6)]
    assert eyes.check_start(q, samples, [0.01] * 6) == []
    other = moved(samples[1], 0.25)
    given = float(B[:, 1] @ q)
    sentence = (
        f"expected {given:.5g} rad at the start pose, measured {given + 0.25:.5g} rad, difference +0.25 rad, "
        "start_tolerance 0.01 rad"
    )
    assert eyes.check_start(q, [samples[0], other, *samples[2:]], [0.01] * 6) == [("u2", sentence)]
