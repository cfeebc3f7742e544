"""Entries of a config: `references` -> signals, frame tasks and `bounds` -> constraints; problems at their fields."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from servoctl.assembly.context import Context
from servoctl.assembly.values import Problems, build_equation
from servoctl.config.bounds import BoundConfig
from servoctl.config.load import LoadedConfig
from servoctl.config.plant import Passive
from servoctl.config.references import ReferenceConfig
from servoctl.config.tasks import FRAME_FORMS, Task
from servoctl.engine.parameters import parameter_fields
from servoctl.errors import Finding, TaskError, no_such, remedy
from servoctl.expression import RESERVED, Expression, constant, parse
from servoctl.laws.bounds import Bound, Bounds, ReactionBound
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.coordinate_bounds import CoordinateRange, CoordinateSpeed, limit_pair
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.shapes import Clearance, SweptSphere, link_problems
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits, joints_without_room
from servoctl.mechanics.spatial.task import (
    Axis,
    CentreOfMass,
    Distance,
    DistanceBound,
    Orientation,
    Pose,
    Position,
    Posture,
)
from servoctl.mechanics.spatial.task.robot import HeldPosture
from servoctl.reference.curve import Curve, Signal, waypoint_curve
from servoctl.reference.table import NOT_FINITE, QUATERNION, file_curve, finite_curve
from servoctl.tree.rules import FieldPath
from servoctl.types import State

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
    text, zero = str(dict(loaded.document.values)), waypoint_curve(np.array([0.0, 1.0]), np.zeros((2, 1)), "quintic")
    found = [(name, column) for name in wrong for column in re.findall(rf"\b{re.escape(name)}_(\w+)", text)]
    return {f"{name}_{column}": Signal(name, column, zero, 0) for name, column in found}


def _curve(
    loaded: LoadedConfig, reference: str, values: ReferenceConfig, problems: Problems
) -> tuple[tuple[str, ...], Curve | None]:
    """Names of the columns and the curve; None if it is wrong."""
    if values.file is not None:
        path = loaded.folder / values.file
        assert values.time is not None and values.spline is not None
        names, curve, faults = file_curve(path, values.time, values.columns, values.spline, values.extrapolate)
        for field, what in faults:
            problems.add(what, "references", reference, field)
        return names, curve
    points, profile = values.waypoints, values.profile
    assert points is not None and profile is not None
    columns = tuple(name for name in points[0] if name != "t")
    places = np.array([[point[name] for name in columns] for point in points])
    if values.extrapolate == "periodic" and not np.array_equal(places[0], places[-1]):
        what = "the first and the last waypoint differ (periodic needs equal ones)"
        problems.add(what, "references", reference, "extrapolate")
        return columns, None
    times = np.array([point["t"] for point in points])
    curve = finite_curve(lambda: waypoint_curve(times, places, profile, values.blend, values.extrapolate))
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


SMOOTHER = {"profile: septic has 3": 3, "a file with spline: quintic has 4": 4}  # waypoints -> continuous derivatives


def check_smoothness(
    loaded: LoadedConfig, task: Mapping[str, Constraint], rows: Iterable[Row], problems: Problems
) -> None:
    """Notes references that have fewer continuous derivatives than a row of relative degree above 2 needs."""
    for row in rows:
        equation = getattr(task[row.group], "equation", None)
        for name, signal in task[row.group].signals.items():
            by_rate = equation is not None and name in equation.rates  # der(name) takes one derivative more
            needed = row.degree + by_rate
            if not isinstance(signal, Signal) or row.degree <= 2 or needed <= signal.curve.smoothness:
                continue
            from_file = bool(loaded.config.references[signal.reference].file)
            field = "spline" if from_file else "profile"
            smoother = {"spline: quintic has 4": 4} if from_file else SMOOTHER
            hint = next((text for text, has in smoother.items() if has >= needed), "an equation in t has all")
            rated = f" and der({name})" if by_rate else ""
            has = f"'{name}' has {signal.curve.smoothness} continuous derivatives"
            what = f"row {row.name} has relative degree {row.degree}{rated}, but {has} ({hint})"
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


POSITION = ("x", "y", "z")  # columns of a reference in place of xyz; `QUATERNION` in place of rpy

FIELDS = {"second": "distance", "first": "distance", "joints": "posture", "axes": "com", "quaternion": "reference"}
"""Field of a class -> key of the entry, where they differ."""


class FrameTask(NamedTuple):
    """An entry with a form on frames, and what its constraint depends on."""

    entry: Task
    path: FieldPath
    plant: Robot
    start: State  # for `posture: initial`
    context: Context

    def build(self) -> Constraint | None:
        """The constraint; None, and problems noted, if it is wrong."""
        form = str(self.entry.form)
        try:
            constraint = self._posture(self.entry.posture) if form == "posture" else self._of_frames(form)
        except TaskError as error:
            for line in str(error).splitlines():
                self._note(line.partition(": ")[2], form)
            return None
        wrong = [] if constraint is None else constraint.problems(self.plant)
        for sentence in wrong:
            self._note(sentence, form)
        return None if wrong else constraint

    def _of_frames(self, form: str) -> Constraint | None:
        """A task on frames, or on the centre of mass; None if its reference is wrong."""
        given, targets = getattr(self.entry, form), self._targets(FRAME_FORMS[form])
        if any(target is None for target in targets.values()):
            return None
        if form == "com":
            return CentreOfMass(given, **targets)
        if form == "distance":
            first, second = given
            point = second if isinstance(second, str) else equations(second, self.context.signals)
            return Distance(first, point, *targets["value"])
        frame = given if form == "axis" else (given,)
        kind: Any = {"pose": Pose, "position": Position, "orientation": Orientation, "axis": Axis}[form]
        made: Constraint = kind(*frame, **targets, relative_to=self.entry.relative_to)
        return made

    def _targets(self, words: Sequence[str]) -> dict[str, Any]:
        """Field of the class -> targets, as equations or columns of the reference; None where they are wrong."""
        targets: dict[str, Any] = {}
        for word in ("xyz", "rpy", "along", "value"):
            texts = getattr(self.entry, word)
            if word in words and texts is not None:
                targets[word] = equations((texts,) if isinstance(texts, str) else texts, self.context.signals)
            elif word in words:
                field, columns = ("xyz", POSITION) if word == "xyz" else ("quaternion", QUATERNION)
                targets[field] = self._columns(columns)
        return targets

    def _posture(self, posture: Any) -> Constraint | None:
        joints = [joint.name for joint in self.plant.tree.joints if joint.leads]
        if isinstance(posture, Mapping):
            return Posture(dict(zip(posture, equations(tuple(posture.values()), self.context.signals), strict=True)))
        if posture == "initial":
            q = dict(zip(self.plant.coordinates, self.start.q, strict=True))
            return HeldPosture(tuple(joints), tuple(float(q[name]) for name in joints))
        columns = self._known()
        wrong = [column for column in columns if column not in self.plant.coordinates]
        for column in wrong:
            what = f"column '{column}' is no joint ({remedy(column, joints)}; list the joints in columns)"
            self.context.problems.add(what, *self.path, "reference")
        targets = self._columns(columns)
        return None if wrong or not targets else Posture(dict(zip(columns, targets, strict=True)))

    def _known(self) -> list[str]:
        """Columns of the entry's reference."""
        return [signal.column for signal in self.context.signals.values() if signal.reference == self.entry.reference]

    def _columns(self, names: Sequence[str]) -> tuple[float | Expression, ...] | None:
        """Columns of the entry's reference as equations; None if one is not there."""
        reference, known = self.entry.reference, self._known()
        missing = [name for name in names if name not in known]
        if reference is None or not known:
            return None  # the reference is wrong
        if missing:
            what = f"'{reference}' has no column {', '.join(missing)} (columns: {', '.join(known)})"
            self.context.problems.add(what, *self.path, "reference")
            return None
        return equations([f"{reference}_{name}" for name in names], self.context.signals)

    def _note(self, sentence: str, form: str) -> None:
        """Notes a problem, `<field of the class>: <what>` or without a field, at the key of the entry."""
        field, colon, what = sentence.partition(": ")
        key = FIELDS.get(field, field)
        known = bool(colon) and key in type(self.entry).model_fields
        self.context.problems.add(what if known else sentence, *self.path, key if known else form)


