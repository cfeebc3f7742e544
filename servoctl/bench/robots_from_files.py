"""The terms of a seven-joint arm from its URDF: mass matrix, bias, and the tool's pose, Jacobian and drift."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Competitor
from servoctl.bench.inside import Inside
from servoctl.bench.peers.urdf_arm import MujocoArm, PinocchioArm
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress
from servoctl.bench.timing import Contestant, interleaved, timed
from servoctl.config.shipped import find_config
from servoctl.engine.ccode import Program
from servoctl.engine.kernel import BufferedCall, Kernel, inputs
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import CompileError
from servoctl.mechanics.spatial import dynamics
from servoctl.mechanics.spatial.plant import Robot
from servoctl.run_folder.trajectory import plain
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
    contestants, results = _ours(robot, states, kernel, notes)
    exact = np.array([terms(robot, q, v) for q, v in zip(states.q, states.v, strict=True)])
    _add_peers(path, states, contestants, results)
    times = interleaved(contestants, *((2, 20) if effort.quick else (40, len(states.q))), progress=progress)
    entries = []
    for name in contestants:
        values = np.array([results[name](k) for k in range(len(states.q))])
        difference = np.abs(values - exact[:, : values.shape[1]]).max() / np.abs(exact).max()
        entries.append(Competitor(name, times[name], float(difference), TOLERANCE))
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
        dict(plain({"rows": comparison.values(entries), "operations": count, "versions": peers.versions()})),
        notes,
        findings,
    )


Results = dict[str, Callable[[int], Array]]
"""Contestant -> its terms at a state by index."""


def _ours(robot: Robot, states: ArmStates, kernel: Kernel, notes: list[str]) -> tuple[dict[str, Contestant], Results]:
    x, p, count = np.hstack([states.q, states.v]), parameter_values(robot), len(states.q)
    contestants: dict[str, Contestant] = {}
    results: Results = {}

    def enter(name: str, engine: Kernel) -> None:
        call = BufferedCall(engine)
        call.inputs["p"][:] = p

        def at(k: int) -> Array:
            call.inputs["x"][:] = x[k % count]
            call.evaluate()
            return call.outputs["terms"]

        contestants[name], results[name] = timed(at), lambda k: at(k).copy()

    enter(ON_VM, kernel)
    try:
        inside = Inside(kernel.function, np.zeros(count), x, p)
        contestants[INSIDE], results[INSIDE] = inside, lambda k: inside.results[k]
        compiled = Kernel(kernel.function, kernel.inputs, kernel.outputs)
        compiled.run_on(Program([kernel.function]).load())
        enter(FROM_PYTHON, compiled)
    except CompileError as error:
        notes.append(f"engine C is left out: {error}")
    order = [name for name in (INSIDE, FROM_PYTHON, ON_VM) if name in contestants]
    return {name: contestants[name] for name in order}, results


def _add_peers(path: Path, states: ArmStates, contestants: dict[str, Contestant], results: Results) -> None:
    installed, count = peers.installed(), len(states.q)
    arms: list[Any] = [PinocchioArm(path, TOOL)] if installed["pinocchio"] else []
    arms += [MujocoArm(path)] if installed["mujoco"] else []
    for arm in arms:
        contestants[arm.name] = timed(lambda k, arm=arm: arm(states.q[k % count], states.v[k % count]))  # type: ignore[misc]
        results[arm.name] = lambda k, arm=arm: arm.full(states.q[k], states.v[k])  # type: ignore[misc]
