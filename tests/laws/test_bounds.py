"""Bounds h >= 0: they hold at every sample, with an estimator too, and cost nothing where they do not hold."""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import TaskError
from servoctl.estimation.estimator import model_gains
from servoctl.laws.barrier import EstimateErrors, Kind, barrier, decay, stopping
from servoctl.laws.bounds_term import BoundRow, BoundsTerm
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.timing import Timing
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, Status
from tests.laws.bounded_arm import CIRCLE, CLEAR, LAW, LONG_CIRCLE, Arm, LongArm, error, start
from tests.small_plants import Masses

CIRCLE_ONCE = 4.0


def circle(bounds: dict[str, object], **changes: object) -> Trajectory:
    """The run of the arm on its circle."""
    settings: dict[str, object] = {"duration": CIRCLE_ONCE, "period": 0.005, "engine": "vm"}
    return sc.simulate(Arm(), CIRCLE, LAW, **start(), bounds=bounds, **{**settings, **changes})


@pytest.mark.parametrize("period", [0.001, 0.01, 0.05])
def test_ten_thousand_joints_never_pass_their_limits(period: float) -> None:
    random, count = np.random.default_rng(0), 10_000
    q, v, braking = random.uniform(-0.9, 0.9, count), np.zeros(count), random.uniform(1.0, 20.0, count)
    furthest = hardest = 0.0
    for k in range(int(min(400, 4.0 / period))):
        if k % max(1, round(0.3 / period)) == 0:
            wish = random.uniform(-30.0, 30.0, count)
        least = stopping(q + 1.0, v, braking, 15.0, period)
        most = -stopping(1.0 - q, -v, braking, 15.0, period)
        assert (least <= most).all()
        a = np.clip(wish, least, most)
        hardest = max(hardest, (least - braking).max(), (-most - braking).max())
        with np.errstate(all="ignore"):  # where a joint turns around within the period
            turn = np.where((-v / a > 0.0) & (-v / a < period), -v / a, period)
        furthest = max(furthest, np.abs(q + turn * v + turn**2 / 2 * a).max())
        q, v = q + period * v + period**2 / 2 * a, v + period * a
        furthest = max(furthest, np.abs(q).max())
    assert furthest - 1.0 <= 1e-9
    assert hardest <= 0.01  # rounding where position and speed limits meet


@pytest.mark.parametrize(("rate", "stays"), [(1.9, True), (2.1, False)])
def test_samples_stay_inside_while_rate_times_period_is_below_two(rate: float, stays: bool) -> None:
    h, slope, least = 1.0, 0.0, 1.0
    for _ in range(60):
        a = barrier(h, slope, rate, 1.0)
        h, slope = h + slope + a / 2, slope + a
        least = min(least, h)
    assert bool(least >= 0.0) is stays


def wall(kind: Kind, rate: float, period: float) -> BoundsTerm:
    """One bound and one input."""
    timing = Timing.of(period, ("u",))
    return BoundsTerm((BoundRow("wall", "wall", kind, rate),), (), None, timing=timing)


@pytest.mark.parametrize("kind", ["barrier", "decay"])
def test_the_next_sample_meets_its_condition_exactly_while_the_acceleration_falls_steadily(kind: Kind) -> None:
    p, D, h, slope, drift = 12.0, 0.02, 0.3, -0.7, -40.0
    held = wall(kind, p, D)
    change = held.mean_change(np.array([drift * D / 2]), 1.0)[0]
    rows = Rows(np.zeros((1, 1)), np.zeros(1), np.array([h]), np.array([slope]))
    first = held.least(rows)[0] - change  # the row at the beginning of the period, at equality
    if kind == "barrier":  # h'' = first + drift t
        after, rate = h + D * slope + D**2 / 2 * first + D**3 / 6 * drift, slope + D * first + D**2 / 2 * drift
        assert rate + p * after == pytest.approx(np.exp(-2 * p * D) * (slope + p * h), abs=1e-13)
    else:  # h' = first + drift t
        assert h + D * first + D**2 / 2 * drift == pytest.approx(np.exp(-p * D) * h, abs=1e-13)


