"""The clearance of spheres and capsules against bounded least squares and along motions, and shapes in pictures."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import lsq_linear

import servoctl
from hil.view.scene import MachineDrawing
from plants.chain import Chain
from plants.slider_crank import SliderCrank
from servoctl.errors import PlantError, RunFolderError, TaskError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import FADES, SHARE, STRONGEST, Clearance, SweptSphere, axis_distance, link_names
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import Distance, DistanceBound
from servoctl.report import figure
from servoctl.report.drawing import drawing, placed_shapes, shape_picture
from servoctl.report.film import film, images
from servoctl.report.mechanism import outline
from servoctl.report.page import page
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State
from tests.mechanics.free_bodies import FreeBodies

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


ROBOT_FOLDER = Path(__file__).parents[2] / "configs" / "robots"
FORE = SweptSphere((0.0, 0.0, 0.05), (0.02, 0.0, 0.25), 0.06)
ROD = SweptSphere((0.0, 0.0, 0.0), (0.45, 0.0, 0.0), 0.04)
POST = SweptSphere((0.7, 0.3, -0.1), (0.7, 0.3, 0.4), 0.05)


def gap(first: Array, second: Array) -> float:
    """Free distance of two drawn shapes, seven numbers each, by an independent solver."""
    d, e = first[3:6] - first[:3], second[3:6] - second[:3]
    found = lsq_linear(np.column_stack([d, -e]), second[:3] - first[:3], bounds=(0.0, 1.0), tol=1e-14)
    return float(np.linalg.norm(found.fun) - first[6] - second[6])


@pytest.mark.parametrize(
    ("plant", "link", "shape"),
    [(Robot.from_urdf(ROBOT_FOLDER / "arm7.urdf"), "link5", FORE), (Chain(N=3), "arm_1", ROD)],
    ids=["robot", "polyline"],
)
def test_drawn_shapes_are_as_far_apart_as_the_clearance_says(plant: Plant, link: str, shape: SweptSphere) -> None:
    clearance = Clearance(shape, POST, link, None, 0.01)
    n = len(plant.coordinates)
    q = np.random.default_rng(2).uniform(-1.0, 1.0, (4, n))
    drawn = shape_picture(plant, placed_shapes({"post": clearance}), q)
    assert list(drawn) == [f"shape.{link}", "obstacle.post"]
    model = Model(plant, {"post": clearance}, State(0.0, q[0], np.zeros(n)))
    for i, at in enumerate(q):
        h = model.matrices(State(0.0, at, np.zeros(n))).task.violation[0]
        assert gap(drawn[f"shape.{link}"][i], drawn["obstacle.post"]) == pytest.approx(h + 0.01, abs=1e-9)


def test_each_shape_is_there_once_per_bound_and_a_distance_from_a_point_is_a_sphere() -> None:
    bounds = {
        "a": Clearance(ROD, POST, "arm_1", None),
        "b": Clearance(ROD, POST, "arm_1", None, 0.1),
        "c": Distance("tool", (0.1, 0.2, 0.3), 0.4),
        "d": Distance("tool", "base", 0.4),
        "e": DistanceBound("tool", (0, 0, 0), 1.2, most=True),
    }
    assert [(shape.name, shape.link) for shape in placed_shapes(bounds)] == [
        ("arm_1", "arm_1"),
        ("a", None),
        ("b", None),  # the same post again: each bound lights its own up while it holds the inputs
        ("c", None),
        ("e", None),
    ]
    assert placed_shapes(bounds)[3][2:] == ((0.1, 0.2, 0.3), (0.1, 0.2, 0.3), 0.4, False)
    assert placed_shapes(bounds)[4][2:] == ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 1.2, True)
    still = shape_picture(Chain(N=2), placed_shapes(bounds)[1:], np.zeros((1, 2)))
    assert list(still) == ["obstacle.a", "obstacle.b", "obstacle.c", "enclosure.e"]


def test_the_outline_of_a_capsule_is_a_radius_away_from_its_line_from_every_side() -> None:
    R = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    for shape in (np.array([0.1, 0.2, 0.3, 0.9, -0.4, 0.2, 0.15]), np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.15])):
        start, end = R[:2] @ shape[:3], R[:2] @ shape[3:6]
        for corner in outline(shape, R[:2]):
            along = end - start
            s = np.clip(along @ (corner - start) / max(along @ along, 1e-30), 0.0, 1.0)
            assert np.linalg.norm(corner - start - s * along) == pytest.approx(0.15, abs=1e-12)


def run() -> Trajectory:
    """A chain with a rod as its second link, and a post."""
    plant, t = Chain(N=3), np.linspace(0.0, 0.4, 9)
    q = np.array([0.9, 0.1, -0.6]) + np.outer(t, [1.0, -1.0, 0.5])
    v = np.tile([1.0, -1.0, 0.5], (9, 1))
    bounds = {"post": Clearance(ROD, POST, "arm_1", None)}
    drawn = drawing(Model(plant, {}, State(0.0, q[0], v[0]), bounds=bounds), t, q, v)
    columns = {"t": t} | {
        f"{x}.{name}": values[:, i] for x, values in (("q", q), ("v", v)) for i, name in enumerate(plant.coordinates)
    }
    return Trajectory(columns, {}, {"config": "post", "tasks": {}, "status": "completed"}, drawn)


def test_a_run_keeps_its_shapes_and_the_page_the_picture_and_the_film_show_them(tmp_path: Path) -> None:
    whole = run()
    reach = {"enclosure.reach": np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0])}
    folder = save(replace(whole, drawing=whole.drawing | reach), tmp_path / "run")
    kept = load_run(folder)
    assert kept.drawing["shape.arm_1"].shape == (9, 7)
    text = page({"run": folder})
    content = json.loads(re.search(r'id="content"[^>]*>(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    drawn = content["runs"][0]["drawing"]
    assert list(drawn["shapes"]) == ["arm_1"]
    assert drawn["fixed"] == [
        {"inside": False, "bounds": ["post"], "shape": [0.7, 0.3, -0.1, 0.7, 0.3, 0.4, 0.05]},
        {"inside": True, "bounds": ["reach"], "shape": [0, 0, 0, 0, 0, 0, 2]},
    ]
    [axes] = figure(kept, "path").axes
    assert [artist.get_gid() for artist in axes.patches] == [
        "obstacle post",
        "enclosure reach",
        "shape arm_1",
    ]
    assert film(kept, tmp_path / "post.gif").stat().st_size > 5000


def test_a_film_draws_a_bound_strong_while_it_holds_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run()
    active = (whole.t > 0.19).astype(float)
    held = replace(whole, columns=whole.columns | {"bound_active.post": active})
    shown = [0.0, 0.15, 0.3]
    plain, lit = (list(images(each, np.array(shown))) for each in (whole, held))
    assert [bool((a != b).any()) for a, b in zip(plain, lit, strict=True)] == [False, False, True]


def test_a_shape_with_missing_numbers_is_a_damaged_drawing(tmp_path: Path) -> None:
    whole = run()
    short = replace(whole, drawing=whole.drawing | {"shape.arm_1": whole.drawing["shape.arm_1"][:, :6]})
    with pytest.raises(RunFolderError, match=r"shape\.arm_1: unexpected shape"):
        load_run(save(short, tmp_path / "run"))


def test_the_live_page_gets_what_moves_with_each_picture_and_what_stands_still_once() -> None:
    shapes = placed_shapes({"post": Clearance(ROD, POST, "arm_1", None)})
    machine = MachineDrawing(Chain(N=3), (), shapes)
    still = {"inside": False, "bounds": ("post",), "shape": (0.7, 0.3, -0.1, 0.7, 0.3, 0.4, 0.05)}
    assert machine.still["fixed"] == [still]
    [moved] = machine.at(np.zeros(3))["shapes"].values()
    assert moved == pytest.approx([2 / 3, 0, 0, 2 / 3 + 0.45, 0, 0, 0.04], abs=1e-5)
    assert machine.at(np.full(3, np.nan))["shapes"]["arm_1"] == [None] * 6 + [0.04]
