"""The law of a quadruped on four feet: 18 degrees of freedom, 12 passive rows, 12 motors, 6 task rows."""

import numpy as np

from servoctl.assembly import load
from servoctl.bench import comparison, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.inside import Inside
from servoctl.bench.report import BenchReport, Effort, Progress, TextTable, at_most
from servoctl.bench.robots_case import compiled
from servoctl.bench.timing import shown
from servoctl.config.shipped import find_config
from servoctl.errors import CompileError

CONFIG = "quadruped_stand"
INSIDE, LIMITED, ON_VM = "servoctl C, inside C", "servoctl C, inside C, with limits", "servoctl VM"
LAWS = {INSIDE: ["law.limits="], LIMITED: []}
"""Entry -> changes of the config."""

TOLERANCE = 1e-6
"""Largest difference of u [N m] that counts as equal: states of a run violate the rows by 1e-10, times gains of 100."""

MOST, MOST_COMPILING = 4e-6, 3.0
"""Targets of the law without limits: inside C, and the compiler's processor time [s]."""

WORK = "law of a quadruped, inside C"


def quadruped(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of a standing quadruped, without limits and with them, and the time to compile it.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    run = load(CONFIG, [f"run.duration={0.05 if effort.quick else 1}", "run.output_step=0.005"], "vm").simulate()
    t, x = run.t, np.hstack([run.q, run.v])
    loops = {name: compiled(load(CONFIG, changes, "vm")) for name, changes in LAWS.items()}
    free, notes = loops[INSIDE], peers.notes()
    contest, inputs = Contest(len(t)), free.layout.slices["u"]
    compiling: dict[str, float] = {}
    for name, loop in loops.items():
        try:
            inside = Inside(loop.control_kernel.function, t, x, loop.parameters)
        except CompileError as error:
            notes.append(f"{name} is left out: {error}")
            continue
        contest.enter_inside(name, inside, inputs)
        compiling[name] = inside.compiling
    contest.enter(ON_VM, lambda k: free.control(t[k], x[k])[inputs])
    if peers.installed()["pinocchio"]:
        from servoctl.bench.peers.quadruped import PinocchioQuadruped

        legs = PinocchioQuadruped(
            find_config(CONFIG).parent / "robots" / "quadruped.urdf",
            [name[2:] for name in run.columns if name.startswith("u.")],
        )
        contest.enter(legs.name, lambda k: legs.command(t[k], run.q[k], run.v[k]))
    exact = np.array([free.control(t[k], x[k])[inputs] for k in range(len(t))])
    entries = contest.compare(exact, TOLERANCE, effort.quick, progress)
    findings = comparison.findings(WORK, entries, INSIDE, {"Pinocchio + pinv": None})
    medians = {entry.name: entry.times.median for entry in entries}
    for name, seconds in compiling.items():
        limits = ", with limits" if name == LIMITED else ""
        findings.append(at_most(f"{WORK}{limits}", medians[name], MOST))
        findings.append(at_most(f"{WORK}{limits}: processor time to compile", seconds, MOST_COMPILING))
    notes.append(
        f"{len(t)} states of the shipped run, which reaches no limit; difference of u [N m] from our law on the VM"
    )
    notes.append("Pinocchio gives the terms; the algebra is NumPy, as in a Python program; it has no limits")
    rows = [[name, shown(seconds)] for name, seconds in compiling.items()]
    tables = [
        comparison.table("One evaluation of the law; difference of u [N m]", entries),
        TextTable("Processor time of the compiler", ("", "time"), rows),
    ]
    values = {"rows": comparison.values(entries), "compiling": compiling, "versions": peers.versions()}
    return BenchReport("A quadruped stands on four feet", tables, values, notes, findings)