def test_a_rise_within_the_period_and_the_time_before_the_first_command_are_not_counted_on() -> None:
    held = wall("barrier", 12.0, 0.02)
    assert held.mean_change(np.array([0.4]), 1.0)[0] == 0.0
    assert held.mean_change(np.array([-0.4]), 0.0)[0] == 0.0


def test_a_speed_is_kept_over_the_period_while_the_other_joint_moves() -> None:
    fast = {"a": sc.Holonomic("a - 0.4*sin(4*t)"), "b": sc.Holonomic("b - 1 - 0.8*sin(9*t)")}
    limits = {"a": sc.CoordinateSpeed.of({"a": 0.9}), "b": sc.CoordinateSpeed.of({"b": 4.0})}
    start = {"q": [0.0, 1.0], "v": [0.5, 3.0]}
    run = sc.simulate(Arm(), fast, LAW, **start, duration=1.0, period=0.005, engine="vm", bounds=limits)
    assert run["bound_active.a"].sum() > 100
    # with the acceleration at the beginning of the period for that of the whole period, a passes by 2.4e-3
    assert min(run["bound.a"].min(), run["bound.b"].min()) > -4e-4


def test_an_estimated_speed_is_kept_over_the_period_as_well() -> None:
    """From positions alone, by an estimator that knows nothing of accelerations."""
    fast = {"a": sc.Holonomic("a - 0.4*sin(4*t)"), "b": sc.Holonomic("b - 1 - 0.8*sin(9*t)")}
    limits = {"a": sc.CoordinateSpeed.of({"a": 0.9}), "b": sc.CoordinateSpeed.of({"b": 4.0})}
    how = {"q": [0.0, 1.0], "v": [0.5, 3.0], "duration": 1.2, "period": 0.005, "bounds": limits}
    estimator = sc.Estimator(kind="alpha_beta", noise=1e-7, acceleration=20.0)
    run = sc.simulate(Arm(), fast, LAW, **how, estimation=estimator, engine="vm")
    settled = run.t > 0.15
    error = np.abs(run["estimate.v.a"] - run["v.a"])[settled].max()
    assert run["bound_active.a"].sum() > 50
    # with the acceleration at the beginning of the period for that of the whole period, a passes by 3.4e-3
    assert run["bound.a"][settled].min() > -2.0 * error > -2.6e-3


def test_a_short_period_gives_the_row_of_a_continuous_law() -> None:
    assert barrier(0.3, -0.7, 12.0, 1e-7) == pytest.approx(barrier(0.3, -0.7, 12.0, None), rel=1e-5)


@pytest.mark.parametrize("period", [0.001, 0.005, 0.02, None])
def test_the_end_goes_around_a_disc_on_its_path_and_comes_back(period: float | None) -> None:
    free, kept = circle({}, period=period), circle({"disc": sc.Holonomic(CLEAR)}, period=period)
    assert kept["bound.disc"].min() >= 0.0
    assert error(kept).max() > 0.1  # the path leads through the disc
    assert error(kept)[-1] <= 1.5 * error(free)[-1] + 1e-8
    held = [event for event in kept.metadata["events"] if event["event"] == "bound"]
    assert kept.metadata["status"] == "done"
    assert {event["bound"] for event in held} == {"disc"} and set(held[0]["given_up"]) == {"x", "y"}
    assert kept.summary()["bounds"]["disc"]["violated_time"] == 0.0


