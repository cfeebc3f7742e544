"""The robots in configs/robots: lengths, masses, limits and inertias, and references that are too fast for them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.check.bound_path import speed_warnings
from servoctl.config.load import find_config
from servoctl.mechanics.spatial.description import Description, LinkDescription, Shape
from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.urdf import read_urdf
from servoctl.types import Array

FOLDER = Path(__file__).parents[2] / "configs" / "robots"
ROBOTS = {path.stem: read_urdf(path) for path in sorted(FOLDER.glob("*.urdf"))}


def frames(robot: Description) -> dict[str, Placement]:
    """Link -> placement in the root's axes at q = 0."""
    placements = {robot.links[0].name: Placement()}
    for joint in robot.joints:
        placements[joint.child] = placements[joint.parent].then(joint.placement)
    return placements


def volume_and_inertia(shape: Shape) -> tuple[float, Array]:
    """Volume and inertia about the centre at density 1, in axes of the shape."""
    if shape.kind == "box":
        x, y, z = shape.size
        return x * y * z, x * y * z / 12 * np.diag([y**2 + z**2, x**2 + z**2, x**2 + y**2])
    if shape.kind == "cylinder":
        r, length = shape.size
        volume = np.pi * r**2 * length
        return volume, volume * np.diag([(3 * r**2 + length**2) / 12] * 2 + [r**2 / 2])
    (r,) = shape.size
    volume = 4 / 3 * np.pi * r**3
    return volume, volume * 0.4 * r**2 * np.eye(3)


def of_uniform_density(link: LinkDescription) -> tuple[Array, Array]:
    """Centre of mass and inertia about it of a link whose shapes have one density."""
    assert link.inertial is not None
    volumes = np.array([volume_and_inertia(shape)[0] for shape in link.shapes])
    centres = np.array([shape.placement.p for shape in link.shapes])
    centre = volumes @ centres / volumes.sum()
    total = np.zeros((3, 3))
    for shape, volume, d in zip(link.shapes, volumes, centres - centre, strict=True):
        R = shape.placement.R
        total += R @ volume_and_inertia(shape)[1] @ R.T + volume * (d @ d * np.eye(3) - np.outer(d, d))
    return centre, link.inertial.m / volumes.sum() * total


def test_the_robots_are_there() -> None:
    assert list(ROBOTS) == ["arm6", "arm7", "planar_base", "quadruped"]


@pytest.mark.parametrize("name", ROBOTS)
def test_a_shipped_robot_has_no_notes_states_its_licence_and_limits_every_joint(name: str) -> None:
    robot = ROBOTS[name]
    assert (robot.name, robot.notes) == (name, ())
    assert "BSD-3-Clause" in (FOLDER / f"{name}.urdf").read_text()
    for joint in robot.joints:
        if joint.kind != "fixed":
            assert joint.effort is not None and joint.velocity is not None
            assert joint.kind == "continuous" or (joint.lower is not None and joint.upper is not None)


