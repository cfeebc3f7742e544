"""The report of `servoctl check`: model, constraints, controllability, gains, internal dynamics and start of a run."""

import timeit
from collections.abc import Iterator
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.diagnosis import fast_motion, of_internal, of_task
from servoctl.assembly.gains import (
    drives_gains,
    drives_spacing,
    has_unknown_gains,
    passive_gains,
    task_gains,
    task_spacing,
)
from servoctl.assembly.realism import facts, in_words
from servoctl.check.bound_path import speed_warnings
from servoctl.check.bounds import bound_section
from servoctl.check.estimation import estimation_section, observer_section
from servoctl.check.model import (
    hierarchy_section,
    passive_section,
    plant_section,
    reach_section,
    robot_section,
    task_section,
)
from servoctl.check.recommend import Recommendation, recommend
from servoctl.check.sections import SHOWN, CheckReport, Section, shortened, together
from servoctl.check.uncertainty import robust_section, uncertainty_section
from servoctl.errors import Finding, Severity, TaskError, counted
from servoctl.expression import per_second
from servoctl.laws.user_code import AttachedOwnTerm
from servoctl.linear.reserve import HeldLoop, held_loops
from servoctl.mechanics.constraint_rows import accelerations
from servoctl.mechanics.initial import consistency
from servoctl.reference.curve import STILL, abrupt, peak_rate
from servoctl.run_folder.metrics import without_round_off
from servoctl.simulation.internal_dynamics import poles_text
from servoctl.types import Status

AWAY = 1e-6  # [units of the row] violation at the start above which a reference starts away from the machine


def _references(run: Run) -> Iterator[Section]:
    """The span of each reference, value and largest rate of each column."""
    if not run.signals:
        return
    lines, values = [], dict[str, Any]()
    for name in dict.fromkeys(signal.reference for signal in run.signals.values()):
        columns = [signal for signal in run.signals.values() if signal.reference == name]
        curve = columns[0].curve
        beyond = {"hold": "then held", "periodic": "then repeated", "error": "no values beyond"}[curve.extrapolate]
        smooth = f"{counted(curve.smoothness, 'continuous derivative')}"
        lines.append(f"{name}: from t = {curve.start:g} to {curve.end:g} s, {beyond}; {smooth}")
        values[name] = {"start": curve.start, "end": curve.end, "extrapolate": curve.extrapolate, "columns": {}}
        for signal in columns:
            peak, first = peak_rate(signal), float(signal(run.start.t))
            fastest = f"fastest {peak.rate:.4g} per s at t = {peak.t:.4g} s"
            lines.append(f"  {signal.name}: {first:.6g} at the start, {fastest}")
            values[name]["columns"][signal.column] = {"at_start": first, "peak_rate": peak.rate, "peak_time": peak.t}
    findings = [*_reference_warnings(run), *speed_warnings(run)]
    yield Section("references", "references", shortened(lines), values, findings)


def _reference_warnings(run: Run) -> list[Finding]:
    """Warnings about references that start away from the machine, begin or end with a velocity, or jump by a turn."""
    findings = []
    at, units = consistency(run.system.model, run.start), run.system.model.row_units[1]
    for row, violation, rate in at.each():
        constraint = run.system.model.task.get(row.group)
        names = [] if constraint is None else list(constraint.signals)
        unit = units.get(row.name, "")
        if names and abs(violation) > AWAY:
            off = f"{violation:.4g} {unit}".rstrip()
            away = f"starts {off} away from its reference ({', '.join(names)})"
            findings.append(Finding(f"task.{row.name}", f"{away}; move initial.q, or set initial.project: true"))
        elif names and abs(rate) > max(AWAY, *(STILL * peak_rate(run.signals[name]).rate for name in names)):
            off = f"{rate:.4g} {per_second(unit)}".rstrip()
            away = f"starts with a rate {off} away from that of its reference ({', '.join(names)})"
            findings.append(Finding(f"task.{row.name}", f"{away}; set initial.v"))
    used = {name for constraint in run.system.model.task.values() for name in constraint.signals}
    sentences = abrupt(run.signals, used, run.start.t)
    findings += [Finding(f"references.{reference}", sentence) for reference, sentence in sentences]
    return findings


