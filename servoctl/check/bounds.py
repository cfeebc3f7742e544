"""What a sampled law can promise about its bounds: start, rate against period, and how far a sample may miss.

    passed <= |h''| D^2 / 8 + e / (p D)^2       of degree 2: e = h(t + D) - (h + D h' + D^2 h'' / 2)
    passed <= |h''| D^2 / 8 + e / max(p D, 1/2)^2       of a coordinate's limit
    passed <= e / (1 - e^(-p D)), e             of degree 1, of a speed's limit: e = h(t + D) - (h + D h')

    more    S L / e0 + S J / 2      of h' where actuators lag by L or a delay varies by J: times D in rows of degree 2

The law counts a lag as a delay of its time constant, and the mean of a delay that varies. S is the span of h'' from one
command to the next; after a step, the speed under a lag L leaves that under a delay L by at most S L / e0, e0 = 2.718.

Design: |h''| and e are measured over one held period at the start and at random states near it, with the law's command
and with inputs at their limits. They are as large as those states make them, and no proof for faster motions.

Source: |h''| D^2 / 8 is the most by which a parabola passes between two samples; a bound settles at -2 e / (p D)^2 / 2
under a disturbance of 2 e / D^2 (see `laws.barrier`).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import Context
from servoctl.assembly.values import Problems
from servoctl.check.bound_path import exclusions, hurries
from servoctl.check.sections import Section, shortened
from servoctl.errors import Finding
from servoctl.laws.barrier import SHARE
from servoctl.laws.bounds import braking
from servoctl.laws.bounds_term import BoundRow, BoundsTerm
from servoctl.laws.configured import NEARBY
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.coordinate_bounds import CoordinateLimits, CoordinateRange
from servoctl.mechanics.initial import nearest
from servoctl.run_folder.trajectory import VIOLATED
from servoctl.types import Array

STATES, CORNERS = 6, 4  # random states near the start; random corners of the limits of the inputs at each


def bound_section(run: Run) -> Iterator[Section]:
    """Start, rate and accuracy of each bound."""
    law = run.system.following
    if run.refused or law is None or law.bounds is None:
        return
    held, period = law.bounds, law.bounds.timing.period
    h = _values(run)
    passed = dict.fromkeys(held.names, 0.0) if period is None else _passed(run, held, period)
    lines, values, findings = [], {}, []
    late = held.timing.mean_delay
    errors, paths, units, weakest = _errors(run, held), exclusions(run), _units(run), _weakest(run, law)
    hurried = hurries(run)
    for i, name in enumerate(held.names):
        unit, rows = units.get(name, ""), [k for k, row in enumerate(held.rows) if row.name == name]
        facts: dict[str, Any] = {"h": float(h[i]), "inside": bool(h[i] >= -VIOLATED), "delay": late}
        outside = "" if facts["inside"] else ", outside: the law returns inside"
        parts = [f"{name}: h = {h[i]:.4g}{unit} at the start{outside}"]
        if rows:
            first, braking_most = held.rows[rows[0]], min(held.rows[k].braking for k in rows)
            facts |= {"rate": first.rate, "kind": first.kind}
            facts |= {} if period is None else {"rate_times_period": first.rate * period}
            facts |= {"braking": float(braking_most)} if np.isfinite(braking_most) else {}
            parts += _in_words(first, facts, period, unit)
            parts += _margin([held.rows[k].margin for k in rows], [errors[k] for k in rows if errors], facts)
            if weakest.get(name, 0.0) < 0.0:
                facts["weakest_braking"] = weakest[name]
                parts.append(
                    f"before the limit there are poses where gravity takes more than the inputs give: "
                    f"{weakest[name]:.3g}{unit}/s^2"
                )
        if period is not None and name in passed:
            facts["between_samples"] = passed[name]
            parts.append(
                f"h falls below 0 by at most {passed[name]:.2g}{unit}, at samples and between them, while the model is "
                "right, the inputs suffice and the motion is as fast as near the start"
            )
        if name in paths:
            facts["path"] = paths[name]
            parts.append(f"{paths[name].text}, where the law gives up the task")
            if paths[name].always:
                remedy = "move the bound or the task"
                findings.append(Finding("bounds", f"{name}: {paths[name].text}: the task is never met ({remedy})"))
        if name in hurried:
            facts["hurry"] = hurried[name]
            findings.append(Finding("bounds", f"{name}: {hurried[name].text}"))
        lines.append("; ".join(parts))
        values[name] = facts
        if not facts["inside"]:
            findings.append(Finding("bounds", f"{name}: the start is outside (h = {h[i]:.4g}); the law returns inside"))
    if law.observed:
        lines.append(
            "law.observer acts on the task alone: a bound knows no disturbance (estimation: {kind: model} tells it, or "
            "give the bound a margin)"
        )
    if late:
        lines.append(f"commands act {1e3 * late:.4g} ms late: bounds are held at the state that sent commands lead to")
    yield Section("bounds", "bounds", shortened(lines), values, findings)


def _weakest(run: Run, law: AttachedConstraintFollowing) -> dict[str, float]:
    """Name of a limit of a coordinate -> the least acceleration to brake with that was found on the way to it."""
    model, found = run.system.model, dict[str, float]()
    limits = dict(
        zip(model.plant.actuators, zip(law.allocation.lower, law.allocation.upper, strict=True), strict=False)
    )
    for group, of in model.bounds.items():
        if isinstance(of, CoordinateRange):
            rows = [i for i, row in enumerate(model.bound_rows) if row.group == group]
            for i, most in zip(
                rows, braking(model, run.start, of, limits, run.system.passive.rank_tolerance), strict=True
            ):
                name = of.reported(group, i - rows[0])
                found[name] = min(most, found.get(name, np.inf))
    return found


def _units(run: Run) -> dict[str, str]:
    """Name of a limit of a coordinate or of its speed -> unit of h, with a space before it."""
    model = run.system.model
    units: dict[str, str] = {}
    for name, limits in model.bounds.items():
        if isinstance(limits, CoordinateLimits):
            for each in limits.coordinates:
                row = name if len(limits.coordinates) == 1 else f"{name}.{each}"
                units[row] = f" {model.plant.coordinates[each]}" + ("/s" if limits.rate else "")
    return units


def _in_words(row: BoundRow, facts: dict[str, Any], period: float | None, unit: str) -> list[str]:
    if row.kind == "stopping":
        return [f"brakes with {facts['braking']:.4g}{unit}/s^2"]
    if row.kind == "speed":
        return ["reached within one period" if period else f"rate {facts['rate']:.4g} 1/s"]
    text = f"rate {facts['rate']:.4g} 1/s"
    return [text + (f" (rate times period is {facts['rate_times_period']:.3g}, stable below 2)" if period else "")]


def _errors(run: Run, held: BoundsTerm) -> tuple[float, ...]:
    """What errors of the estimator may cost each row of the model's bounds; empty where that is not known."""
    model = run.system.model
    loaded = run.loaded
    known = None if loaded is None else Context(model.plant, loaded.config, Problems(loaded)).estimate_errors
    if known is None or not model.bound_rows:
        return ()
    A = np.array([model.rows_of_bounds(state).A for state in model.near(run.start, NEARBY)])
    return tuple(known.margin(row.kind, row.rate, A[:, i]) for i, row in enumerate(held.rows))


