"""Speeds from positions, samples judged one by one and brought to one instant, the start pose, predictions and statics.

Against definitions and closed forms.
"""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.linalg import null_space

import servoctl as sc
from hil.core.constants import Found
from hil.drives import Feedback, Sample
from hil.loop import Implausibility
from hil.loop.clock import nanoseconds
from hil.sensing.channels import Channel
from hil.sensing.motion import GravityCompensation, Prediction, falls_without_torque, task_errors
from hil.sensing.sensing import FINDINGS, Sensing
from plants.chain import Chain
from plants.coordinated_robots import CoordinatedRobots
from plants.parallelogram import Parallelogram
from plants.scara import Scara
from plants.two_mass_spring import TwoMassSpring
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State
from tests.hil.machines import parallelogram, rate, robots
from tests.hil.one_joint import OneJoint
from tests.hil.samples import Measurement, measured, sense
from tests.multipliers import multiplier_equation

T = 0.0025
FREE = Channel("u1", 1e-9, leap=math.inf)
"""A joint that may move as far as it likes."""


def speed_after(positions: list[float]) -> float:
    """Speed of the joint by a filter of the positions alone, one a period, whose poles are at exp(-1)."""
    joint, rate = OneJoint(FREE, filter_time=2 * T), 0.0
    for k, position in enumerate(positions):
        rate = joint.read(position, nanoseconds(k * T), math.nan).rates[0]
    return rate


def test_a_constant_speed_is_found_without_error() -> None:
    assert speed_after([3.0 + 0.7 * k * T for k in range(60)]) == pytest.approx(0.7, abs=1e-9)


def test_the_speed_lags_by_the_stated_time_under_constant_acceleration() -> None:
    rate = speed_after([5.0 * (k * T) ** 2 / 2 for k in range(100)])
    assert 5.0 * 99 * T - rate == pytest.approx(5.0 * T * (1 / np.tanh(0.5) - 0.5), rel=1e-6)


CHANNEL = Channel("u1", 1e-4, speed_limit=6.0)
ALLOWED = 1.5 * 6.0 * T + 3e-4


def run(positions: list[float], expected: float = math.nan) -> list[Implausibility | None]:
    """What is wrong with samples without a speed, tick by tick."""
    joint = OneJoint(CHANNEL, expected)
    return [joint.tick(position, k, math.nan) for k, position in enumerate(positions)]


def test_one_jump_is_left_out_and_two_stop() -> None:
    joint = OneJoint(CHANNEL)
    assert joint.tick(1.0, 0) is None
    reason = "encoder jumped: +0.1 m in 2.5 ms, at most 0.0228 m are possible"
    jump = Implausibility("u1", reason, False, FINDINGS[Found.JUMP])
    assert joint.tick(1.1, 1) == jump
    assert measured(joint.sensing).positions == [1.0] and measured(joint.sensing).ages == [T]
    assert joint.tick(1.001, 2) is None
    first, second = joint.tick(1.1, 3), joint.tick(1.1, 4)
    assert first is not None and not first.stops and second is not None and second.stops
    assert measured(joint.sensing).positions == [1.001]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_samples_that_are_not_numbers_are_left_out(bad: float) -> None:
    found = run([0.0, bad, 0.0, bad, bad])
    assert [f is not None and f.stops for f in found] == [False, False, False, False, True]
    assert found[1] is not None and found[1].reason == f"position is not a finite number ({bad})"
    said = OneJoint(CHANNEL).tick(0.0, 0, math.inf)
    assert said is not None and said.reason == "velocity is not a finite number (inf)"


@pytest.mark.parametrize("expected", [6.0, 0.5, 0.05])
def test_a_stuck_encoder_on_a_moving_joint_is_found_within_a_tenth_of_a_second(expected: float) -> None:
    tick, found = next((k, found) for k, found in enumerate(run([0.3] * 60, expected)) if found is not None)
    assert 0.02 <= tick * T <= 0.1
    assert found.stops and "encoder stands still at 0.3 m for" in found.reason


def test_a_joint_at_rest_is_not_stuck_though_the_model_creeps_and_static_friction_holds() -> None:
    assert run([0.3] * 4000, 0.009) == [None] * 4000  # ten steps in more than 0.1 s


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
@example([1.7976931348623157e308, -1e292])  # their difference is not finite
def test_accepted_samples_never_move_faster_than_the_joint_can(positions: list[float]) -> None:
    joint, last = OneJoint(CHANNEL, 0.0), None
    for k, position in enumerate(positions):
        finding = joint.tick(position, k)
        measurement = measured(joint.sensing)
        now = measurement.positions[0] if measurement.ages[0] == 0.0 else last
        assert finding is not None or now == position
        assert now is None or math.isfinite(now)
        if now is not None and last is not None:
            assert abs(now - last) <= ALLOWED
        last = now


