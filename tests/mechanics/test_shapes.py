"""The clearance of spheres and capsules: against a bounded least squares, and along motions through its kinks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_bodies import FreeBodies
from scipy.optimize import lsq_linear

import servoctl
from plants.chain import Chain
from plants.slider_crank import SliderCrank
from servoctl.errors import PlantError, TaskError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import FADES, SHARE, STRONGEST, Clearance, SweptSphere, axis_distance, link_names
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array, State

RNG = np.random.default_rng(3)


def true_distance(p: Array, d: Array, q: Array, e: Array) -> float:
    """Least |p + s d - q - t e| over the unit square, by an independent solver."""
    found = lsq_linear(np.column_stack([d, -e]), q - p, bounds=(0.0, 1.0), tol=1e-14)
    return float(np.linalg.norm(found.fun))


def distance(p: Array, d: Array, q: Array, e: Array, reach: float) -> float:
    return float(axis_distance(p, d, float(np.linalg.norm(d)), q, e, float(np.linalg.norm(e)), reach))


def random_segments() -> tuple[Array, Array, Array, Array, float]:
    """Two segments, and the squared sine of their angle; every second pair is nearly parallel."""
    p, d, q, e = RNG.normal(size=(4, 3))
    if RNG.random() < 0.5:
        e = d * RNG.normal() + 0.1 * RNG.random() * RNG.normal(size=3)
    cosine = d @ e / np.linalg.norm(d) / np.linalg.norm(e)
    return p, d, q, e, 1.0 - cosine**2


def test_the_distance_is_the_true_one_and_between_nearly_parallel_segments_at_most_a_percent_smaller() -> None:
    exact = near = 0
    for _ in range(250):
        p, d, q, e, sine_squared = random_segments()
        true = true_distance(p, d, q, e)
        value = distance(p, d, q, e, true)  # reach is the distance itself: there the promise holds
        assert true - SHARE * true * 1.01 <= value <= true + 1e-9
        mu = min(8 * SHARE * true**2 / (d @ d + e @ e), STRONGEST)
        if sine_squared > FADES * mu:
            exact += 1
            assert value == pytest.approx(true, abs=1e-9)
        else:
            near += 1
    assert min(exact, near) > 30


def test_spheres_and_capsules_have_exact_distances() -> None:
    for _ in range(100):
        p, d, q, e, _ = random_segments()
        point = np.zeros(3)
        assert distance(p, d, q, point, 0.1) == pytest.approx(true_distance(p, d, q, point), rel=1e-9)
        assert distance(p, point, q, e, 0.1) == pytest.approx(true_distance(p, point, q, e), rel=1e-9)
        assert distance(p, point, q, point, 0.1) == pytest.approx(float(np.linalg.norm(p - q)), rel=1e-12)


def test_segments_of_one_line_and_crossing_segments_have_a_finite_distance() -> None:
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    apart = distance(np.zeros(3), x, np.array([1.5, 0.0, 0.0]), x, 0.5)
    assert apart == pytest.approx(0.5, abs=1e-12)  # end to end: exact, though parallel
    crossing = distance(-0.5 * x, x, -0.5 * y, y, 0.2)
    assert crossing == pytest.approx(0.01, abs=1e-12)  # half of a tenth of 0.2: far inside all the same
    overlapping = distance(np.zeros(3), x, 0.5 * x, x, 0.2)
    assert np.isfinite(overlapping) and overlapping < 0.02


BODIES = FreeBodies()
LONG = SweptSphere((-0.2, 0.0, 0.0), (0.3, 0.0, 0.0), 0.05)
SHORT = SweptSphere((0.0, -0.1, 0.0), (0.0, 0.2, 0.05), 0.03)
BALL = SweptSphere.sphere((0.05, 0.0, -0.02), 0.1)


def motion(n: int, t: float, seed: int) -> tuple[Array, Array, Array]:
    """q, v, a of a smooth known motion."""
    rng = np.random.default_rng(seed)
    offset, amplitude, rate, phase = rng.uniform(0.2, 1.0, (4, n))
    angle = rate * t + 6 * phase
    return (
        offset + amplitude * np.sin(angle),
        amplitude * rate * np.cos(angle),
        -amplitude * rate**2 * np.sin(angle),
    )


def second_rate(rows: Rows, a: Array) -> float:
    return float((rows.A @ a - rows.b)[0])


@pytest.mark.parametrize(
    ("plant", "clearance"),
    [
        (BODIES, Clearance(LONG, SHORT, "one", "two", 0.01)),
        (BODIES, Clearance(LONG, BALL, "one", None, 0.02)),
        (BODIES, Clearance(BALL, SHORT, "one", "two")),
        (Chain(N=3), Clearance(LONG, BALL, "arm_2", None, 0.02)),
        (Chain(N=3), Clearance(SweptSphere.sphere((0, 0, 0), 0.05), LONG, "arm_3", "arm_0")),
        (SliderCrank(), Clearance(LONG, SHORT, "crank", "rod")),
    ],
    ids=["capsules", "capsule and obstacle", "ball and capsule", "polyline", "tip and first link", "bodies"],
)  # fmt: skip
def test_rows_are_the_derivatives_of_the_clearance_along_a_motion(plant: Plant, clearance: Clearance) -> None:
    assert clearance.problems(plant) == []
    n = len(plant.coordinates)
    model = Model(plant, {"apart": clearance}, State(0.0, *motion(n, 0.0, 5)[:2]))

    def at(t: float) -> Rows:
        return model.matrices(State(t, *motion(n, t, 5)[:2])).task

    for t in (0.1, 0.7, 1.9):
        step = 1e-5
        before, here, after = at(t - step), at(t), at(t + step)
        rate = (after.violation - before.violation)[0] / (2 * step)
        assert here.violation_rate[0] == pytest.approx(rate, abs=1e-7)
        bend = (after.violation_rate - before.violation_rate)[0] / (2 * step)
        assert second_rate(here, motion(n, t, 5)[2]) == pytest.approx(bend, rel=1e-5, abs=1e-5)


REST = np.zeros(3)
BAR = SweptSphere((-0.15, 0.0, 0.0), (0.15, 0.0, 0.0), 0.06)


def parallel_at_zero(axis: str, t: float) -> State:
    """Two bars, 0.125 m from axis to axis; the second turns at 1 rad/s and is parallel to the first at t = 0.

    About y its ends come nearer in turn; about z it crosses above the first one.
    """
    q, v = np.zeros(12), np.zeros(12)
    q[8] = 0.125
    i = 6 + 3 + "abc".index({"y": "b", "z": "c"}[axis])
    q[i], v[i] = t, 1.0
    return State(0.0, q, v)


@pytest.mark.parametrize("axis", ["y", "z"])
def test_the_row_stays_continuous_and_on_the_safe_side_while_two_capsules_turn_through_parallel(axis: str) -> None:
    model = Model(BODIES, {"apart": Clearance(BAR, BAR, "one", "two")}, parallel_at_zero(axis, -0.1))
    times = np.arange(-0.06, 0.06, 2e-4)
    rows = [model.matrices(parallel_at_zero(axis, t)).task for t in times]
    h, rate, A = (np.array([getattr(each, name)[0] for each in rows]) for name in ("violation", "violation_rate", "A"))
    bend = np.array([second_rate(each, np.zeros(12)) for each in rows])
    x = np.array([0.3, 0.0, 0.0])
    for t, value in zip(times[::20], h[::20], strict=True):
        turned = 0.3 * np.array([np.cos(t), 0.0, -np.sin(t)] if axis == "y" else [np.cos(t), np.sin(t), 0.0])
        true = true_distance(-x / 2, x, np.array([0.0, 0.0, 0.125]) - turned / 2, turned) - 0.12
        assert true - 0.0013 < value < true + 1e-9
    # the true rate drops by 0.3 m/s when the nearest end changes; here it needs several steps of 0.2 ms for that
    assert np.max(np.abs(np.diff(rate))) < 0.01
    assert np.max(np.abs(np.diff(A, axis=0))) < 0.01
    assert np.max(np.abs(bend)) < 30.0  # length^2 / (4 SHARE reach) = 19 m/s^2 per (rad/s)^2 by the estimate
    if axis == "y":
        assert rate[0] - rate[-1] == pytest.approx(0.3, abs=0.01)
    # value, rate and second rate belong together
    assert np.max(np.abs(np.gradient(h, times)[1:-1] - rate[1:-1])) < 1e-3
    gap = np.abs(np.gradient(rate, times)[1:-1] - bend[1:-1])
    assert np.quantile(gap, 0.98) < 0.2  # the second rate jumps where a nearest point comes to an end


def test_a_law_keeps_two_capsules_apart_while_they_turn_through_parallel_again_and_again() -> None:
    free: dict[str, float] = dict.fromkeys(BODIES.coordinates, 0.0)
    turning: dict[str, Any] = free | {"two_z": 0.11, "two_b": "0.3*sin(3*t)"}  # 0.12 is where they touch when parallel
    run = servoctl.simulate(
        BODIES,
        {"motion": servoctl.Posture(turning)},
        servoctl.ConstraintFollowing(correction=servoctl.Baumgarte(5, 5)),
        q=free | {"two_z": 0.2},
        v={"two_b": 0.9},
        duration=2.2,
        period=0.02,
        step=0.01,
        bounds={"apart": Clearance(BAR, BAR, "one", "two")},
        engine="vm",
    )
    half = np.array([0.15, 0.0, 0.0])
    for q in run.q[::4]:
        ends = [(at - R @ half, 2 * R @ half) for R, at in (BODIES.pose("one", q), BODIES.pose("two", q))]
        assert true_distance(*ends[0], *ends[1]) - 0.12 > -1e-6
    assert run["bound.apart"].min() < 1e-3  # it was held
    assert max(np.abs(run[name]).max() for name in run.columns if name.startswith("u.")) < 6.0


def test_axes_that_cross_give_finite_rows() -> None:
    model = Model(BODIES, {"apart": Clearance(BAR, BAR, "one", "two")}, parallel_at_zero("z", -0.1))
    for offset in (0.0, 1e-12, 1e-6):
        for turn in (0.0, 1e-9, 0.5):
            state = parallel_at_zero("z", turn)
            state.q[8] = offset
            rows = model.matrices(state).task
            assert all(np.isfinite(each).all() for each in (rows.A, rows.b, rows.violation, rows.violation_rate))
            assert -1.06 * 0.12 < rows.violation[0] < -0.9 * 0.12


def test_links_that_are_not_there_are_refused_by_name_with_the_known_ones() -> None:
    chain = Chain(N=2)
    assert link_names(chain) == ["arm_0", "arm_1", "arm_2", "arm"]
    [text] = Clearance(BALL, BALL, "amr_1", None).problems(chain)
    assert text == "there is no link 'amr_1' (links: arm_0, arm_1, arm_2, arm)"
    [text] = Clearance(BALL, BALL, "ground", None).problems(SliderCrank())
    assert text == "there is no link 'ground' (links: crank, rod, slider)"
    [text] = Clearance(BALL, BALL, "three", None).problems(BODIES)
    assert text == "there is no frame 'three' (known: world, one, two)"
    [text] = Clearance(BALL, BALL, "world", None).problems(chain)
    assert "plant.obstacles" in text


def test_shapes_that_never_move_relative_to_each_other_are_refused() -> None:
    [text] = Clearance(BALL, BAR, "arm_1", "arm_1").problems(Chain(N=2))
    assert text.startswith("'arm_1' and 'arm_1' never move relative to each other")
    arm = Robot.from_urdf(Path(__file__).parents[2] / "configs" / "robots" / "arm7.urdf")
    [text] = Clearance(BALL, BAR, "link7", "tool").problems(arm)
    assert text.startswith("'link7' and 'tool' never move relative to each other")
    [text] = Clearance(BALL, BAR, "link0", None).problems(arm)
    assert text.startswith("'link0' and the world never move")
    assert Clearance(BALL, BAR, "link6", "tool").problems(arm) == []
    [text] = Clearance(BALL, BAR, None, None).problems(Chain(N=2))
    assert text.startswith("the world and the world never move")


def test_a_radius_below_zero_and_a_bound_that_nothing_can_violate_are_refused() -> None:
    with pytest.raises(PlantError, match=r"radius: expected at least 0 m, got -0\.1"):
        SweptSphere((0, 0, 0), (1, 0, 0), -0.1)
    point = SweptSphere.sphere((0, 0, 0), 0.0)
    with pytest.raises(TaskError, match="neither shape has a radius"):
        Clearance(point, point, "one", "two")
    assert Clearance(point, point, "one", "two", 0.1).reach == 0.1


@dataclass(frozen=True)
class NoPicture(Chain):
    """A chain whose picture fails."""

    def links(self, q: Array) -> dict[str, Array]:
        raise ValueError("no picture today")


def test_a_plant_whose_links_fail_is_named_with_its_error() -> None:
    [text] = Clearance(BALL, BALL, "arm_1", None).problems(NoPicture(N=2))
    assert text.startswith("NoPicture.links: failed at t = 0 s, theta1=1, theta2=1") and "no picture today" in text