def _margin(margins: list[float], errors: list[float], facts: dict[str, Any]) -> list[str]:
    """The margin of a bound's rows, and what errors of the estimator may cost them; added to the facts too."""
    parts = []
    facts["margin"] = max(margins)
    if facts["margin"]:
        parts.append(f"keeps a margin of {facts['margin']:.3g}")
    if errors:
        facts["estimate_error"] = max(errors)
        advice = "" if facts["margin"] >= 0.9 * facts["estimate_error"] else " (margin: auto keeps that much)"
        parts.append(
            f"errors of the estimate cost at most {facts['estimate_error']:.3g} while disturbances change no faster "
            f"than estimation.disturbance{advice}"
        )
    return parts


def _values(run: Run) -> Array:
    """h of each bound at the start, under the law's command."""
    loop, t = run.loop, run.start.t
    x = loop.x_at(run.start)
    command = loop.control(t, x)
    place, first = loop.layout.slices["bound"], loop.layout.command_size
    values: Array = loop.motion(t, x, command)[1][place.start - first : place.stop - first]
    return values


def _passed(run: Run, held: BoundsTerm, period: float) -> dict[str, float]:
    """Bound -> the most by which it may be passed, over the states and inputs that are looked at."""
    found: dict[str, float] = {}
    spans = np.zeros((2, len(held.rows)))  # least and largest h'' of each row; 0 counts too
    for now, second, after in _held_periods(run, period) if run.system.model.bound_rows else ():
        spans = np.array([np.minimum(spans[0], second), np.maximum(spans[1], second)])
        for i, row in enumerate(held.rows):
            passed = _of_period(row, period, i, now, after, second)
            if np.isfinite(passed):
                found[row.name] = max(found.get(row.name, 0.0), passed)
    more: dict[str, float] = {}
    # what the law's delay leaves out of how the actuators follow, as the time for which h' goes on [s]
    acts = None if run.system.realism is None else run.system.realism.timing
    unmodelled = 0.0 if acts is None else acts.slowest / np.e + acts.jitter / 2.0
    for row, span in zip(held.rows, spans[1] - spans[0], strict=True):
        missed = _taken_back(row, period, float(np.nan_to_num(span)) * unmodelled)
        more[row.name] = max(more.get(row.name, 0.0), missed)
    return {name: passed + more[name] for name, passed in found.items()}


