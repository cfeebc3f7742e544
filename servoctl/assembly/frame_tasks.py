"""Tasks on frames of robots: entries of a config -> constraints. Every problem is noted at its field."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from servoctl.assembly.context import Context
from servoctl.config.tasks import FRAME_FORMS, Task
from servoctl.errors import TaskError, remedy
from servoctl.expression import Expression, constant, parse
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import Axis, CentreOfMass, Distance, Orientation, Pose, Position, Posture
from servoctl.mechanics.spatial.task.robot import HeldPosture
from servoctl.reference.curve import Signal
from servoctl.tree.rules import FieldPath
from servoctl.types import State

POSITION, QUATERNION = ("x", "y", "z"), ("qx", "qy", "qz", "qw")
"""Columns of a reference that stand in place of xyz and of rpy."""

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
        given, targets = getattr(self.entry, form), self._targets(FRAME_FORMS[form].words)
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


def held_at(task: Mapping[str, Constraint], plant: Robot, start: State) -> dict[str, Constraint]:
    """The task with each `posture: initial` at another start, which a projection found."""
    q = dict(zip(plant.coordinates, start.q, strict=True))
    return {
        name: replace(constraint, values=tuple(float(q[joint]) for joint in constraint.joints))
        if isinstance(constraint, HeldPosture)
        else constraint
        for name, constraint in task.items()
    }
