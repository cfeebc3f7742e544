"""Pictures of robots: poses of frames, axes and paths of a task, in run folders, figures, films and pages."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hil.view.scene import MachineDrawing
from servoctl.errors import RunFolderError
from servoctl.mechanics.spatial.plant import Robot, RobotBuilder
from servoctl.mechanics.spatial.urdf import read_urdf
from servoctl.report import figure
from servoctl.report.drawing import asked_paths, poses, surfaces, task_frames
from servoctl.report.film import film
from servoctl.report.mechanism import FacePainter, Mechanism, MovedSolid
from servoctl.report.page import write
from servoctl.run_folder import load_run, save
from servoctl.run_folder.trajectory import Trajectory
from tests.report_runs import decoded
from tests.spatial.robots import TASK, moving_arms, quadruped, two_arms

MIMIC = """<robot name="hand">
  <link name="palm"/>
  <link name="finger"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>
  <link name="thumb"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>
  <joint name="opening" type="prismatic">
    <parent link="palm"/><child link="finger"/><origin xyz="0 0.1 0" rpy="0.1 0.2 0.3"/><axis xyz="0 3 4"/>
  </joint>
  <joint name="closing" type="revolute">
    <parent link="finger"/><child link="thumb"/><axis xyz="1 2 -2"/>
    <mimic joint="opening" multiplier="-2" offset="0.3"/>
  </joint>
