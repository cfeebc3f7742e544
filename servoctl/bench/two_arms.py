"""The law of two arms with seven joints each that carry one box: 6 passive rows, 6 task rows, 14 inputs."""

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Effort, Progress
from servoctl.bench.robots_from_files import arm_file
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

CONFIG = "two_arms_box"
POSE_ALONE = [
    "law.preload=",
    "law.limits=",
    'task=[{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}]',
]
"""Changes of the config: the pose of the box with least torques, as peers can do it."""

TOLERANCE = 1e-6
"""Largest difference of u [N m] that counts as equal: states of a run violate the rows by 1e-10, times gains of 100."""

INSIDE, TICK = "servoctl C, inside C", "servoctl C, the tick"
AIM = 25.0
"""How many times faster than Pinocchio with a pseudoinverse."""


def two_arms(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of two arms from URDFs that carry a box.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    run = load(CONFIG, [f"run.duration={0.1 if effort.quick else 1}", "run.output_step=0.005"], "vm").simulate()
    loop = load(CONFIG, POSE_ALONE, "vm").loop
    assert isinstance(loop, CompiledLoop)
    t, x = run.t, np.hstack([run.q, run.v])
    count, notes = len(run.t), peers.notes()
    contest, inputs = Contest(count), loop.layout.slices["u"]
    try:
        contest.enter_inside(INSIDE, Inside(loop.control_kernel.function, t, x, loop.parameters), inputs)
        tick = loop.tick()

        def ticked(k: int) -> Array:
            tick.t[0], tick.q[:], tick.v[:] = t[k], run.q[k], run.v[k]
            tick()
            return tick.u

        contest.enter(TICK, ticked)
    except CompileError as error:
        notes.append(f"engine C is left out: {error}")
    if peers.installed()["pinocchio"]:
        from servoctl.bench.peers.two_arms import PinocchioTwoArms

        arms = PinocchioTwoArms(arm_file())
        contest.enter(arms.name, lambda k: arms.command(t[k], run.q[k], run.v[k]))
    exact = np.array([loop.control(t[k], x[k])[inputs] for k in range(count)])
    entries = contest.compare(exact, TOLERANCE, effort.quick, progress)
    notes.append(f"{count} states of the shipped run; difference of u [N m] from our law on the virtual machine")
    notes.append("Pinocchio gives the terms; the algebra is NumPy, as in a Python program")
    findings = comparison.findings("law of two arms with a box", entries, INSIDE, {"Pinocchio + pinv": AIM})
    return BenchReport(
        "Two arms from URDFs carry a box",
        [comparison.table("One evaluation of the law; difference of u [N m]", entries)],
        {"rows": comparison.values(entries), "versions": peers.versions()},
        notes,
        findings,
    )
