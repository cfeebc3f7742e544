"""The terms of a seven-joint arm from its URDF: mass matrix, bias, and the tool's pose, Jacobian and drift."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.inside import Inside
from servoctl.bench.peers.urdf_arm import MujocoArm, PinocchioArm
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress
from servoctl.config.shipped import find_config
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import BufferedCall, Kernel, inputs
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import CompileError
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.plant import Robot
from servoctl.types import Array

TOOL = "tool"
TOLERANCE = 1e-10
"""Largest difference of a term, relative to the largest one, at which terms count as equal."""

INSIDE, FROM_PYTHON, ON_VM = "servoctl C, inside C", "servoctl C, on its buffers", "servoctl VM, on its buffers"
AIM = 0.3e-6
"""Target inside C [s]."""


@dataclass(frozen=True)
class ArmStates:
    """States at which the terms are evaluated.

    Attributes:
        q: Angles, shape (count, 7) [rad].
        v: Rates, shape (count, 7) [rad/s].
    """

    q: Array
    v: Array


def arm_file() -> Path:
    """The URDF of the shipped arm with seven joints."""
    return find_config("coordinated_robots").parent / "robots" / "arm7.urdf"


def terms(robot: Robot, q: Array, v: Array) -> Array:
    """M, bias, rotation, position, Jacobian and drift of the tool in one vector, on numbers or symbols."""
    bodies = robot.body_moments()
    tool = robot.frame_motions([TOOL], q, v)[TOOL]
    parts = [
        dynamics.mass_matrix(robot.tree, bodies, q), dynamics.bias(robot.tree, bodies, robot.gravity, q, v),
        tool.rotation, tool.position, tool.linear, tool.angular, tool.drift, tool.angular_drift,
    ]  # fmt: skip
    return np.concatenate([np.asarray(part).ravel() for part in parts])


def terms_kernel(robot: Robot) -> Kernel:
    """`terms` as a compiled function of (t, x, p), where x is q and v, and p the parameters."""
    n, values = len(robot.coordinates), parameter_values(robot)
    symbols = inputs({"t": (1,), "x": (2 * n,), "p": (len(values),)})
    x = symbols["x"]
    return Kernel.compile("terms", symbols, {"terms": terms(with_parameters(robot, symbols["p"]), x[:n], x[n:])})


def robots_from_files(effort: Effort, progress: Progress) -> BenchReport:
    """Terms of a seven-joint arm from its URDF: mass matrix, bias, pose, Jacobian and drift of the tool.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    path = arm_file()
    robot = Robot.from_urdf(path)
    random = np.random.default_rng(0)
    states = ArmStates(*random.uniform(-2.0, 2.0, (2, 20 if effort.quick else 500, len(robot.coordinates))))
    notes = peers.notes()
    kernel = terms_kernel(robot)
    contest = Contest(len(states.q))
    _enter_ours(contest, robot, states, kernel, notes)
    _enter_peers(contest, path, states)
    exact = np.array([terms(robot, q, v) for q, v in zip(states.q, states.v, strict=True)])
    entries = contest.compare(exact, TOLERANCE, effort.quick, progress, float(np.abs(exact).max()))
    count = kernel.function.n_instructions() - kernel.function.nnz_in() - kernel.function.nnz_out()
    notes += [
        f"{count} operations on numbers; all masses, centres, inertias and gravity are inputs",
        "difference: from our recursions in Python, relative to the largest term",
        "MuJoCo evaluates mass matrix and bias, and nothing of the tool",
    ]
    work = "terms of a seven-joint arm"
    ours = {entry.name: entry for entry in entries}.get(INSIDE)
    findings = [] if ours is None else [Comparison(work, "target", ours.times.median, AIM, 1.0)]
    findings += comparison.findings(work, entries, FROM_PYTHON, {PinocchioArm.name: None, MujocoArm.name: None})
    return BenchReport(
        "A seven-joint arm from its URDF",
        [comparison.table("M, bias, and the tool's pose, Jacobian and drift; difference relative", entries)],
        {"rows": comparison.values(entries), "operations": count, "versions": peers.versions()},
        notes,
        findings,
    )


def _enter_ours(contest: Contest, robot: Robot, states: ArmStates, kernel: Kernel, notes: list[str]) -> None:
    x, p = np.hstack([states.q, states.v]), parameter_values(robot)

    def enter(name: str, engine: Kernel) -> None:
        call = BufferedCall(engine)
        call.inputs["p"][:] = p

        def at(k: int) -> Array:
            call.inputs["x"][:] = x[k]
            call.evaluate()
            return call.outputs["terms"]

        contest.enter(name, at)

    try:
        contest.enter_inside(INSIDE, Inside(kernel.function, np.zeros(len(x)), x, p))
        compiled = Kernel(kernel.function, kernel.inputs, kernel.outputs)
        compiled.run_on(Program([kernel.function]).load())
        enter(FROM_PYTHON, compiled)
    except CompileError as error:
        notes.append(f"engine C is left out: {error}")
    enter(ON_VM, kernel)


def _enter_peers(contest: Contest, path: Path, states: ArmStates) -> None:
    installed = peers.installed()
    arms: list[Any] = [PinocchioArm(path, TOOL)] if installed["pinocchio"] else []
    arms += [MujocoArm(path)] if installed["mujoco"] else []
    for arm in arms:
        contest.enter(
            arm.name,
            lambda k, arm=arm: arm(states.q[k], states.v[k]),  # type: ignore[misc]
            lambda k, arm=arm: arm.full(states.q[k], states.v[k]),  # type: ignore[misc]
        )