def test_a_bound_that_the_null_space_can_meet_costs_the_task_nothing() -> None:
    law = dataclasses.replace(LAW, secondary=sc.Secondary(damping=3.0))

    def run(bounds: dict[str, object]) -> Trajectory:
        how = {"q": [0.7, -1.2, 0.5], "project": True, "duration": 2.0, "period": 0.002, "engine": "vm"}
        return sc.simulate(LongArm(), LONG_CIRCLE, law, bounds=bounds, **how)

    free = run({})
    kept = run({"elbow": sc.Holonomic(f"{free['q.a'].max() - 0.05} - a")})
    assert kept["bound.elbow"].min() >= 0.0
    assert kept["bound_active.elbow"].sum() > 50
    assert error(kept).max() <= 1.1 * error(free).max()
    assert (kept["status"] == 0).all()


def test_bounds_that_do_not_hold_leave_every_command_as_it_was() -> None:
    far = {
        "wall": sc.Holonomic("2 - a"),
        "speed": sc.CoordinateSpeed.of({"a": 50.0}),
        "joints": sc.Bound(sc.CoordinateRange.of({"b": (0.1, 3.0)}), acceleration=50.0),
    }
    free, kept = circle({}, duration=1.0), circle(far, duration=1.0)
    assert np.array_equal(free.u, kept.u)
    assert kept.summary()["bounds"]["wall"]["active_time"] == 0.0


@pytest.mark.parametrize("engine", ["vm", "numpy"])
def test_a_law_that_only_damps_keeps_its_bounds_with_the_torques_next_to_the_damping_ones(engine: str) -> None:
    """Rows that contradict each other from the second tick on, and joints that coast towards a wall."""
    task = {
        "push": sc.SecondOrder(
            lambda q, v, t: np.array([[1.0, 0.0], [1.0, 0.0]]),
            lambda q, v, t: np.array([0.0, sc.where(t > 0.005, 1.0, 0.0)]),
        )
    }
    law = sc.ConstraintFollowing(on_infeasible="damp", input_damping=0.1, limits={"u1": 30.0, "u2": 0.05})
    bounds = {"wall": sc.Holonomic("0.25 - a")}
    how = {"q": [0.0, 1.0], "v": [1.0, 0.0], "duration": 0.6, "period": 0.01}
    run = sc.simulate(Arm(), task, law, **how, bounds=bounds, engine=engine)
    assert (run["status"][1:] == Status.DAMPED.code).all()
    assert run["bound.wall"].min() >= 0.0
    held = run["bound_active.wall"][1:] > 0.5
    assert held.sum() > 20 and (~held).sum() > 10
    u, damping = run.u[1:], -0.1 * run.v[1:]
    damping[:, 1] = np.clip(damping[:, 1], -0.05, 0.05)
    np.testing.assert_allclose(u[~held], damping[~held], rtol=0, atol=1e-12)
    assert np.abs(u[held] - damping[held]).max() > 0.1


def test_a_start_outside_returns_without_going_further_out() -> None:
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(10.0, 10.0))
    within = sc.Bound(sc.CoordinateRange.of({"b": (0.0, 0.9)}), acceleration=5.0)
    outside = sc.simulate(
        Arm(), {"a": sc.Holonomic("a - 0.5")}, law, q=[0.5, 1.0], duration=1.0, period=0.005, engine="vm",
        bounds={"wall": sc.Holonomic("0.3 - a"), "b": within},
    )  # fmt: skip
    assert outside.metadata["status"] == "done"
    assert {e["bound"] for e in outside.metadata["events"] if e["event"] == "outside"} == {"wall", "b"}
    for name in ("wall", "b"):
        h = outside[f"bound.{name}"]
        assert (np.diff(h[h < -1e-6]) > 0.0).all() and h[-1] > -1e-4
    assert outside.summary()["bounds"]["wall"]["violated_time"] > 0.1


