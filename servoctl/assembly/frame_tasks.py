"""Tasks on frames of robots: entries of a config -> constraints. Every problem is noted at its field."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from servoctl.assembly.values import Problems
from servoctl.config.document import FieldPath
from servoctl.config.tasks import Task
from servoctl.errors import TaskError
from servoctl.expression import Expression, constant, parse
from servoctl.expression.suggest import remedy
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import Axis, CentreOfMass, Distance, Orientation, Pose, Position, Posture
from servoctl.mechanics.spatial.task.robot import HeldPosture
from servoctl.reference.curve import Signal
from servoctl.types import State

POSITION, QUATERNION = ("x", "y", "z"), ("qx", "qy", "qz", "qw")
"""Columns of a reference that stand in place of xyz and of rpy."""

FIELDS = {"second": "distance", "first": "distance", "joints": "posture", "axes": "com", "quaternion": "reference"}
"""Field of a class -> key of the entry, where they differ."""


class FrameTask:
    """Builds the constraint of one entry.

    Args:
        entry: An entry with a form on frames.
        start: The start, for `posture: initial`.
    """

    def __init__(
        self,
        entry: Task,
        path: FieldPath,
        plant: Robot,
        start: State,
        problems: Problems,
        signals: Mapping[str, Signal],
    ) -> None:
        self._entry, self._path, self._plant, self._start = entry, path, plant, start
        self._problems, self._signals = problems, signals

    def build(self) -> Constraint | None:
        """The constraint; None, and problems noted, if it is wrong."""
        form = self._entry.form
        assert form is not None
        make: Mapping[str, Callable[[Any], Constraint | None]] = {
            "pose": self._pose, "position": self._position, "orientation": self._orientation, "axis": self._axis,
            "distance": self._distance, "com": self._com, "posture": self._posture,
        }  # fmt: skip
        try:
            constraint = make[form](getattr(self._entry, form))
        except TaskError as error:
            for line in str(error).splitlines():
                self._note(line.partition(": ")[2], form)
            return None
        wrong = [] if constraint is None else constraint.problems(self._plant)
        for sentence in wrong:
            self._note(sentence, form)
        return None if wrong else constraint

    def _pose(self, frame: str) -> Constraint | None:
        xyz, rotation = self._xyz(), self._rotation()
        if xyz is None or rotation is None:
            return None
        return Pose(frame, xyz, **rotation, relative_to=self._entry.relative_to)

    def _position(self, frame: str) -> Constraint | None:
        xyz = self._xyz()
        return None if xyz is None else Position(frame, xyz, self._entry.relative_to)

    def _orientation(self, frame: str) -> Constraint | None:
        rotation = self._rotation()
        return None if rotation is None else Orientation(frame, **rotation, relative_to=self._entry.relative_to)

    def _axis(self, axis_of_frame: tuple[str, Any]) -> Constraint:
        frame, axis = axis_of_frame
        return Axis(frame, axis, self._equations(self._entry.along or ()), self._entry.relative_to)

    def _distance(self, pair: tuple[str, Any]) -> Constraint:
        (first, second), (value,) = pair, self._equations(self._entry.value or ())
        return Distance(first, second if isinstance(second, str) else self._equations(second), value)

    def _com(self, axes: tuple[str, ...]) -> Constraint:
        return CentreOfMass(axes, self._equations(self._entry.value or ()))

    def _posture(self, posture: str | Mapping[str, str]) -> Constraint | None:
        q = dict(zip(self._plant.coordinates, self._start.q, strict=True))
        if isinstance(posture, Mapping):
            return Posture(dict(zip(posture, self._equations(tuple(posture.values())), strict=True)))
        if posture == "initial":
            return HeldPosture(tuple(self._joints()), tuple(float(q[name]) for name in self._joints()))
        return self._guided()

    def _guided(self) -> Constraint | None:
        """Joints that follow the columns of a reference that are named as joints."""
        columns = [signal.column for signal in self._signals.values() if signal.reference == self._entry.reference]
        for column in columns:
            if column not in self._plant.coordinates:
                what = f"column '{column}' is no joint ({remedy(column, self._joints())}; list the joints in columns)"
                self._problems.add(what, *self._path, "reference")
        targets = self._columns(columns)
        return (
            None
            if not targets or not set(columns) <= set(self._plant.coordinates)
            else Posture(dict(zip(columns, targets, strict=True)))
        )

    def _joints(self) -> list[str]:
        """Joints with a coordinate of their own; a free base has none."""
        return [joint.name for joint in self._plant.tree.joints if joint.follows is None and joint.kind != "free"]

    def _xyz(self) -> Any:
        """Targets of the position; None if they are wrong."""
        return self._columns(POSITION) if self._entry.xyz is None else self._equations(self._entry.xyz)

    def _rotation(self) -> dict[str, Any] | None:
        """`rpy` or `quaternion`; None if it is wrong."""
        if self._entry.rpy is not None:
            return {"rpy": self._equations(self._entry.rpy)}
        columns = self._columns(QUATERNION)
        return None if columns is None else {"quaternion": columns}

    def _equations(self, texts: str | Sequence[str]) -> tuple[float | Expression, ...]:
        """Numbers, and equations that know the columns of references."""
        return equations((texts,) if isinstance(texts, str) else texts, self._signals)

    def _columns(self, names: Sequence[str]) -> tuple[float | Expression, ...] | None:
        """Columns of the entry's reference as equations; None if one is not there."""
        reference = self._entry.reference
        there = [signal.column for signal in self._signals.values() if signal.reference == reference]
        missing = [name for name in names if name not in there]
        if reference is None or not there:
            return None  # the reference is wrong
        if missing:
            what = f"'{reference}' has no column {', '.join(missing)} (columns: {', '.join(there)})"
            self._problems.add(what, *self._path, "reference")
            return None
        return self._equations([f"{reference}_{name}" for name in names])

    def _note(self, sentence: str, form: str) -> None:
        """Notes a problem, `<field of the class>: <what>` or without a field, at the key of the entry."""
        field, colon, what = sentence.partition(": ")
        key = FIELDS.get(field, field)
        if colon and key in type(self._entry).model_fields:
            self._problems.add(what, *self._path, key)
        else:
            self._problems.add(sentence, *self._path, form)


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
