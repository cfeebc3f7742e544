"""Shapes of bounds in pictures: where they are drawn is where the clearance says that they are."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from hil.view.scene import MachineDrawing
from plants.chain import Chain
from servoctl.errors import RunFolderError
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, SweptSphere
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import Distance, DistanceBound
from servoctl.report import figure
from servoctl.report.bound_shapes import placed_shapes, shape_picture
from servoctl.report.drawing import drawing
from servoctl.report.film import film, images
from servoctl.report.page import page
from servoctl.report.shapes import outline
from servoctl.report.source import RunSource, read
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State

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
    source = read(folder, "run")
    assert isinstance(source, RunSource)
    assert source.trajectory.drawing["shape.arm_1"].shape == (9, 7)
    content = json.loads(re.search(r'id="content"[^>]*>(.*?)</script>', page([source]), re.DOTALL)[1])  # type: ignore[index]
    drawn = content["runs"][0]["drawing"]
    assert list(drawn["shapes"]) == ["arm_1"]
    assert drawn["enclosures"] == [[0, 0, 0, 0, 0, 0, 2]]
    assert drawn["obstacles"] == [[0.7, 0.3, -0.1, 0.7, 0.3, 0.4, 0.05]]
    [axes] = figure(source.trajectory, "path").axes
    assert [artist.get_gid() for artist in axes.patches] == [
        "obstacle post",
        "enclosure reach",
        "shape arm_1",
    ]
    assert film(source.trajectory, tmp_path / "post.gif").stat().st_size > 5000


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
    assert machine.enclosures == []
    assert machine.obstacles == [[0.7, 0.3, -0.1, 0.7, 0.3, 0.4, 0.05]]
    [moved] = machine.at(np.zeros(3))["shapes"].values()
    assert moved == pytest.approx([2 / 3, 0, 0, 2 / 3 + 0.45, 0, 0, 0.04], abs=1e-5)
    assert machine.at(np.full(3, np.nan))["shapes"]["arm_1"] == [None] * 6 + [0.04]