def test_a_joint_brakes_with_what_its_motor_gives_and_no_more() -> None:
    law = sc.ConstraintFollowing(correction=LAW.correction, limits={"u1": 4.0, "u2": 4.0})
    task = {"a": sc.Holonomic("a - 1.5*t"), "b": sc.Holonomic("b - 1")}
    run = sc.simulate(
        Arm(), task, law, q=[0.0, 1.0], v=[1.5, 0.0], duration=1.5, period=0.005, engine="vm",
        bounds={"a": sc.CoordinateRange.of({"a": (-2.0, 1.0)})},
    )  # fmt: skip
    assert run["bound.a"].min() > -1e-5
    assert run["q.a"][-1] == pytest.approx(1.0, abs=1e-3)
    assert np.abs(np.diff(run["u.u1"][-40:])).max() < 0.1  # at rest at the limit, without chatter


REFUSED = [
    (
        {"a": sc.Holonomic("x + 9"), "b": "y + 9"},
        "b: expected a constraint, got 'y + 9' (as in servoctl.Holonomic('y + 9'))",
    ),
    ({"wall": sc.Bound(sc.Holonomic("2 - a"), rate=500.0)}, "bounds.wall.rate: 500 1/s times the period of 0.005 s is"),
    ({"wall": sc.Bound(sc.Holonomic("2 - a"), rate=-1.0)}, "bounds.wall.rate: expected a positive number [1/s]"),
    ({"wall": sc.Bound(sc.Holonomic("2 - a"), margin="wide")}, "bounds.wall.margin: expected a margin >= 0"),  # type: ignore[arg-type]
    ({"j": sc.CoordinateRange.of({"c": (0.0, 1.0)})}, "j: there is no coordinate 'c'"),
    ({"j": sc.CoordinateRange.of({"a": (-1.0, 1.0)})}, "bounds.j.a: no acceleration to brake a with"),
    ({"rope": sc.ReactionBound("cable", 0.0)}, "bounds.rope.reaction: there is no mechanism row 'cable'"),
    ({"late": sc.Holonomic("1 - t")}, "bounds.late: no input changes the second derivative of late"),
]


@dataclass(frozen=True)
class Slider(Masses):
    """A mass on a guide along y; a rate says the same, but for 1e-4 of the speed."""

    coordinates = MappingProxyType({"x": "m", "y": "m"})
    actuators = MappingProxyType({"F": "N"})

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[0.0], [1.0]])

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        return {"guide": q[0]}

    def passive_rates(self, q: Array, v: Array, t: float) -> dict[str, Array]:
        return {"again": v[0] + 1e-4 * v[1]}


def test_a_law_counts_mechanism_rows_by_the_rank_tolerance_of_the_call() -> None:
    """The two rows are one at 1e-3, so the force moves the mass: y'' = F / m, and v^2 <= 2 F / m (1 - y)."""
    F, m = 4.0, 2.0
    law = sc.ConstraintFollowing(correction=sc.Baumgarte(20.0, 20.0), limits={"F": F})
    how: dict[str, object] = {"q": [0.0, 0.5], "duration": 1.2, "period": 0.002, "engine": "vm"}
    how |= {"bounds": {"end": sc.CoordinateRange.of({"y": (-1.0, 1.0)})}, "passive_correction": None}
    run = sc.simulate(Slider(m=m), {"y": sc.Holonomic("y - 2")}, law, **how, passive_rank_tolerance=1e-3)
    free = run.t < 0.2
    np.testing.assert_allclose(run["q.y"][free], 0.5 + F / m / 2.0 * run.t[free] ** 2, rtol=1e-6)
    assert 0.99 < run["q.y"].max() < 1.0
    assert (run["v.y"] ** 2 <= 2.0 * F / m * (1.0 - run["q.y"])).all()
    with pytest.raises(TaskError, match=r"no input changes the second derivative of end\.y"):
        sc.simulate(Slider(m=m), {"y": sc.Holonomic("y - 2")}, law, **how)  # at 1e-6 nothing moves


@pytest.mark.parametrize(("bounds", "sentence"), REFUSED)
def test_a_bound_that_cannot_be_held_is_refused_by_name(bounds: dict[str, object], sentence: str) -> None:
    with pytest.raises(TaskError) as caught:
        circle(bounds, duration=0.1)
    assert sentence in str(caught.value)


