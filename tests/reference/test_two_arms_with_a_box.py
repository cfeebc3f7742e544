"""Two arms with a box, from a config, against a saddle-point solution and inverse kinematics that share no code.

The kinematics here multiply the rotations that the URDF writes; the saddle point is one linear system in NumPy.
"""

import tempfile
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import root

import servoctl as sc
from servoctl.check.report import check
from servoctl.types import Array

FOLDER = Path(__file__).parents[2] / "configs" / "robots"
SPREAD = 0.5
"""Distance of each arm's base from the plane between them [m]."""

CONFIG = """\
plant:
  robots:
    left:  {{urdf: {arm}, at: {{xyz: [0, 0.5, 0]}}}}
    right: {{urdf: {arm}, at: {{xyz: [0, -0.5, 0]}}}}
  bodies: {{box: {{m: 5, size: [0.3, 0.4, 0.2], on: left_tool, at: {{xyz: [0, 0, 0.2], rpy: [-90*deg, 0, 0]}}}}}}
  frames: {{right_grip: {{on: right_tool, at: {{xyz: [0, 0, 0.2], rpy: [90*deg, 0, 0]}}}}}}
  loops:  {{grip: {{weld: [box, right_grip]}}}}
initial:
  q: {{left_joint1: -0.17, left_joint2: 0.14, left_joint3: -0.26, left_joint4: -2.11, left_joint5: -1.82,
      left_joint6: 1.92, left_joint7: 0.73, right_joint1: 0.17, right_joint2: 0.14, right_joint3: 0.26,
      right_joint4: -2.11, right_joint5: 1.82, right_joint6: 1.92, right_joint7: -0.73}}
  solve: {{box: {{xyz: [0.5, 0, 0.4], rpy: [0, 0, 0]}}}}
task:
  - {{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}}
law: {{correction: {{baumgarte: {{alpha: 10, beta: 10}}}}}}
run: {{duration: 1, integrator: {{step: 0.001}}}}
"""
ELBOWS = "task: [{name: box, pose: box, xyz: [0.5, 0, '0.4 + 0.1*(1 - cos(t))'], rpy: [0, 0, 0]}, "


@cache
def run(*overrides: str) -> sc.Run:
    """The config's run."""
    folder = Path(tempfile.mkdtemp(prefix="servoctl-two-arms-"))
    (folder / "two.yaml").write_text(CONFIG.format(arm=FOLDER / "arm7.urdf"))
    return sc.load(folder / "two.yaml", list(overrides), engine="vm")


def rotation(roll: float, pitch: float, yaw: float) -> Array:
    """Rz(yaw) Ry(pitch) Rx(roll)."""
    (a, b, c), (d, e, f) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    Rx = np.array([[1, 0, 0], [0, a, -d], [0, d, a]])
    Ry = np.array([[b, 0, e], [0, 1, 0], [-e, 0, b]])
    return np.array([[c, -f, 0], [f, c, 0], [0, 0, 1]]) @ Ry @ Rx


def placed(xyz: list[float], rpy: list[float]) -> Array:
    """The matrix of a place, shape (4, 4)."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = rotation(*rpy), xyz
    return T


@cache
def joints() -> list[tuple[Array, bool]]:
    """Place of each joint of the arm in the link before it, and whether it turns about z."""
    found = []
    for joint in ElementTree.parse(FOLDER / "arm7.urdf").getroot().findall("joint"):
        origin = joint.find("origin")
        assert origin is not None
        xyz, rpy = ([float(x) for x in (origin.get(key) or "0 0 0").split()] for key in ("xyz", "rpy"))
        found.append((placed(xyz, rpy), joint.get("type") == "revolute"))
    return found


def tool(q: Array, y: float) -> Array:
    """The tool of an arm whose base is at y, shape (4, 4)."""
    T, angles = placed([0, y, 0], [0, 0, 0]), iter(q)
    for place, turns in joints():
        T = T @ place @ (placed([0, 0, 0], [0, 0, next(angles)]) if turns else np.eye(4))
    return T


def box_errors(q: Array, z: float) -> Array:
    """Both hands' ideas of the box against its pose: 12 numbers that are 0 where both arms hold it."""
    wanted = placed([0.5, 0, z], [0, 0, 0])
    left = tool(q[:7], SPREAD) @ placed([0, 0, 0.2], [-np.pi / 2, 0, 0])
    right = tool(q[7:], -SPREAD) @ placed([0, 0, 0.2], [np.pi / 2, 0, 0])
    errors = []
    for T in (left, right):
        R = wanted[:3, :3].T @ T[:3, :3]
        errors += [*(T[:3, 3] - wanted[:3, 3]), R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]
    return np.array(errors)


def test_one_second_ends_where_inverse_kinematics_says() -> None:
    start = run().start.q
    elbows = f"{{name: elbows, posture: {{left_joint3: {float(start[2])!r}, right_joint3: {float(start[9])!r}}}}}]"
    arms = run(ELBOWS.replace("task: ", "task=") + elbows)
    assert np.abs(box_errors(arms.start.q, 0.4)).max() < 1e-9
    end = arms.simulate().q[-1]
    held = [2, 9]

    def errors(q: Array) -> Array:
        return np.concatenate([box_errors(q, 0.4 + 0.1 * (1 - np.cos(1.0))), q[held] - start[held]])

    exact = root(errors, end + 0.01, tol=1e-13)
    assert np.abs(errors(exact.x)).max() < 1e-12
    assert np.abs(end - exact.x).max() < 1e-8


def test_check_names_the_two_motions_that_nothing_damps() -> None:
    report = check(run())
    (found,) = [warning for warning in report.warnings if "motions are determined" in warning]
    assert found.startswith(
        "12 of 14 motions are determined; 2 are free and the smallest torques do not damp them (add a task"
    )
    for remedy in ("`posture: initial` with priority: 2", "law.secondary.damping", "law.allocation: constraint_force"):
        assert remedy in found
    assert report.values["motions"] == {"total": 14, "held": 12, "free": 2, "damped": False}
