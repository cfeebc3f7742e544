"""The report of `servoctl check`: model, constraints, controllability, gains, internal dynamics and start of a run."""

import timeit
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.diagnosis import of_internal, of_task
from servoctl.assembly.fast_motion import fast_motion
from servoctl.assembly.gains import drives_spacing, passive_gains, passive_spacing, task_gains, task_spacing
from servoctl.assembly.realism import facts, in_words
from servoctl.check.bounds import bound_section
from servoctl.check.estimation import estimation_section
from servoctl.check.model import add_hierarchy, add_passive, add_plant, add_reach, add_robot, add_task
from servoctl.check.observer import observer_section
from servoctl.check.recommend import Recommendation, recommend
from servoctl.check.sections import SHOWN, CheckReport, counted, shortened, together
from servoctl.check.task_path import speed_warnings
from servoctl.check.uncertainty import robust_section, uncertainty_section
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.laws.uncertainty import ModelError
from servoctl.mechanics.initial import consistency
from servoctl.reference.signal import Signal
from servoctl.reference.speed import jumps, peak_rate
from servoctl.run_folder.values import without_round_off
from servoctl.simulation.internal_dynamics import poles_text
from servoctl.types import Status

AWAY = 1e-6  # [units of the row] violation at the start above which a reference starts away from the machine


def reference_lines(run: Run) -> tuple[list[str], dict[str, Any]]:
    """Lines to print, and the same as values: the span of each reference, value and largest rate of each column."""
    lines, values = [], dict[str, Any]()
    for name in dict.fromkeys(signal.reference for signal in run.signals.values()):
        columns = [signal for signal in run.signals.values() if signal.reference == name]
        curve = columns[0].curve
        beyond = {"hold": "then held", "periodic": "then repeated", "error": "no values beyond"}[curve.extrapolate]
        smooth = f"{curve.smoothness} continuous derivative{'s' * (curve.smoothness != 1)}"
        lines.append(f"{name}: from t = {curve.start:g} to {curve.end:g} s, {beyond}; {smooth}")
        values[name] = {"start": curve.start, "end": curve.end, "extrapolate": curve.extrapolate, "columns": {}}
        for signal in columns:
            peak, first = peak_rate(signal), float(signal(run.start.t))
            fastest = f"fastest {peak.rate:.4g} per s at t = {peak.t:.4g} s"
            lines.append(f"  {signal.name}: {first:.6g} at the start, {fastest}")
            values[name]["columns"][signal.column] = {"at_start": first, "peak_rate": peak.rate, "peak_time": peak.t}
    return lines, values


def reference_warnings(run: Run) -> list[str]:
    """Sentences about references that start away from the machine, or begin or end with a velocity."""
    sentences = []
    at = consistency(run.system.model, run.start)
    for row, violation, rate in zip(at.rows, at.violation, at.violation_rate, strict=True):
        constraint = run.system.model.task.get(row.group)
        names = [] if constraint is None else list(constraint.signals)
        if names and abs(violation) > AWAY:
            away = f"starts {violation:.4g} away from its reference ({', '.join(names)})"
            sentences.append(f"task.{row.name}: {away}; move initial.q, or set initial.project: true")
        elif names and abs(rate) > AWAY:
            away = f"starts with a rate {rate:.4g} away from that of its reference ({', '.join(names)})"
            sentences.append(f"task.{row.name}: {away}; set initial.v")
    used = {name for constraint in run.system.model.task.values() for name in constraint.signals}
    for name, signal in run.signals.items():
        if name in used and isinstance(signal, Signal):
            sentences += [f"references.{signal.reference}: {sentence}" for sentence in jumps(signal, run.start.t)]
    return sentences