def test_limits_whose_lower_is_above_the_upper_are_refused() -> None:
    with pytest.raises(TaskError, match=r"a: expected lower < upper, got \[1, -1\]"):
        sc.CoordinateRange.of({"a": (1.0, -1.0)})


PERIOD, CHANGE, NOISE = 2e-3, 60.0, 1e-5


def errors(late: int, noise: float = NOISE) -> tuple[EstimateErrors, Array]:
    gains = model_gains(PERIOD, CHANGE, NOISE)
    K = gains.q, gains.v, gains.d
    return EstimateErrors(PERIOD, late, (K,), (CHANGE,), (noise,)), np.array(K)


def least_h(late: int, changes: Array, readings: Array, kind: str = "barrier", p: float = 15.0) -> float:
    """The least h of a coordinate that a row presses onto its bound at 0, by an estimate that is `late` periods old."""
    A = np.array([[1.0, PERIOD, PERIOD**2 / 2.0], [0.0, 1.0, PERIOD], [0.0, 0.0, 1.0]])
    B, K = np.array([PERIOD**3 / 6.0, PERIOD**2 / 2.0, PERIOD]), errors(0)[1]
    true, estimate, sent = np.zeros(3), np.zeros(3), [0.0] * late
    into, lowest = np.array([PERIOD**2 / 2.0, PERIOD, 0.0]), 0.0
    for change, reading in zip(changes, readings, strict=True):
        estimate = estimate + K * (true[0] + reading - estimate[0])
        seen = estimate
        for u in sent:
            seen = A @ seen + into * u
        wanted = barrier(seen[0], seen[1], p, PERIOD) if kind == "barrier" else decay(seen[1], p, PERIOD)
        u = wanted - seen[2]
        sent.append(u)
        u = sent.pop(0)
        true, estimate = A @ true + into * u + B * change, A @ estimate + into * u
        lowest = min(lowest, true[0] if kind == "barrier" else true[1])
    return float(lowest)


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("kind", ["barrier", "decay"])
def test_no_disturbance_within_its_rate_passes_the_margin(late: int, kind: str) -> None:
    margin = errors(late, 1e-12)[0].margin(kind, 15.0, np.array([[1.0]]))
    random = np.random.default_rng(0)
    steady = -CHANGE * np.ones(800)
    switching = CHANGE * np.where(np.cumsum(random.random(800) < 0.05) % 2, 1.0, -1.0)
    found = [-least_h(late, changes, np.zeros(800), kind) for changes in (steady, switching, -switching)]
    assert max(found) <= margin * (1.0 + 1e-9)
    assert max(found) >= 0.5 * margin  # a steady change of the disturbance comes near


def test_the_noise_of_the_readings_stays_within_three_standard_deviations() -> None:
    margin = EstimateErrors(PERIOD, 1, errors(1)[0].gains, (0.0,), (NOISE,)).margin("barrier", 15.0, np.array([[1.0]]))
    random = np.random.default_rng(1)
    lowest = [least_h(1, np.zeros(600), NOISE * random.standard_normal(600)) for _ in range(20)]
    assert 0.5 * margin < -min(lowest) < 1.5 * margin  # 12,000 samples that hang together reach about three


def test_the_margin_grows_with_the_gradient_and_adds_up_over_coordinates() -> None:
    one, (K,) = errors(0, 1e-12)[0], errors(0)[0].gains
    both = EstimateErrors(PERIOD, 0, (K, K), (CHANGE, CHANGE), (1e-12, 1e-12))
    single = one.margin("barrier", 15.0, np.array([[1.0]]))
    assert one.margin("barrier", 15.0, np.array([[-3.0]])) == pytest.approx(3.0 * single)
    assert both.margin("barrier", 15.0, np.array([[1.0, -2.0]])) == pytest.approx(3.0 * single, rel=1e-6)