def _funnels(run: Run) -> Iterator[Section]:
    law = run.system.following
    if law is None or law.funnel is None:
        return
    term, lines, values = law.funnel, [], {}
    model, timing = run.system.model, term.timing
    task, asked = model.matrices(run.start).task, accelerations(model.task_rows, model.row_units[1])
    for i, beta, of in zip(term.members, term.beta(task), term.funnels, strict=True):
        begins = float(of.width(run.start.t))
        facts: dict[str, Any] = {"beta": float(beta), "start": begins, "end": of.end, "slope": of.slope}
        facts["edge"] = float(of.edge)
        widths = f"half-width {begins:.4g} at the start, then {of.end:.4g}"
        parts = [
            f"{of.label}: |beta| = {abs(beta):.4g} at the start, {widths}",
            f"gain {of.kappa:.4g} 1/s in the middle, {of.slope:.4g} 1/s from {of.edge:.1%} of the half-width on",
        ]
        # the proof is of samples whose held correction does not overshoot, from a violation that fits the funnel
        near = not of.rate or abs(task.violation[i]) <= of.start / of.rate
        tolerated = of.tolerated(timing)
        near = near and abs(beta) + of.until_first_command(tolerated, timing.lateness) <= begins
        if of.slope * (timing.period or 0.0) <= 1.0 and near:
            facts["tolerated"] = tolerated
            parts.append(
                f"|beta| stays inside at every sample while the model misses at most {facts['tolerated']:.4g} of the "
                f"row's acceleration{f' [{unit}]' if (unit := asked.get(of.label)) else ''}"
            )
            if of.rate:
                facts["violation"] = of.end / of.rate
                parts.append(f"|error| then ends at no more than {of.end / of.rate:.4g}")
        else:
            parts.append("nothing is guaranteed: the slope is too large for the period, or the start too near the edge")
        lines.append("; ".join(parts))
        values[of.label] = facts
    yield Section("funnels", "funnels", shortened(lines), values)


@np.errstate(all="ignore")  # numbers that are not finite are reported by name
def check(run: Run) -> CheckReport:
    """Checks a run without simulating it.

    Args:
        run: A run, loaded with `strict=False` so that its problems are reported with the rest.
    """
    report = CheckReport(findings=list(run.findings))
    for part in PARTS:
        for section in part(run):
            report.add(section)
    return report


def _realism(run: Run) -> Iterator[Section]:
    values = None if run.loaded is None else run.loaded.config.realism
    if values is not None and run.system.realism is not None:
        yield Section("realism", "realism", in_words(run.system, values), facts(run.system, values))


def _gains(run: Run) -> Iterator[Section]:
    settings = run.settings
    task = list(task_gains(run.system, task_spacing(run.system, settings)))
    passive = list(passive_gains(run.system, settings))
    if not task and not passive:
        return
    if run.system.passive.projection and passive and not any(gain.feedback.corrects for gain in passive):
        lines = ["mechanism constraints: projected at the end of each step (plant.passive.projection)"]
    else:
        lines = shortened(together([gain.line for gain in passive]))
    lines += shortened(together([gain.line for gain in task]))
    names = {"mechanism constraints": passive, "task": task}
    lines += [f"{name}: {gains[0].spacing}" for name, gains in names.items() if gains]
    yield Section("corrections", "gains", lines, {gain.name: gain for gain in task})
    yield Section(key="passive_gains", values={gain.row.name: gain for gain in passive})
    yield _recommended("recommended corrections", "recommended", recommend(run))
    spacing = drives_spacing(run.hil, run.system.model.plant)
    if run.loaded is None or spacing is None or not task:
        return
    task = drives_gains(run.system, run.hil)
    yield Section(
        f"corrections on drives: {spacing}",
        "hil_gains",
        shortened(together([gain.line for gain in task])),
        {gain.name: gain for gain in task},
        [
            run.loaded.finding(str(found), "hil", "period", severity=found.severity)
            for gain in task
            for found in (gain.warning, gain.problem)
            if found is not None
        ],
    )
    yield _recommended("recommended on drives", "hil_recommended", recommend(run, spacing))


def _recommended(title: str, key: str, found: list[Recommendation]) -> Section:
    lines = [line for one in found for line in (one.text, *(f"  {reason}" for reason in one.reasons))]
    return Section(title, key, shortened(lines), found)


def _held_loops(run: Run) -> Iterator[Section]:
    """The whole loop at its period, with what no limit of gains knows: gains of the user's own, and free motions."""
    own = has_unknown_gains(run.system)
    title, key = ("gains of your own", "unknown_gains") if own else ("", "held_loops")
    try:
        loops = [] if run.refused else held_loops(run)
    except TaskError as error:
        yield Section(title, key, [f"not known at the period: {error}"] if own else [], [])
        return
    findings = [_unstable(run, loop) for loop in loops if not loop.stable]
    values = [{"timing": str(loop.timing), "growth": loop.growth, "stable": loop.stable} for loop in loops]
    yield Section(title, key, list(map(str, loops)) if own else [], values, findings)


def _unstable(run: Run, loop: HeldLoop) -> Finding:
    """On drives a law with gains of one's own is refused."""
    severity: Severity = "error" if loop.timing.on_drives and has_unknown_gains(run.system) else "warning"
    if run.loaded is None:
        return Finding("law", str(loop), severity)
    return run.loaded.finding(f"law: {loop}", "hil" if loop.timing.on_drives else "run", "period", severity=severity)


