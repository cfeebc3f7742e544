"""What `servoctl check` says about references: their span, where they start, how fast they are, how they end."""

from typing import Any

from servoctl.assembly import Run
from servoctl.mechanics.initial import consistency
from servoctl.reference.signal import Signal
from servoctl.reference.speed import jumps, peak_rate

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
