"""Time of one evaluation of a law: from Python, inside C, and in other programs."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from hil.loop.controller import Controller
from servoctl.bench import comparison, costs, estimation, peers
from servoctl.bench.comparison import Contest
from servoctl.bench.inside import Inside
from servoctl.bench.peers.textbook import TextbookRobots
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.robots_case import States, closed_loop, compiled, in_place, laws, states
from servoctl.bench.timing import shown
from servoctl.errors import CompileError
from servoctl.simulation.compiled import CompiledLoop
from servoctl.types import Array

TOLERANCE = 1e-9
"""Largest difference of u from textbook NumPy [N m] at which commands count as equal."""

INSIDE, FROM_PYTHON = "servoctl C, inside C", "servoctl C, on its buffers"
ON_DRIVES = "servoctl C, as the loop on drives calls it"
LOOP_C, LOOP_VM = "servoctl C, Loop.control", "servoctl VM, Loop.control"
LIMIT = 1.6
"""Target: time of the law inside C over the lower bound from its operations."""

MOST_INSIDE, MOST_FROM_PYTHON = 0.3e-6, 1e-6
"""Targets of the law inside C, and of `Controller.command` [s]."""

WORK = "tick of two robots"


def tick(effort: Effort, progress: Progress) -> BenchReport:
    """One law evaluation of two robots: 5 links, 6 motors, 2 passive and 3 servo rows.

    Args:
        effort: Quick times only a few calls.
        progress: Called with the share of turns that are done.
    """
    where = states(20 if effort.quick else 500)
    loop = compiled(closed_loop())
    count, notes = len(where.t), peers.notes()
    contest = Contest(count)
    try:
        row = in_place(loop, loop.control_kernel, 1, where)
        contest.enter(FROM_PYTHON, lambda k: row(k)[0][:6])
        inside: Inside | None = Inside(loop.control_kernel.function, where.t, where.x, loop.parameters)
    except CompileError as error:
        inside = None
        notes.append(f"engine C is left out: {error}")
    if inside is not None:
        contest.enter_inside(INSIDE, inside, slice(6))
        on = compiled(closed_loop())
        on.run_on(on.program(1).load(), 1)
        controller, n = Controller(on), on.system.model.n
        times_of, positions, rates = where.t.tolist(), list(where.x[:, :n]), list(where.x[:, n : 2 * n])
        contest.enter(ON_DRIVES, lambda k: controller.command(times_of[k], positions[k], rates[k]))
        contest.enter(LOOP_C, _command_of(on, where))
    contest.enter(LOOP_VM, _command_of(loop, where))
    for law in laws(peers.installed()):
        q, v = (law.tree.joint_angles(part) if len(law.tree.bars) else part for part in (where.q, where.v))
        contest.enter(law.name, lambda k, law=law, q=q, v=v: law.command(where.t[k], q[k], v[k]))  # type: ignore[misc]
    exact = np.array([contest.results[TextbookRobots.name](k) for k in range(count)])
    entries = contest.compare(exact, TOLERANCE, effort.quick, progress)
    tables = [comparison.table("One evaluation of the law; difference of u from textbook NumPy [N m]", entries)]
    values: dict[str, Any] = {"rows": comparison.values(entries), "versions": peers.versions()}
    aims = {"Pinocchio + pinv": 60.0, "textbook NumPy": 50.0}
    findings = comparison.findings(f"{WORK}, from Python", entries, FROM_PYTHON, aims)
    findings += comparison.findings(f"{WORK}, inside C", entries, INSIDE, {"textbook NumPy": 200.0})
    by_name = {entry.name: entry.times.median for entry in entries}
    if inside is not None:
        findings.append(at_most(f"{WORK}, by Controller", by_name[ON_DRIVES], MOST_FROM_PYTHON))
        findings.append(
            Comparison(f"{WORK}, by Controller", FROM_PYTHON, by_name[ON_DRIVES], by_name[FROM_PYTHON], 1.0)
        )
        median = by_name[INSIDE]
        floor, least, note = _floor(loop, median)
        tables.append(floor)
        values["floor"] = least
        notes.append(note)
        limit = LIMIT * least["time"]
        findings.append(at_most(f"{WORK}, inside C", median, MOST_INSIDE))
        findings.append(Comparison(f"{WORK}, inside C", f"at most {LIMIT} floors", median, limit, 1.0))
    if inside is not None:
        for part in (estimation.inside_c(where, effort.quick, lambda done: None), estimation.on_drives(effort.quick)):
            tables.append(part[0])
            values.setdefault("estimation", {}).update(part[1])
            findings += part[2]
    notes.append(f"{FROM_PYTHON}: `Library.caller` with fixed arrays for state and command; Loop.control copies both")
    notes.append(f"{ON_DRIVES}: `Controller.command`, which copies the state into fixed arrays and u out of them")
    notes.append("the time to read the clock is subtracted from each call")
    return BenchReport("Tick: the law of two robots that lift an object", tables, values, notes, findings)


def _command_of(loop: CompiledLoop, where: States) -> Callable[[int], Array]:
    t, x, control = where.t.tolist(), where.x, loop.control
    return lambda k: control(t[k], x[k])[:6]


def _floor(loop: CompiledLoop, median: float) -> tuple[TextTable, dict[str, Any], str]:
    """The lower bound for each kind of operation: a table, values, and a note."""
    counted, cost = costs.operations(loop.control_kernel.function), costs.measure()
    least = counted.floor(cost)
    each = asdict(cost)
    rows = [
        [kind, str(number), f"{each[kind] * 1e9:.3g} ns", shown(number * each[kind])]
        for kind, number in asdict(counted).items()
    ]
    rows.append(["all", str(counted.total), "", shown(least)])
    values = {"operations": asdict(counted), "costs": each, "time": least, "ratio": median / least}
    note = (
        f"floor: inside C the median is {median / least:.2f} times the sum of the times of the law's operations, "
        "in scalar code without stalls from the same compiler and flags"
    )
    return TextTable("Floor of one evaluation inside C", ("operations", "number", "each", "time"), rows), values, note