def model_of(plant: Plant, q: Array) -> Model:
    return Model(plant, {}, State(0.0, q, np.zeros(len(q))))


def ahead(t: float, x: Array, u: Array) -> Array:
    """The robots after a time, by Lagrange's multipliers and an adaptive method."""
    plant = CoordinatedRobots()

    def change(_: float, x: Array) -> Array:
        q, v = x[:5], x[5:]
        A = np.array([-np.sin(q), np.cos(q)])
        b = np.array([np.cos(q) @ v**2, np.sin(q) @ v**2])
        Q = plant.force(q, v, 0.0) + plant.actuation(q, 0.0) @ u
        return np.concatenate([v, multiplier_equation(plant.mass_matrix(q, 0.0), Q, A, b)])

    return np.asarray(solve_ivp(change, (0.0, t), x, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1])


U = np.array([30.0, 5.0, -4.0, 2.0, 10.0, 20.0])


@pytest.mark.parametrize("engine", ["vm", "c", "numpy"])
def test_the_prediction_is_short_of_the_motion_by_the_fifth_order_of_the_delay(engine: str) -> None:
    predict = Prediction(model_of(CoordinatedRobots(), robots(0.1)), engine=engine)
    assert predict.engine == engine
    q, v = robots(0.1), rate(robots, 0.1)
    left, without, times = [], [], [0.04, 0.02, 0.01]
    for h in times:
        true = ahead(h, np.concatenate([q, v]), U)
        left.append(np.abs(np.concatenate(predict(0.0, h, q, v, U)) - true).max())
        without.append(np.abs(np.concatenate([q, v]) - true).max())
    slope, slope_without = (np.polyfit(np.log(times), np.log(error), 1)[0] for error in (left, without))
    assert slope == pytest.approx(5.0, abs=0.4)
    assert slope_without == pytest.approx(1.0, abs=0.2)
    assert left[-1] < 1e-4 * without[-1]


def test_an_opaque_plant_is_predicted_in_numpy() -> None:
    @dataclasses.dataclass(frozen=True)
    class Opaque(TwoMassSpring):
        def force(self, q: Array, v: Array, t: float) -> Array:
            return super().force(np.array([float(x) for x in q]), v, t)

    plant, q, v = Opaque(), np.array([0.0, 0.6]), np.array([1.0, -1.0])
    predict = Prediction(model_of(plant, q))
    assert predict.engine == "vm"
    expected = Prediction(model_of(TwoMassSpring(), q), engine="vm")(0.0, 0.01, q, v, np.ones(1))
    np.testing.assert_allclose(predict(0.0, 0.01, q, v, np.ones(1)), expected, atol=1e-14)


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_the_smallest_torques_that_hold_two_robots(engine: str) -> None:
    plant, q = CoordinatedRobots(), robots(0.3)
    hold = GravityCompensation(model_of(plant, q), engine=engine)(0.0, q)
    free = null_space(np.array([-np.sin(q), np.cos(q)]))
    B, Q = plant.actuation(q, 0.0), plant.force(q, np.zeros(5), 0.0)
    np.testing.assert_allclose(hold.u, -np.linalg.pinv(free.T @ B) @ free.T @ Q, atol=1e-9)
    assert hold.holds
    assert falls_without_torque(model_of(plant, q), 0.0, q).falls


def test_one_motor_holds_the_parallelogram_under_dependent_rows() -> None:
    plant, theta = Parallelogram(motor=2), 0.7
    q = parallelogram(theta)
    hold = GravityCompensation(model_of(plant, q), engine="vm")(0.0, q)
    np.testing.assert_allclose(hold.u, [(3 / 2 + 2.0) * 9.81 * np.cos(theta)], atol=1e-9)
    assert hold.holds


def test_a_coordinate_without_a_motor_moves_although_motors_act() -> None:
    plant = TwoMassSpring()
    stretched, relaxed = np.array([0.0, 0.8]), np.array([0.0, 0.5])
    hold = GravityCompensation(model_of(plant, stretched), engine="vm")(0.0, stretched)
    # k s = 3 N: F = -3 N holds the driven mass, the other one starts back
    np.testing.assert_allclose(hold.u, [-3.0], atol=1e-12)
    np.testing.assert_allclose(hold.acceleration, [0.0, -1.5], atol=1e-12)
    assert not hold.holds
    assert not falls_without_torque(model_of(plant, relaxed), 0.0, relaxed).falls