def equations(texts: Sequence[str], signals: Mapping[str, Signal]) -> tuple[float | Expression, ...]:
    """Numbers, and equations that know the columns of references."""
    parsed = [parse(text).with_signals(signals) for text in texts]
    named = [each.names or each.uses_time for each in parsed]
    return tuple(each if uses else constant(text) for each, uses, text in zip(parsed, named, texts, strict=True))


def of_equation(entry: Task | BoundConfig, path: FieldPath, context: Context) -> Constraint | None:
    """The constraint of an entry with an equation; None, and problems noted, if it is wrong."""
    kind, problems = entry.kind, context.problems
    equation = build_equation(getattr(entry, kind), context.plant, problems, *path, kind, signals=context.signals)
    return None if equation is None else (Holonomic if kind == "holonomic" else Nonholonomic)(equation)


def held_at(task: Mapping[str, Constraint], plant: Robot, start: State) -> dict[str, Constraint]:
    """The task with each `posture: initial` at another start, which a projection found."""
    q = dict(zip(plant.coordinates, start.q, strict=True))
    return {
        name: replace(constraint, values=tuple(float(q[joint]) for joint in constraint.joints))
        if isinstance(constraint, HeldPosture)
        else constraint
        for name, constraint in task.items()
    }


Shape = tuple[str | None, SweptSphere]  # link whose axes it has, None: those of the world; and the shape


def build_shapes(loaded: LoadedConfig, plant: Plant, problems: Problems) -> dict[str, Shape]:
    """Name of a link or obstacle -> its shape, without those that are wrong."""
    values = loaded.config.plant
    shapes: dict[str, Shape] = {name: (None, shape.swept) for name, shape in (values.obstacles or {}).items()}
    for name, shape in (values.shapes or {}).items():
        wrong = link_problems(plant, name, (shape.swept.start, shape.swept.end))
        for sentence in wrong:
            problems.add(sentence, "plant", "shapes", name)
        if not wrong:
            shapes[name] = name, shape.swept
    return shapes


