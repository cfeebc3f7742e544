"""The report of `servoctl check`: model, constraints, controllability, gains, internal dynamics and start of a run."""

import dataclasses
import timeit
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.diagnosis import of_internal, of_task
from servoctl.assembly.gains import drives_spacing, passive_gains, passive_spacing, task_gains, task_spacing
from servoctl.assembly.realism import facts, in_words
from servoctl.check.estimation import estimation_section
from servoctl.check.observer import observer_section
from servoctl.check.recommend import Recommendation, recommend
from servoctl.check.references import reference_lines, reference_warnings
from servoctl.check.robot import robot_section
from servoctl.check.speeds import speed_warnings
from servoctl.check.uncertainty import robust_section, uncertainty_section
from servoctl.errors import ServoctlError
from servoctl.laws.uncertainty import ModelError
from servoctl.mechanics.classification import classify
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.division import parts_in_words
from servoctl.mechanics.initial import consistency
from servoctl.mechanics.passive_levels import largest, level_reports, motions
from servoctl.mechanics.terms import assemble
from servoctl.run_folder.trajectory import plain
from servoctl.simulation.divided import division
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.types import Status

SHOWN = 10
"""Largest number of printed lines of one kind; JSON has all."""


@dataclass
class CheckReport:
    """The findings, as text and as values.

    Attributes:
        sections: (title, lines) to print.
        values: The same as plain values, for JSON.
        warnings: Warnings; the run is possible.
        errors: Reasons why the run is refused.
    """

    sections: list[tuple[str, list[str]]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(plain({**self.values, "warnings": self.warnings, "errors": self.errors}))


def check(run: Run) -> CheckReport:
    """Checks a run without simulating it.

    Args:
        run: A run, loaded with `strict=False` so that its problems are reported with the rest.
    """
    report = CheckReport(warnings=list(run.warnings), errors=list(run.problems))
    for part in PARTS:
        part(run, report)
    return report


def _plant(run: Run, report: CheckReport) -> None:
    model = run.system.model
    plant = model.plant
    M = model.matrices(run.start).M
    eigenvalues = np.linalg.eigvalsh(M)
    lines = [
        f"{type(plant).__name__}: {_count(model.n, 'coordinate')} ({_named(plant.coordinates)}), "
        + (f"{_count(model.m, 'input')} ({_named(plant.actuators)})" if model.m else "no inputs"),
        f"mass matrix at the start: eigenvalues {eigenvalues[0]:.4g} to {eigenvalues[-1]:.4g}, "
        f"condition {np.linalg.cond(M):.3g}",
    ]
    if model.opaque is None:
        lines.append("compiled: equal to its NumPy code at 20 random states and parameter sets")
    else:
        lines.append(f"not compiled: {model.opaque}")
    parts = division(run.system)
    if parts:
        lines.append(parts_in_words(parts, list(plant.coordinates)))
    report.sections.append(("plant", lines))
    report.values["plant"] = {
        "class": type(plant).__name__, "coordinates": dict(plant.coordinates), "actuators": dict(plant.actuators),
        "mass_eigenvalues": eigenvalues, "opaque": model.opaque, "parts": max(1, len(parts)),
    }  # fmt: skip


def _robot(run: Run, report: CheckReport) -> None:
    lines, values = robot_section(run)
    if values:
        report.sections.append(("robot", lines))
        report.values["robot"] = values


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _named(units: Any) -> str:
    listed = [f"{name} [{unit}]" for name, unit in list(units.items())[:8]]
    return ", ".join(listed) + (f", and {len(units) - 8} more" if len(units) > 8 else "")


def _passive(run: Run, report: CheckReport) -> None:
    model = run.system.model
    if not model.passive_rows:
        return
    tolerance = run.system.passive.rank_tolerance
    terms = assemble(run.start, model.matrices(run.start), tolerance)
    if not terms.finite:
        return  # the start is refused, with the rows that are not finite
    rank, rows = terms.passive.rank, len(model.passive_rows)
    lines = [
        f"{_count(rows, 'row')} of rank {rank}" + ("" if rank == rows else f": {rows - rank} dependent"),
        *_violations(run, model.passive_rows),
    ]
    lines.append(f"largest inconsistency |(I - A A^+) b|: {np.abs(terms.consistency).max():.1e}")
    report.sections.append(("passive constraints", lines))
    report.values["passive"] = {
        "rows": [row.name for row in model.passive_rows], "rank": rank, "inconsistency": np.abs(terms.consistency).max()
    }  # fmt: skip


def _hierarchy(run: Run, report: CheckReport) -> None:
    if not run.levels:
        return
    model, tolerance = run.system.model, run.system.passive.rank_tolerance
    try:
        free, *enforced = motions(model, run.start, run.levels, rank_tolerance=tolerance)
    except ServoctlError as error:
        report.sections.append(("hierarchy", [f"cannot be enforced: {error}"]))
        report.values["hierarchy"] = {"reason": str(error)}
        return
    levels = level_reports(model.plant.coordinates, [free, *enforced])
    at_once = assemble(run.start, model.matrices(run.start), tolerance).acceleration(np.zeros(model.m))
    apart = enforced[-1].acceleration - at_once
    lines = [
        "level by level at the start, with zero inputs; trace of P: remaining degrees of freedom",
        *_shortened([str(level) for level in levels]),
        f"difference from all rows at once, without clearance: {largest(apart, model.plant.coordinates)}",
    ]
    report.sections.append(("hierarchy", lines))
    report.values["hierarchy"] = {
        "free": dict(zip(model.plant.coordinates, free.acceleration, strict=True)),
        "levels": {level.name: level.to_dict() for level in levels},
        "off_all_at_once": np.abs(apart).max(),
    }


def _violations(run: Run, rows: list[Row]) -> list[str]:
    at = consistency(run.system.model, run.start)
    lines, wanted = [], set(rows)
    for row, violation, rate in zip(at.rows, at.violation, at.violation_rate, strict=True):
        if row in wanted:
            value = "" if np.isnan(violation) else f": violation {violation + 0.0:.3g}"  # + 0.0: prints -0 as 0
            lines.append(f"{row.name}: {row.kind}{value}" + ("" if np.isnan(rate) else f", rate {rate + 0.0:.3g}"))
    return _shortened(lines)


def _shortened(lines: list[str]) -> list[str]:
    """The first lines, if there are many."""
    return lines if len(lines) <= SHOWN + 2 else [*lines[:SHOWN], f"... and {len(lines) - SHOWN} more"]


def _references(run: Run, report: CheckReport) -> None:
    if not run.signals:
        return
    lines, report.values["references"] = reference_lines(run)
    report.sections.append(("references", _shortened(lines)))
    report.warnings += [*reference_warnings(run), *speed_warnings(run)]


def _task(run: Run, report: CheckReport) -> None:
    model = run.system.model
    if not model.task:
        return
    lines, values = [], {}
    for name, constraint in model.task.items():
        try:
            kind = classify(constraint, model.plant, run.start)
            lines.append(f"{name}: {constraint.kind}, {kind.time}; {kind.reason}")
            values[name] = {
                "kind": constraint.kind,
                "time": kind.time,
                "integrable": kind.integrable,
                "reason": kind.reason,
            }
        except ServoctlError as error:
            lines.append(f"{name}: {constraint.kind}; not classified: {error}")
        equation = getattr(constraint, "equation", None)
        if equation is not None and equation.kinked and constraint.kind == "holonomic":
            words = ", ".join(equation.kinked)
            report.warnings.append(f"task.{name}: {words} in a holonomic row: its second derivative ignores the kink")
    report.sections.append(("task", lines + _violations(run, model.task_rows)))
    report.values["task"] = values


def _reach(run: Run, report: CheckReport) -> None:
    task_map = run.task_map
    if task_map is None:
        return
    count = _count(len(task_map.rows), "row")
    lines = [f"rank of A Phi B: {task_map.rank} at the start, {task_map.generic_rank} nearby, of {count}"]
    motions = run.motions
    if motions is not None:
        lines.append(motions.line)
        report.values["motions"] = dataclasses.asdict(motions)
    rows, unreachable, dependent = [], set(task_map.unreachable), set(task_map.dependent)
    for row, gain in zip(task_map.rows, task_map.gain, strict=True):
        remark = ""
        if row in unreachable:
            remark = ": OUT OF REACH: no actuator acts on this row's acceleration"
        elif row in dependent:
            remark = ": dependent: cannot be controlled independently of the rows above"
        rows.append(f"{row.name}: relative degree {task_map.degree(row)}, gain {gain:.3g}{remark}")
    report.sections.append(("controllability of the task", lines + _shortened(rows)))
    report.values["reach"] = {
        "rank": task_map.rank, "generic_rank": task_map.generic_rank, "pivot": task_map.pivot,
        "rows": {
            row.name: {"degree": task_map.degree(row), "gain": gain, "reachable": row not in unreachable}
            for row, gain in zip(task_map.rows, task_map.gain, strict=True)
        },
    }  # fmt: skip


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
        lines = _shortened([gain.line for gain in passive])
    lines += _shortened([gain.line for gain in task])
    lines += [f"{gains[0].group}: {gains[0].spacing}" for gains in (passive, task) if gains]
    report.sections.append(("corrections", lines))
    report.values["gains"] = {gain.row.name: gain.to_dict() for gain in task}
    report.values["passive_gains"] = {gain.row.name: gain.to_dict() for gain in passive}
    _recommended(report, "recommended corrections", "recommended", recommend(run))
    spacing = None if run.loaded is None else drives_spacing(run.loaded)
    if run.loaded is None or spacing is None or not task:
        return
    task = list(task_gains(run.system, spacing))
    report.sections.append((f"corrections on drives: {spacing}", _shortened([gain.line for gain in task])))
    report.values["hil_gains"] = {gain.row.name: gain.to_dict() for gain in task}
    _recommended(report, "recommended on drives", "hil_recommended", recommend(run, spacing))
    where = run.loaded.where("hil", "period")
    report.errors += [f"{where}: {gain.problem}" for gain in task if gain.problem is not None]
    report.warnings += [f"{where}: {gain.warning}" for gain in task if gain.warning is not None]


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
    report.sections.append(("disturbance observer", _shortened(lines)))
    report.values["observer"] = values
    report.errors += errors


def _estimation(run: Run, report: CheckReport) -> None:
    lines, values, errors = estimation_section(run)
    if not lines:
        return
    report.sections.append(("estimation", _shortened(lines)))
    report.values["estimation"] = values
    report.errors += errors


def _recommended(report: CheckReport, title: str, key: str, found: list[Recommendation]) -> None:
    lines = [line for one in found for line in (one.text, *(f"  {reason}" for reason in one.reasons))]
    if found:
        report.sections.append((title, _shortened(lines)))
    report.values[key] = [one.to_dict() for one in found]


def _internal(run: Run, report: CheckReport) -> None:
    if run.system.law is None or run.problems:
        return
    internal = run.internal
    if internal is None:
        return
    lines = [f"{_count(internal.dimension, 'state')} besides the violations: {internal.verdict}"]
    if internal.dimension:
        lines.append("modes at the start [1/s]: " + ", ".join(f"{mode:.4g}" for mode in internal.modes[:SHOWN]))
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
        f"{name} = {q:.6g} {unit}, rate {v:.6g}"
        for (name, unit), q, v in zip(plant.coordinates.items(), start.q, start.v, strict=True)
    ]
    values: dict[str, Any] = {"q": dict(zip(plant.coordinates, start.q, strict=True))}
    if run.system.law is not None:
        command = loop.control(start.t, np.concatenate([start.q, start.v, loop.memory_start]))
        slices = loop.layout.slices
        status = Status.from_code(command[slices["status"]][0])
        inputs = zip(plant.actuators.items(), command[slices["u"]], strict=True)
        lines.append("first command: " + ", ".join(f"{name} = {u:.4g} {unit}" for (name, unit), u in inputs))
        lines.append(f"its status: {status.value}; residual {command[slices['residual']][0]:.1e}")
        values |= {"u": dict(zip(plant.actuators, command[slices["u"]], strict=True)), "status": status.name}
    report.sections.append(("start", lines))
    report.values["start"] = values


def _engine(run: Run, report: CheckReport) -> None:
    loop, start = run.loop, run.start
    x = np.concatenate([start.q, start.v, loop.memory_start])
    cost = _cost(loop, start.t, x)
    lines = [f"{loop.engine}: {cost:.3g} us per evaluation" + (f" ({loop.note})" if loop.note else "")]
    if isinstance(loop, NumpyLoop) and run.system.model.opaque is not None:
        lines.append("a plant that can be compiled is about ten times faster")
    report.sections.append(("engine", lines))
    report.values["engine"] = {"name": loop.engine, "microseconds": cost, "note": loop.note}


def _cost(loop: Any, t: float, x: Any) -> float:
    """Median time of an evaluation [us]."""
    loop.rates(t, x)
    times = timeit.repeat(lambda: loop.rates(t, x), number=5, repeat=5)
    return float(np.median(times)) / 5 * 1e6


PARTS = (
    _plant, _robot, _passive, _hierarchy, _references, _task, _reach, _realism, _gains, _uncertainty, _estimation,
    _internal, _diagnosis, _start, _engine,
)  # fmt: skip
"""The sections, in the order of the report."""