def funnel_section(run: Run) -> tuple[list[str], dict[str, Any]]:
    """Lines, and the same as values; empty without a funnel."""
    law = run.system.law
    if not isinstance(law, BoundConstraintFollowing) or law.funnel is None:
        return [], {}
    term, lines, values = law.funnel, [], {}
    task, period = run.system.model.matrices(run.start).task, term.period or 0.0
    betas = term.beta(task, law.funnel_numbers)
    for i, name, beta, of in zip(term.members, term.names, betas, term.of_rows(law.funnel_numbers), strict=True):
        begins = float(of.width(run.start.t))
        facts: dict[str, Any] = {"beta": float(beta), "start": begins, "end": of.end, "slope": of.slope}
        facts["edge"] = float(of.edge)
        widths = f"half-width {begins:.4g} at the start, then {of.end:.4g}"
        parts = [
            f"{name}: |beta| = {abs(beta):.4g} at the start, {widths}",
            f"gain {of.kappa:.4g} 1/s in the middle, {of.slope:.4g} 1/s from {of.edge:.1%} of the half-width on",
        ]
        # the proof is of samples whose held correction does not overshoot, from a violation that fits the funnel
        near = not of.rate or abs(task.violation[i]) <= of.start / of.rate
        tolerated = of.tolerated(period, term.late)
        near = near and abs(beta) + of.until_first_command(tolerated, term.late) <= begins
        if of.slope * period <= 1.0 and near:
            facts["tolerated"] = tolerated
            parts.append(
                f"|beta| stays inside at every sample while the model misses at most {facts['tolerated']:.4g} of the "
                "row's acceleration [unit/s^2]"
            )
            if of.rate:
                facts["violation"] = of.end / of.rate
                parts.append(f"|error| then ends at no more than {of.end / of.rate:.4g}")
        else:
            parts.append("nothing is guaranteed: the slope is too large for the period, or the start too near the edge")
        lines.append("; ".join(parts))
        values[name] = facts
    return lines, values


def check(run: Run) -> CheckReport:
    """Checks a run without simulating it.

    Args:
        run: A run, loaded with `strict=False` so that its problems are reported with the rest.
    """
    report = CheckReport(warnings=list(run.warnings), errors=list(run.problems))
    for part in PARTS:
        part(run, report)
    return report


def _references(run: Run, report: CheckReport) -> None:
    if not run.signals:
        return
    lines, report.values["references"] = reference_lines(run)
    report.sections.append(("references", shortened(lines)))
    report.warnings += [*reference_warnings(run), *speed_warnings(run)]


def _realism(run: Run, report: CheckReport) -> None:
    values = None if run.loaded is None else run.loaded.config.realism
    if values is None or run.system.realism is None:
        return
    report.sections.append(("realism", in_words(run.system, values)))
    report.values["realism"] = facts(run.system, values)


def _gains(run: Run, report: CheckReport) -> None:
    settings = run.settings
    task = list(task_gains(run.system, task_spacing(run.system, settings)))
    passive = list(passive_gains(run.system, passive_spacing(settings)))
    if not task and not passive:
        return
    if run.system.passive.projection and passive and not any(gain.corrects for gain in passive):
        lines = ["passive constraints: projected at the end of each step (plant.passive.projection)"]
    else:
        lines = shortened(together([gain.line for gain in passive]))
    lines += shortened(together([gain.line for gain in task]))
    lines += [f"{gains[0].group}: {gains[0].spacing}" for gains in (passive, task) if gains]
    report.sections.append(("corrections", lines))
    report.values["gains"] = {gain.name: gain.to_dict() for gain in task}
    report.values["passive_gains"] = {gain.row.name: gain.to_dict() for gain in passive}
    _recommended(report, "recommended corrections", "recommended", recommend(run))
    spacing = None if run.loaded is None else drives_spacing(run.loaded)
    if run.loaded is None or spacing is None or not task:
        return
    task = list(task_gains(run.system, spacing))
    report.sections.append((f"corrections on drives: {spacing}", shortened(together([gain.line for gain in task]))))
    report.values["hil_gains"] = {gain.name: gain.to_dict() for gain in task}
    _recommended(report, "recommended on drives", "hil_recommended", recommend(run, spacing))
    where = run.loaded.where("hil", "period")
    report.errors += [f"{where}: {gain.problem}" for gain in task if gain.problem is not None]
    report.warnings += [f"{where}: {gain.warning}" for gain in task if gain.warning is not None]


def _fast_motion(run: Run, report: CheckReport) -> None:
    """Adds a pole of the machine that the run's steps cannot follow."""
    found = None if run.problems else fast_motion(run.loop, run.start, run.settings)
    report.values["fast_motion"] = None if found is None else found.to_dict()
    report.warnings += [] if found is None else [found.text]


def _funnels(run: Run, report: CheckReport) -> None:
    lines, values = funnel_section(run)
    if lines:
        report.sections.append(("funnels", shortened(lines)))
        report.values["funnels"] = values


def _uncertainty(run: Run, report: CheckReport) -> None:
    uncertain, error = uncertainty_section(run)
    robust = robust_section(run, error)
    for title, key, section in (("model error", "uncertainty", uncertain), ("robust term", "robust", robust)):
        report.warnings += section.warnings
        report.errors += section.errors
        if section.lines:
            report.sections.append((title, section.lines))
            report.values[key] = section.values
    _observer(run, report, error)


