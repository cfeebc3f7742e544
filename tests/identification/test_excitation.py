"""Motions for the identification: they keep limits, start and end at rest, and excite what they promise."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import servoctl as sc
from servoctl.errors import ConfigError
from servoctl.identification.excitation import MARGIN, excite
from servoctl.identification.files import save_excitation

FOLDER = Path(__file__).parent

CONFIG = """
plant: {class: "arm.py:Arm"}
initial: {q: {q1: 0.3, q2: 0.5}, v: 0}
task: [{name: a, holonomic: "q1 - 0.3"}]
law: {correction: {baumgarte: {alpha: 10, beta: 10}}, limits: {u1: 60, u2: 15}}
run: {duration: 1, period: 0.001, integrator: {method: rk4, step: 0.001}}
"""


def test_an_excitation_keeps_the_limits_in_a_run_and_identifies_everything(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "arm.py", tmp_path)
    (tmp_path / "arm.yaml").write_text(CONFIG)
    run = sc.load(tmp_path / "arm.yaml", engine="numpy")
    found = excite(run, duration=4.0)
    assert found.coordinates == ("q1", "q2")
    assert found.parameters == 8
    assert found.share <= MARGIN
    assert np.allclose(found.q[[0, -1]], [0.3, 0.5], atol=1e-12)  # from the start and back
    assert np.abs(np.diff(found.q[[0, 1, -2, -1]], axis=0)[[0, 2]]).max() < 1e-4  # at rest at both ends
    (tmp_path / "made").mkdir()
    save_excitation(run, found, tmp_path / "made")
    changes = ["realism.parameter_error.m1=0.2", "realism.friction.coulomb.u1=0.5"]
    moved = sc.load(tmp_path / "made/excite.yaml", changes).simulate(tmp_path / "log")
    assert np.abs(moved.u).max(axis=0)[0] <= 60.0
    result = sc.identify(tmp_path / "log")
    assert abs(result.values["m1"] / 2.4 - 1.0) < 1e-3
    assert abs(result.values["friction.coulomb.u1"] / 0.5 - 1.0) < 1e-2
    assert result.unidentifiable == []


def test_a_log_of_an_exact_machine_gives_its_parameters_back_without_a_period(tmp_path: Path) -> None:
    # the accelerations of the log must be those of its motion: at knots too, where a cubic spline has jerks
    shutil.copy(FOLDER / "arm.py", tmp_path)
    (tmp_path / "arm.yaml").write_text(CONFIG.replace("period: 0.001, ", ""))
    run = sc.load(tmp_path / "arm.yaml", engine="numpy")
    (tmp_path / "made").mkdir()
    save_excitation(run, excite(run, duration=4.0), tmp_path / "made")
    sc.load(tmp_path / "made/excite.yaml").simulate(tmp_path / "log")
    result = sc.identify(tmp_path / "log")
    assert abs(result.values["m1"] / 2.0 - 1.0) < 1e-6


def test_limits_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    joint = (
        '<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{0}"/><axis xyz="0 0 1"/>'
        '<limit lower="0" upper="1" velocity="5" effort="10"/>{2}</joint>'
    )
    inertial = '<inertial><mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.01"/></inertial>'
    (tmp_path / "r.urdf").write_text(
        f'<robot name="r"><link name="base"/><link name="j">{inertial}</link><link name="k">{inertial}</link>'
        + joint.format("j", "base", "") + joint.format("k", "j", '<mimic joint="j" offset="5"/>') + "</robot>"
    )  # fmt: skip
    (tmp_path / "r.yaml").write_text(
        "plant: {robot: {urdf: r.urdf}}\ninitial: {q: {j: 0.5}}\nlaw: none\nrun: {duration: 1}\n"
    )
    with pytest.raises(ConfigError, match="j has no room: its limits want at least 0 and at most -4 "):
        excite(sc.load(tmp_path / "r.yaml", engine="vm"), duration=2.0)