def _fast_motion(run: Run) -> Iterator[Section]:
    """A pole of the machine that the run's steps cannot follow."""
    found = None if run.refused else fast_motion(run.loop, run.start, run.settings)
    yield Section(key="fast_motion", values=found, findings=[] if found is None else [found.finding])


def _uncertainty(run: Run) -> Iterator[Section]:
    box, error = uncertainty_section(run)
    yield box
    yield from robust_section(run, error)
    yield from observer_section(run, error)


def _internal(run: Run) -> Iterator[Section]:
    if run.system.law is None or run.refused:
        return
    internal, motions = run.internal, run.motions
    if internal is None:
        if motions is not None and motions.total > motions.held:
            why = "terms of your own have states, or a derivative is not finite"
            if not run.loop.differentiable:
                why = "what runs in NumPy has no derivatives"
            unknown = f"not known whether what the task leaves free decays or grows: {why}"
            yield Section("internal dynamics", "internal", [unknown])
        return
    lines = [f"{counted(internal.dimension, 'state')} that the task leaves free: {internal.verdict}"]
    if internal.dimension:
        lines.append("modes at the start [1/s]: " + poles_text(internal.modes[:SHOWN]))
    values = {"dimension": internal.dimension, "stable": internal.stable, "modes": internal.modes}
    yield Section("internal dynamics", "internal", lines, values, of_internal(run.system, internal, run.start))


def _diagnosis(run: Run) -> Iterator[Section]:
    """Faults that no gain, step or period can repair; their sentences are among the warnings already."""
    if run.system.law is None:
        return
    findings = of_task(run.system, run.start, run.task_map)
    findings += of_internal(run.system, run.internal, run.start) if not run.refused else []
    yield Section(key="diagnosis", values=findings)


def _start(run: Run) -> Iterator[Section]:
    loop, start = run.loop, run.start
    plant = run.system.model.plant
    positions, speeds = (without_round_off(x.tolist()) for x in (start.q, start.v))
    lines = [
        f"{name} = {q:.6g} {unit}, rate {v:.6g} {per_second(unit or '-')}"
        for (name, unit), q, v in zip(plant.coordinates.items(), positions, speeds, strict=True)
    ]
    values: dict[str, Any] = {"q": dict(zip(plant.coordinates, start.q, strict=True))}
    findings = []
    if run.system.law is not None:
        command = loop.control(start.t, loop.x_at(start))
        slices = loop.layout.slices
        status = Status.from_code(command[slices["status"]][0])
        inputs = zip(plant.actuators.items(), without_round_off(command[slices["u"]].tolist()), strict=True)
        lines.append("first command: " + ", ".join(f"{name} = {u:.4g} {unit}" for (name, unit), u in inputs))
        if run.system.following is not None:
            lines.append(f"its status: {status.value}; residual {command[slices['residual']][0]:.1e}")
            own = [term.name for term in run.system.following.terms if isinstance(term, AttachedOwnTerm)]
            if own:
                lines.append(f"law.terms: {', '.join(own)}: no limit of gains knows them (analyse has the whole loop)")
        else:
            lines.append("the law is a class of your own: tasks are only measured against it")
        values |= {"u": dict(zip(plant.actuators, command[slices["u"]], strict=True)), "status": status.name}
        if not np.isfinite(command[slices["u"]]).all():
            told = f"{status.value} (a number of plant, task or bounds is too large, or is none there)"
            findings.append(Finding("start", told, "error"))
    yield Section("start", "start", lines, values, [] if run.refused else findings)


def _engine(run: Run) -> Iterator[Section]:
    loop, start = run.loop, run.start
    cost = _cost(loop, start.t, loop.x_at(start))
    lines = [f"{loop.engine}: {cost:.3g} us per evaluation" + (f" ({loop.note})" if loop.note else "")]
    if run.system.model.opaque is not None:
        lines.append("a plant that can be compiled is about ten times faster")
    yield Section("engine", "engine", lines, {"name": loop.engine, "microseconds": cost, "note": loop.note})


def _cost(loop: Any, t: float, x: Any) -> float:
    """Median time of an evaluation [us]."""
    loop.rates(t, x)
    times = timeit.repeat(lambda: loop.rates(t, x), number=5, repeat=5)
    return float(np.median(times)) / 5 * 1e6


PARTS = (
    plant_section, robot_section, passive_section, hierarchy_section, _references, task_section, reach_section,
    _realism, _gains, _held_loops, _fast_motion, _funnels, _uncertainty, estimation_section, bound_section,
    _internal, _diagnosis, _start, _engine,
)  # fmt: skip
"""The sections, in the order of the report."""