</robot>"""


def hand(folder: Path) -> Robot:
    (folder / "hand.urdf").write_text(MIMIC)
    builder = RobotBuilder()
    builder.add(read_urdf(folder / "hand.urdf"))
    return builder.plant()


@pytest.mark.parametrize("kind", ["two arms", "quadruped", "hand"])
def test_poses_are_those_of_the_kinematics(kind: str, tmp_path: Path) -> None:
    robot = {"two arms": two_arms, "quadruped": quadruped, "hand": lambda: hand(tmp_path)}[kind]()
    chance, names = np.random.default_rng(3), [frame.name for frame in robot.tree.frames]
    q = chance.uniform(-2, 2, (4, len(robot.coordinates)))
    found = poses(robot, names, q)
    for i in range(len(q)):
        motions = robot.frame_motions(names, q[i], np.zeros_like(q[i]))
        for name in names:
            np.testing.assert_allclose(found[name][i, :9].reshape(3, 3), motions[name].rotation, atol=1e-14)
            np.testing.assert_allclose(found[name][i, 9:], motions[name].position, atol=1e-14)


def test_the_path_of_a_task_is_what_its_equations_say() -> None:
    robot, t = two_arms(), np.array([0.0, 0.5, 2.0])
    q = np.random.default_rng(4).uniform(-1, 1, (3, 14))
    paths = asked_paths(robot, TASK, t, q)
    np.testing.assert_allclose(
        paths["task.box"], np.column_stack([0.5 + 0.1 * np.cos(t), 0.1 * np.sin(t), 0.4 + 0 * t]), atol=1e-15
    )
    for i in range(3):
        box = robot.frame_motions(["box"], q[i], np.zeros(14))["box"]
        wanted = box.position + box.rotation @ [0, 0, 0.3 + 0.1 * t[i]]
        np.testing.assert_allclose(paths["task.right_tool"][i], wanted, atol=1e-14)


def test_frames_of_a_task_are_named_once() -> None:
    assert task_frames(TASK) == ["box", "right_tool"]


def damaged(name: str, value: np.ndarray) -> Trajectory:
    run = moving_arms(3)
    return Trajectory(run.columns, run.units, run.metadata, run.drawing | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("faces.box", np.array([[0, 1, 2, 8, 0]])),
        ("faces.box", np.array([[0, 1, 2, -1, 0]])),
        ("faces.box", np.array([[0.0, 1.0, 2.0, 3.0, 0.0]])),
        ("solid.box", np.zeros((8, 2))),
        ("solid.lonely", np.zeros((8, 3))),
        ("pose.box", np.zeros((2, 12))),
        ("axes.box", np.zeros((3, 7))),
    ],
)
def test_a_damaged_surface_is_named(name: str, value: np.ndarray, tmp_path: Path) -> None:
    folder = save(damaged(name, value), tmp_path / "run")
    shape = re.escape(str(value.shape))
    with pytest.raises(RunFolderError, match=rf"drawing\.npz: is damaged: {name}: unexpected shape {shape}"):
        load_run(folder)


def cube() -> MovedSolid:
    drawn = surfaces(two_arms())
    pose = np.array([[1.0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]])
    return MovedSolid(drawn["solid.box"], drawn["faces.box"], pose)


def test_of_a_box_three_faces_are_seen_from_an_angle_and_one_from_the_front() -> None:
    angle = np.radians(30)
    across = np.array([[1.0, 0, 0], [0, np.sin(angle), np.cos(angle)]])
    assert len(FacePainter({"box": cube()}, across).faces(0)[0]) == 2
    assert len(FacePainter({"box": cube()}, np.eye(3)[[0, 2]]).faces(0)[0]) == 1
    azimuth = np.array([[0.8, 0.6, 0], [-0.3, 0.4, np.sqrt(0.75)]])
    assert len(FacePainter({"box": cube()}, azimuth).faces(0)[0]) == 3


def test_what_is_nearer_is_painted_later() -> None:
    near, far = cube(), cube()
    near.pose[0, 9:] = [0.1, -2.0, 0.0]  # towards the viewer, who looks along y
    painter = FacePainter({"near": near, "far": far}, np.eye(3)[[0, 2]])
    polygons, colours = painter.faces(0)
    np.testing.assert_allclose(polygons[:, :, 0].mean(axis=1), [0.0, 0.1], atol=1e-15)
    np.testing.assert_array_equal(colours[0], colours[1])


def test_the_page_holds_the_surfaces_and_their_poses(tmp_path: Path) -> None:
    run = moving_arms()
    text = write([save(run, tmp_path / "run")], tmp_path / "report.html").read_text()
    found = re.search(r'<script[^>]*id="content"[^>]*>(.*?)</script>', text, re.DOTALL)
    numbers = re.search(r'<script[^>]*id="numbers"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found and numbers
    drawn = json.loads(found[1])["runs"][0]["drawing"]
    assert len(drawn["solids"]) == 17 and list(drawn["axes"]) == ["box", "right_tool"]
    box = drawn["solids"]["box"]
    np.testing.assert_array_equal(decoded(box["pose"], numbers[1]), run.drawing["pose.box"].astype("<f4"))
    np.testing.assert_array_equal(decoded(box["faces"], numbers[1]), run.drawing["faces.box"])
    assert list(drawn["traces"]) == list(drawn["task"]) == ["box", "right_tool"]


def test_a_figure_draws_the_last_pose_behind_the_lines() -> None:
    run = moving_arms()
    (axes,) = figure(run, "path").axes
    (collection,) = axes.collections
    last = len(run.t) - 1
    assert len(Mechanism(run).solids) == 17
    assert collection.get_zorder() < min(line.get_zorder() for line in axes.lines)
    assert len(collection.get_paths()) > 500
    np.testing.assert_array_equal(Mechanism(run).solids["box"].pose[-1], run.drawing["pose.box"][last])
    corners = np.concatenate([path.vertices for path in collection.get_paths()])
    (origin,) = [text.xy for text in axes.texts if text.get_text().startswith("each ")]
    assert np.all(origin < corners.min(axis=0))  # the directions stand beside the robot, not in it
    assert not [line for line in axes.lines if line.get_marker() == 6]  # its base stands there: no supports
    assert {line.get_marker() for line in axes.lines if line.get_gid() in ("box", "right_grip")} == {"o"}  # with joints


def test_a_film_of_a_robot_has_one_image_per_frame(tmp_path: Path) -> None:
    from PIL import Image

    with Image.open(film(moving_arms(3), tmp_path / "arms.gif")) as images:
        assert images.n_frames == 50  # type: ignore[attr-defined]
        first = np.asarray(images.convert("RGB"), dtype=int)
        images.seek(49)
        change = np.abs(np.asarray(images.convert("RGB"), dtype=int) - first)
    assert first.min() < 200 and change.max() > 50


def test_the_live_page_gets_plain_numbers() -> None:
    robot = two_arms()
    machine = MachineDrawing(robot, ["right_tool"])
    assert set(machine.still["solids"]) == {*(f"{side}_link{i}" for side in ("left", "right") for i in range(8)), "box"}
    picture = json.loads(json.dumps(machine.at(np.zeros(14))))
    assert picture["poses"]["right_tool"][9:] == [0.088, -0.5, 0.926]
    assert len(picture["poses"]["box"]) == 12 and picture["links"]
    assert json.loads(json.dumps(machine.at(np.full(14, np.nan))))["poses"]["box"][0] is None