def _observer(run: Run, report: CheckReport, error: ModelError | None) -> None:
    lines, values, errors = observer_section(run, error)
    if not lines:
        return
    report.sections.append(("disturbance observer", shortened(lines)))
    report.values["observer"] = values
    report.errors += errors


def _estimation(run: Run, report: CheckReport) -> None:
    lines, values, errors = estimation_section(run)
    if not lines:
        return
    report.sections.append(("estimation", shortened(lines)))
    report.values["estimation"] = values
    report.errors += errors


def _bounds(run: Run, report: CheckReport) -> None:
    lines, values, warnings = ([], {}, []) if run.problems else bound_section(run)
    if not lines:
        return
    report.sections.append(("bounds", shortened(lines)))
    report.values["bounds"] = values
    report.warnings += warnings


def _recommended(report: CheckReport, title: str, key: str, found: list[Recommendation]) -> None:
    lines = [line for one in found for line in (one.text, *(f"  {reason}" for reason in one.reasons))]
    if found:
        report.sections.append((title, shortened(lines)))
    report.values[key] = [one.to_dict() for one in found]


def _internal(run: Run, report: CheckReport) -> None:
    if run.system.law is None or run.problems:
        return
    internal = run.internal
    if internal is None:
        return
    lines = [f"{counted(internal.dimension, 'state')} that the task leaves free: {internal.verdict}"]
    if internal.dimension:
        lines.append("modes at the start [1/s]: " + poles_text(internal.modes[:SHOWN]))
    report.sections.append(("internal dynamics", lines))
    report.values["internal"] = {
        "dimension": internal.dimension, "stable": internal.stable,
        "modes": [[mode.real, mode.imag] for mode in internal.modes],
    }  # fmt: skip
    report.warnings += [finding.text for finding in of_internal(run.system, internal)]


def _diagnosis(run: Run, report: CheckReport) -> None:
    """Faults that no gain, step or period can repair; their sentences are among the warnings already."""
    if run.system.law is None:
        return
    findings = of_task(run.system, run.start, run.task_map)
    findings += of_internal(run.system, run.internal) if not run.problems else []
    report.values["diagnosis"] = [finding.to_dict() for finding in findings]


def _start(run: Run, report: CheckReport) -> None:
    loop, start = run.loop, run.start
    plant = run.system.model.plant
    lines = [
        f"{name} = {q:.6g} {unit}, rate {v:.6g} {unit or '1'}/s"
        for (name, unit), q, v in zip(plant.coordinates.items(), start.q, start.v, strict=True)
    ]
    values: dict[str, Any] = {"q": dict(zip(plant.coordinates, start.q, strict=True))}
    if run.system.law is not None:
        command = loop.control(start.t, np.concatenate([start.q, start.v, loop.memory_start]))
        slices = loop.layout.slices
        status = Status.from_code(command[slices["status"]][0])
        inputs = zip(plant.actuators.items(), without_round_off(command[slices["u"]].tolist()), strict=True)
        lines.append("first command: " + ", ".join(f"{name} = {u:.4g} {unit}" for (name, unit), u in inputs))
        if run.system.following is not None:
            lines.append(f"its status: {status.value}; residual {command[slices['residual']][0]:.1e}")
        else:
            lines.append("the law is a class of your own: tasks are only measured against it")
        values |= {"u": dict(zip(plant.actuators, command[slices["u"]], strict=True)), "status": status.name}
    report.sections.append(("start", lines))
    report.values["start"] = values


def _engine(run: Run, report: CheckReport) -> None:
    loop, start = run.loop, run.start
    x = np.concatenate([start.q, start.v, loop.memory_start])
    cost = _cost(loop, start.t, x)
    lines = [f"{loop.engine}: {cost:.3g} us per evaluation" + (f" ({loop.note})" if loop.note else "")]
    if run.system.model.opaque is not None:
        lines.append("a plant that can be compiled is about ten times faster")
    report.sections.append(("engine", lines))
    report.values["engine"] = {"name": loop.engine, "microseconds": cost, "note": loop.note}


def _cost(loop: Any, t: float, x: Any) -> float:
    """Median time of an evaluation [us]."""
    loop.rates(t, x)
    times = timeit.repeat(lambda: loop.rates(t, x), number=5, repeat=5)
    return float(np.median(times)) / 5 * 1e6


PARTS = (
    add_plant, add_robot, add_passive, add_hierarchy, _references, add_task, add_reach, _realism, _gains,
    _fast_motion, _funnels, _uncertainty, _estimation, _bounds, _internal, _diagnosis, _start, _engine,
)  # fmt: skip
"""The sections, in the order of the report."""