@pytest.mark.parametrize(
    ("name", "count", "mass"),
    [("arm6", 6, 21.0), ("arm7", 7, 19.1), ("planar_base", 7, 52.0), ("quadruped", 12, 21.04)],
)
def test_a_shipped_robot_has_these_joints_and_this_mass(name: str, count: int, mass: float) -> None:
    robot = ROBOTS[name]
    assert sum(joint.kind != "fixed" for joint in robot.joints) == count
    assert sum(link.inertial.m for link in robot.links if link.inertial) == pytest.approx(mass, abs=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_inertias_are_those_of_the_drawn_shapes(name: str) -> None:
    for link in ROBOTS[name].links:
        if link.inertial is not None:
            centre, total = of_uniform_density(link)
            xx, yy, zz, xy, xz, yz = link.inertial.I
            inertia = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
            # the files have seven digits
            np.testing.assert_allclose(link.inertial.com, centre, atol=1e-7)
            np.testing.assert_allclose(inertia, total, atol=1e-6 * np.trace(total))


def test_the_flange_of_the_seven_joint_arm_is_where_its_lengths_say() -> None:
    tool = frames(ROBOTS["arm7"])["tool"]
    np.testing.assert_allclose(tool.p, [0.088, 0, 0.333 + 0.316 + 0.384 - 0.107], atol=1e-15)
    assert tool.rotation == ((1, 0, 0), (0, -1, 0), (0, 0, -1))


def test_the_flange_of_the_six_joint_arm_is_where_its_lengths_say() -> None:
    tool = frames(ROBOTS["arm6"])["tool"]
    height, offset = 0.0892 + 0.425 + 0.3922 + 0.0946, 0.1358 - 0.1197 + 0.093 + 0.0823
    np.testing.assert_allclose(tool.p, [0, offset, height], atol=1e-15)
    assert [row[2] for row in tool.rotation] == [0, 1, 0]


def test_the_feet_of_the_quadruped_are_mirrored() -> None:
    at = frames(ROBOTS["quadruped"])
    for leg, x, y in (("LF", 1, 1), ("RF", 1, -1), ("LH", -1, 1), ("RH", -1, -1)):
        np.testing.assert_allclose(at[f"{leg}_foot"].p, [0.23 * x, 0.155 * y, -0.44], atol=1e-15)


def test_the_arm_of_the_mobile_base_stands_on_it() -> None:
    np.testing.assert_allclose(frames(ROBOTS["planar_base"])["tool"].p, [0.15, 0, 0.26 + 0.14 + 0.35 + 0.3 + 0.13])


SLIDES = """<robot name="slides">
  <link name="base"/>
  <link name="cart"><inertial><mass value="2"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tool"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="along" type="prismatic"><parent link="base"/><child link="cart"/><axis xyz="1 0 0"/>
    <limit lower="-9" upper="9" effort="100" velocity="0.5"/></joint>
  <joint name="up" type="prismatic"><parent link="cart"/><child link="tool"/><axis xyz="0 0 1"/>
    <limit lower="-9" upper="9" effort="100" velocity="2"/></joint>
</robot>
"""
CONFIG = """plant: {robot: {urdf: slides.urdf}}
references:
  path: {waypoints: [{t: 0, x: 0, z: 0}, {t: 1, x: 1, z: 1}], profile: quintic}
initial: {}
task: [{name: path, holonomic: "along - path_x"}, {name: height, holonomic: "up - path_z"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}}
run: {duration: 1}
"""


def test_a_reference_that_is_too_fast_names_joint_speed_time_and_limit(tmp_path: Path) -> None:
    (tmp_path / "slides.urdf").write_text(SLIDES)
    (tmp_path / "c.yaml").write_text(CONFIG)
    # the quintic profile is fastest in the middle, at 15/8 of the mean speed
    (found,) = speed_warnings(sc.load(tmp_path / "c.yaml", engine="vm"))
    assert str(found) == (
        "task: moves along at 1.875 at t = 0.5 s or faster, its speed limit is 0.5 (slow the reference down)"
    )


@pytest.mark.parametrize(("factor", "fast"), [(1.0, False), (0.1, True)])
def test_a_tool_path_is_compared_joint_by_joint(tmp_path: Path, factor: float, fast: bool) -> None:
    source = find_config("arm_path").parent
    shutil.copytree(source / "robots", tmp_path / "robots")
    (tmp_path / "references").mkdir()
    lines = (source / "references/figure_eight.csv").read_text().splitlines()
    table = np.array([[float(x) for x in line.split(",")] for line in lines[1:]])
    table[:, 0] *= factor
    rows = [",".join(map(repr, row)) for row in table.tolist()]
    (tmp_path / "references/figure_eight.csv").write_text("\n".join([lines[0], *rows]))
    text = (source / "arm_path.yaml").read_text().replace("duration: 6", f"duration: {6 * factor}")
    (tmp_path / "arm.yaml").write_text(text)
    findings = speed_warnings(sc.load(tmp_path / "arm.yaml", ["run.integrator.step=0.001"], engine="vm"))
    assert bool(findings) is fast
    assert all(str(found).startswith("task: moves joint") for found in findings)


def test_a_machine_without_references_is_not_looked_at() -> None:
    assert speed_warnings(sc.load("two_mass_spring", engine="vm")) == []