def _held_periods(run: Run, period: float) -> Iterator[tuple[Rows, Array, Rows]]:
    """Rows of the bounds, h'', and the rows a period later, under the law's command and inputs at their limits."""
    loop, model = run.loop, run.system.model
    random = np.random.default_rng(0)
    states = [run.start]
    for state in model.samples(run.start, STATES):
        states.append(nearest(model, state, among=[])[0] if model.passive_rows else state)
    box = np.array(run.system.acting.limits)
    steps = max(1, run.settings.integrator.substeps(period))
    for state in states:
        x = loop.x_at(state)
        command = loop.control(state.t, x)
        corners = [command[: model.m]]
        if len(box) and np.isfinite(box).all():
            corners += [np.where(random.random(model.m) < 0.5, *box.T) for _ in range(CORNERS)]
        for u in corners:
            held = command.copy()
            held[: model.m] = u
            if not np.isfinite(held[: model.m]).all():
                continue
            rows, a = model.rows_of_bounds(state), loop.derivative(state.t, x, held)
            later, _ = loop.split(state.t + period, loop.after_hold(state.t, x, held, period, steps))
            yield rows, rows.A @ a[model.n : 2 * model.n] - rows.b, model.rows_of_bounds(later)


def _of_period(row: BoundRow, period: float, i: int, now: Rows, after: Rows, second: Array) -> float:
    """The most by which a row may be passed, from one held period."""
    h, slope = now.violation[i], now.violation_rate[i]
    if row.degree == 2:
        missed = abs(after.violation[i] - (h + period * slope + period**2 / 2 * second[i])) / period
        return float(abs(second[i]) * period**2 / 8) + _taken_back(row, period, missed)
    return _taken_back(row, period, abs(after.violation[i] - (h + period * second[i])))


def _taken_back(row: BoundRow, period: float, missed: float) -> float:
    """How far h falls where each period misses its speed by so much, and the law takes it back."""
    if row.degree == 2:
        back = max(row.rate * period, SHARE) if row.kind == "stopping" else row.rate * period
        return float(missed * period / np.square(min(back, 1.0)))  # infinite for a rate that rounding takes for 0
    return float(missed / (1.0 - np.exp(-row.rate * period)) if row.kind == "decay" else missed)
