"""The law of two arms with seven joints each that carry one box: 6 passive rows, 6 task rows, 14 inputs."""

import tempfile
import time
from pathlib import Path

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.fresh import ProcessCost, cost
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.robots_from_files import arm_file
from servoctl.bench.timing import shown
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

CONFIG = "two_arms_box"
WORK = "law of two arms with a box"
POSE_ALONE = [
    "law.preload=",
    "law.limits=",
    'task=[{name: box, pose: box, xyz: [0.5, 0, "0.4 + 0.1*(1 - cos(t))"], rpy: [0, 0, 0]}]',
]
"""Changes of the config: the pose of the box with least torques, as peers can do it."""

TOLERANCE = 1e-6
"""Largest difference of u [N m] that counts as equal: states of a run violate the rows by 1e-10, times gains of 100."""

INSIDE, TICK = "servoctl C, inside C", "servoctl C, the tick"
AIM = 45.0
"""How many times faster than Pinocchio with a pseudoinverse."""

MOST, MOST_COMPILING = 2.5e-6, 2.0
"""Targets inside C, and of the compiler's processor time [s]."""

FIRST, WHOLE, AGAIN = "first rows of a run, nothing cached", "servoctl run, nothing cached", "servoctl run, again"
PROCESSES = {FIRST: 3.0, WHOLE: None, AGAIN: 1.5}
"""Fresh process -> target of its wall time [s]; None: no target."""

LONGEST_COMPILATION = 120.0
"""Longest wait for a compiler that outlives its run [s]."""

FIRST_ROWS = """
import os
from servoctl.assembly import load
run = load({config!r})
run.prepare(wait=False)
run.simulate(progress=lambda share: os._exit(0))
"""
"""What `servoctl run` does up to the first rows, at which it ends; what then waits to be written is left out."""


def two_arms(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of two arms from URDFs that carry a box.

    Args:
        effort: Quick times only a few calls, and no process that compiles.
        progress: Called with the share of turns that are done.
    """
    run = load(CONFIG, [f"run.duration={0.1 if effort.quick else 1}", "run.output_step=0.005"], "vm").simulate()
    loop = load(CONFIG, POSE_ALONE, "vm").loop
    assert isinstance(loop, CompiledLoop)
    t, x = run.t, np.hstack([run.q, run.v])
    count, notes = len(run.t), peers.notes()
    compiling: float | None = None
    contest, inputs = Contest(count), loop.layout.slices["u"]
    try:
        inside = Inside(loop.control_kernel.function, t, x, loop.parameters)
        contest.enter_inside(INSIDE, inside, inputs)
        compiling = inside.compiling
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
    findings = comparison.findings(WORK, entries, INSIDE, {"Pinocchio + pinv": AIM})
    rows = []
    if compiling is not None:
        median = next(entry.times.median for entry in entries if entry.name == INSIDE)
        findings.append(at_most(f"{WORK}, inside C", median, MOST))
        findings.append(at_most(f"{WORK}: processor time to compile", compiling, MOST_COMPILING))
        rows.append(["the law alone, compiled to C", "-", shown(compiling)])
    spent = _processes(effort.quick)
    rows += [[name, shown(each.wall), shown(each.processor)] for name, each in spent.items()]
    findings += _limits(spent)
    notes.append(f"{FIRST}: a process that does what `servoctl run {CONFIG}` does, and ends at its first rows")
    processes = {name: {"wall": each.wall, "processor": each.processor} for name, each in spent.items()}
    return BenchReport(
        "Two arms from URDFs carry a box",
        [
            comparison.table("One evaluation of the law; difference of u [N m]", entries),
            TextTable("Until it runs: fresh processes from start to end", ("", "wall", "processor"), rows),
        ],
        {
            "rows": comparison.values(entries),
            "compiling": compiling,
            "processes": processes,
            "versions": peers.versions(),
        },
        notes,
        findings,
    )


def _processes(quick: bool) -> dict[str, ProcessCost]:
    """Cost of the processes of `PROCESSES`, each with its cache; quick takes only the one that compiles nothing."""
    command = ["-m", "servoctl", "run", CONFIG]
    with tempfile.TemporaryDirectory(prefix="servoctl-") as folder:
        first, whole = Path(folder) / "first", Path(folder) / "whole"
        cost(["-c", "import servoctl.assembly, servoctl.cli.run"], first)  # the files that installation makes
        spent = {FIRST: cost(["-c", FIRST_ROWS.format(config=CONFIG)], first)}
        if quick:
            return spent
        spent[WHOLE] = cost(command, whole, finish=True)
        end = time.monotonic() + LONGEST_COMPILATION
        while any(whole.glob("*-lock.tmp")) and time.monotonic() < end:  # the compiler works on
            time.sleep(0.1)
        return spent | {AGAIN: cost(command, whole)}


def _limits(spent: dict[str, ProcessCost]) -> list[Comparison]:
    """Wall times beside their targets."""
    return [
        at_most(f"two arms with a box: {name}", spent[name].wall, limit)
        for name, limit in PROCESSES.items()
        if limit is not None and name in spent
    ]