def test_how_a_rod_falls() -> None:
    fall = falls_without_torque(model_of(Chain(N=1), np.array([0.4])), 0.0, np.array([0.4]))
    assert fall.falls and fall.coordinate == "theta1"
    assert fall.acceleration == pytest.approx(1.5 * 9.81 / 2.0 * np.cos(0.4))
    upright = falls_without_torque(model_of(Chain(N=1), np.array([np.pi / 2])), 0.0, np.array([np.pi / 2]))
    assert not upright.falls


def test_the_errors_of_each_task_row_at_a_state() -> None:
    run = sc.load("coordinated_robots")
    q = run.start.q + np.array([0.0, 0.0, 0.03, 0.0, 0.0])
    state = State(0.0, q, np.array([0.0, 0.0, 0.5, 0.0, 0.0]))
    errors = task_errors(run.system.model, state)
    assert list(errors) == ["object_x", "object_y", "level"]
    assert errors["level"] == pytest.approx((0.03, 0.5))
    assert errors["object_y"] == pytest.approx((np.sin(0.03) / 2, 0.25 * np.cos(0.03)))
    assert np.nanmax(np.abs(list(task_errors(run.system.model, run.start).values()))) < 0.02


def test_brakes_hold_the_axes_that_they_are_on() -> None:
    q = np.array([0.3, -0.9, 0.6, 0.0])
    model = model_of(Scara(), q)
    assert falls_without_torque(model, 0.0, q) == pytest.approx((True, 9.81, "q4"))
    assert falls_without_torque(model, 0.0, q, braked=[0, 1, 2]).falls
    assert falls_without_torque(model, 0.0, q, braked=[3]).acceleration < 1e-12


FINE = 2 * np.pi / 2**16
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
    channels = [Channel(name, FINE, speed_limit=8.0, feedback=feedback) for name in PLANT.actuators]
    made = Sensing(Model(PLANT, {}, start), channels, start, T, engine="vm", **options)
    assert made.coordinates.engine == "vm"
    return made


def sample_of(i: int, time: int, received: int | None = None, quantum: float = FINE) -> Sample:
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
        samples = [sample_of(i, now - age, quantum=0.0) for i, age in enumerate(ages)]
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
        samples = [sample_of(i, sync, received=sync + 150_000 * (i + 1), quantum=0.0) for i in range(6)]
        sight = sense(eyes, 0.0, now, samples, sync=sync)
        np.testing.assert_allclose(sight.ages, np.full(6, 1e-3), atol=1e-12)
        worst = max(worst, errors(sight, now)[0])
        late = max(late, errors(sense(plain, 0.0, now, samples), now)[0])
    assert worst < coasted(0.001) < late / 10


def test_a_jump_never_reaches_the_coordinates() -> None:
    eyes, jumped = sensing(), range(50, 52)
    for k in range(1, 60):
        now = k * TICK
        samples = [sample_of(i, now) for i in range(6)]
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
        samples = [sample_of(i, now) for i in range(6)]
        samples[4] = moved(samples[4], drift)
        sight = sense(eyes, 0.0, now, samples)
        if sight.findings:
            break
    assert sight.findings[0].channel == "u5"
    assert 2 * FINE < drift < 0.01


def test_a_drive_that_never_reported_is_not_valid() -> None:
    sight = sense(sensing(), 0.0, TICK, [None, *[sample_of(i, TICK) for i in range(1, 6)]])
    assert not sight.valid
    assert math.isinf(sight.ages[0]) and np.isfinite(sight.ages[1:]).all()
    assert np.isfinite(sight.estimate.q).all()


def test_the_start_pose_is_compared_with_the_measurement() -> None:
    eyes, q = sensing(), pose(0.0)
    samples = [sample_of(i, 0, quantum=0.0) for i in range(6)]
    assert eyes.check_start(q, samples, [0.01] * 6) == []
    other = moved(samples[1], 0.25)
    given = float(B[:, 1] @ q)
    sentence = (
        f"expected {given:.5g} rad at the start pose, measured {given + 0.25:.5g} rad, difference +0.25 rad, "
        "start_tolerance 0.01 rad"
    )
    assert eyes.check_start(q, [samples[0], other, *samples[2:]], [0.01] * 6) == [("u2", sentence)]
