"""The section `references` of a config -> signals by name, and what is wrong with them."""

import re
from collections.abc import Container, Iterable, Mapping

import numpy as np

from servoctl.assembly.values import Problems
from servoctl.config.load import LoadedConfig
from servoctl.config.references import ReferenceConfig
from servoctl.engine.parameters import parameter_fields
from servoctl.expression import RESERVED
from servoctl.finding import Finding
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.plant import Plant
from servoctl.reference.curve import Curve, Signal, waypoint_curve
from servoctl.reference.table import NOT_FINITE, file_curve, finite_curve

Signals = Mapping[str, Signal]


def build_references(loaded: LoadedConfig, plant: Plant | None, problems: Problems) -> dict[str, Signal]:
    """Name in equations -> signal; a wrong reference has all columns that the config uses: only it is reported.

    Without a plant, names that it has too are not noted.
    """
    signals: dict[str, Signal] = {}
    wrong = []
    for reference, values in loaded.config.references.items():
        count = len(problems)
        names, curve = _curve(loaded, reference, values, problems)
        columns = [] if curve is None else [Signal(reference, column, curve, i) for i, column in enumerate(names)]
        for signal in columns:
            what = _wrong_name(signal, plant, signals)
            if what is None:
                signals[signal.name] = signal
            else:
                problems.add(what, "references", reference, "columns" if values.file is not None else "waypoints")
        wrong += [reference] if len(problems) > count else []
    return signals if not wrong else _stand_ins(loaded, wrong) | signals


def _stand_ins(loaded: LoadedConfig, wrong: Iterable[str]) -> dict[str, Signal]:
    """Signals that are 0, for every word of the config that may be a column of a wrong reference."""
    text, zero = str(dict(loaded.document.values)), waypoint_curve(np.array([0.0, 1.0]), np.zeros((2, 1)))
    found = [(name, column) for name in wrong for column in re.findall(rf"\b{re.escape(name)}_(\w+)", text)]
    return {f"{name}_{column}": Signal(name, column, zero, 0) for name, column in found}


def _curve(
    loaded: LoadedConfig, reference: str, values: ReferenceConfig, problems: Problems
) -> tuple[tuple[str, ...], Curve | None]:
    """Names of the columns and the curve; None if it is wrong."""
    if values.file is not None:
        path = loaded.folder / values.file
        kind, time = values.spline or "cubic", values.time or "t"
        names, curve, faults = file_curve(path, time, values.columns, kind, values.extrapolate)
        for field, what in faults:
            problems.add(what, "references", reference, field)
        return names, curve
    points = values.waypoints or ()
    columns = tuple(name for name in points[0] if name != "t")
    places = np.array([[point[name] for name in columns] for point in points])
    if values.extrapolate == "periodic" and not np.array_equal(places[0], places[-1]):
        what = "the first and the last waypoint differ (periodic needs equal ones)"
        problems.add(what, "references", reference, "extrapolate")
        return columns, None
    times = np.array([point["t"] for point in points])
    blend = 0.25 if values.blend is None else values.blend
    profile = values.profile or "quintic"
    curve = finite_curve(lambda: waypoint_curve(times, places, profile, blend, values.extrapolate))
    if curve is None:
        problems.add(NOT_FINITE.format("them"), "references", reference, "waypoints")
    return columns, curve


def _wrong_name(signal: Signal, plant: Plant | None, signals: Signals) -> str | None:
    """Why a signal cannot have its name; None if it can."""
    name, column = signal.name, signal.column
    if not name.isidentifier():
        return f"column {column!r}: {name!r} is no name for equations (rename the column, or leave it out of columns)"
    taken: dict[str, Container[str]] = {"a reserved word": RESERVED}
    if plant is not None:
        taken |= {"a coordinate": plant.coordinates, "a parameter": parameter_fields(plant)}
    for kind, names in taken.items():
        if name in names:
            return f"column {column!r}: '{name}' is {kind} already (rename the reference)"
    if name in signals:
        return f"column {column!r}: '{name}' is a column of reference '{signals[name].reference}' already (rename one)"
    return None


def check_smoothness(
    loaded: LoadedConfig, task: Mapping[str, Constraint], rows: Iterable[Row], problems: Problems
) -> None:
    """Notes references that have fewer continuous derivatives than a row of relative degree above 2 needs."""
    for row in rows:
        for name, signal in task[row.group].signals.items():
            if not isinstance(signal, Signal) or row.degree <= max(2, signal.curve.smoothness):
                continue
            has = f"'{name}' has {signal.curve.smoothness} continuous derivatives"
            values = loaded.config.references[signal.reference]
            field, hint = ("spline", "spline: quintic has 4") if values.file else ("profile", "profile: septic has 3")
            what = f"row {row.name} has relative degree {row.degree}, but {has} ({hint})"
            problems.add(what, "references", signal.reference, field)


def check_spans(loaded: LoadedConfig, signals: Iterable[Signal], problems: Problems) -> None:
    """Notes a run that reaches beyond a reference with extrapolation `error`."""
    duration = loaded.config.run.duration
    for reference, curve in {signal.reference: signal.curve for signal in signals}.items():
        if not (curve.covers(0.0) and curve.covers(duration)):
            span = f"it goes from t = {curve.start:g} to {curve.end:g} s, the run from 0 to {duration:g} s"
            problems.add(f"{span} (shorten the run, or extrapolate: hold)", "references", reference, "extrapolate")


def unreached(signals: Iterable[Signal], start: float, end: float) -> list[Finding]:
    """Warnings about held references of which a run from `start` to `end` [s] sees one value only."""
    findings = []
    for name, curve in {signal.reference: signal.curve for signal in signals}.items():
        if curve.extrapolate != "hold" or (curve.start < end and curve.end > start):
            continue
        rows = f"its rows go from t = {curve.start:g} to {curve.end:g} s, the run from {start:g} to {end:g} s"
        findings.append(Finding(f"references.{name}", f"{rows}: it stands still all the time (shift its times)"))
    return findings
