"""`check` compares the joint speeds that a reference needs with the limits of the robot's file."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.check.bound_path import speed_warnings
from servoctl.config.load import find_config

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