def unused_parts(loaded: LoadedConfig, model: Model) -> list[Finding]:
    """A warning for each shape and obstacle without a bound, each reference that nothing follows, and `plant.passive`
    of a plant without mechanism constraints.
    """
    plant, written = loaded.config.plant, loaded.document.values
    used = {name for entry in loaded.config.bounds for name in entry.clearance or ()}
    parts = {"shapes": plant.shapes or {}, "obstacles": plant.obstacles or {}}
    unused = "no bound uses it, so nothing keeps clear of it (give clearance: [..., {}] in bounds)"
    findings = [
        Finding(f"plant.{part}.{name}", unused.format(name))
        for part, shapes in parts.items()
        for name in shapes
        if name not in used
    ]
    text = str([part for section, part in written.items() if section != "references"])
    for name in loaded.config.references:
        if not re.search(rf"\b{re.escape(name)}(_|\b)", text):
            sentence = f"nothing follows it (write {name}_<column> in an equation, or remove it)"
            findings.append(loaded.finding(sentence, "references", name, severity="warning"))
    if plant.passive != Passive() and not model.passive_rows:
        sentence = "no effect: the plant has no mechanism constraints (remove it)"
        findings.append(loaded.finding(sentence, "plant", "passive", severity="warning"))
    return findings


def build_bounds(loaded: LoadedConfig, context: Context) -> Bounds | None:
    """The bounds of a config, without those that are wrong; None without any. On drives time stands still up to 0."""
    plant, problems = context.plant, context.problems
    shapes = build_shapes(loaded, plant, problems)
    entries: dict[str, Bound] = {}
    for index, entry in enumerate(loaded.config.bounds):
        path: FieldPath = ("bounds", index)
        of = _bound(entry, path, context, shapes)
        if isinstance(of, Constraint):
            for sentence in of.problems(plant):
                problems.add(sentence.removeprefix("value: "), "bounds", index, entry.kind)
            of = of.standing() if context.on_drives else of
        if of is not None:
            entries[entry.name] = Bound(of, entry.rate, entry.acceleration, entry.margin or 0.0)
    if not entries:
        return None
    return Bounds(entries, context.seen, context.estimate_errors)


def _bound(
    entry: BoundConfig, path: FieldPath, context: Context, shapes: Mapping[str, Shape]
) -> Constraint | ReactionBound | None:
    """What an entry keeps at h >= 0; None, and problems noted, if it is wrong."""
    plant, problems, signals = context.plant, context.problems, context.signals
    kind, most = entry.kind, entry.at_most is not None
    given, limit = getattr(entry, kind), (entry.at_most if most else entry.at_least) or 0.0
    if kind in ("holonomic", "nonholonomic"):
        return of_equation(entry, path, context)
    if kind in ("position", "velocity"):
        return _coordinates(given, kind, path, plant, problems)
    if kind == "reaction":
        return ReactionBound(given, limit, most)
    try:
        if kind == "clearance" and all(name in shapes for name in given):
            (link, first), (other, second) = (shapes[name] for name in given)
            return Clearance(first, second, link, other, limit)
        if kind == "distance" and isinstance(plant, Robot):
            frame, to = given
            return DistanceBound(frame, to if isinstance(to, str) else equations(to, signals), limit, most=most)
    except TaskError as error:
        what = str(error).removeprefix("Clearance: value: ")
        problems.add(what, *path, "at_least" if kind == "clearance" else "distance")
    return None


def _coordinates(given: Any, kind: str, path: FieldPath, plant: Plant, problems: Problems) -> Constraint | None:
    if given == "robot":
        limits = _of_robot(plant, kind) if isinstance(plant, Robot) else {}
        if isinstance(plant, Robot) and kind == "position" and (tight := list(joints_without_room(plant.tree))):
            for sentence in tight:
                problems.add(sentence, *path, kind)
            return None
        if not limits:
            problems.add(f"the robot's file gives no {kind} limits (give coordinate -> limits)", *path, kind)
            return None
    else:
        limits = {name: limit_pair(limit) for name, limit in given.items()}
    for name in [name for name in limits if name not in plant.coordinates]:
        problems.add(no_such("coordinate", name, plant.coordinates), *path, kind, name)
        del limits[name]
    if not limits:
        return None
    return CoordinateRange.of(limits) if kind == "position" else CoordinateSpeed.of(limits)


def _of_robot(plant: Robot, kind: str) -> dict[str, tuple[float, float]]:
    """Coordinate -> limits of the robot's file, of the joints that have some."""
    if kind == "position":
        return {name: ends for name, ends in joint_limits(plant.tree).items() if np.isfinite(ends).any()}
    speeds = {name: plant.tree.velocity(name) for name in plant.tree.motors}
    return {name: (-speed, speed) for name, speed in speeds.items() if speed}
