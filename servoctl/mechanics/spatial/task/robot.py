"""Tasks on a whole robot: its centre of mass, and its joints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from servoctl.engine.trace import trace
from servoctl.errors import TaskError, no_such
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import PointMotion
from servoctl.mechanics.spatial.task.target import (
    Targeted,
    TargetValue,
    TargetValues,
    name_problems,
    read_one,
)
from servoctl.types import Array


@runtime_checkable
class HasCentreOfMass(Protocol):
    """A plant that knows its centre of mass, such as `Robot`."""

    def centre_of_mass(self, q: Array, v: Array) -> PointMotion:
        """Its motion in world axes."""


@dataclass(frozen=True)
class CentreOfMass(Targeted):
    """The centre of all masses follows a point: one row for each axis [m].

    Attributes:
        axes: The world axes that count: some of `x`, `y`, `z`.
        value: The coordinates along them [m].
    """

    axes: Sequence[str]
    value: TargetValues

    units_of_rows = ("m",)

    @property
    def target_fields(self) -> Mapping[str, int | None]:  # type: ignore[override]
        return {"value": len(self.axes)}

    def __post_init__(self) -> None:
        axes = tuple(self.axes)
        if not axes or len(set(axes)) < len(axes) or not set(axes) <= set("xyz"):
            raise TaskError(f"CentreOfMass: axes: expected one to three of x, y, z, got {', '.join(map(str, axes))!r}")
        object.__setattr__(self, "axes", axes)
        super().__post_init__()

    def row_labels(self) -> tuple[str, ...]:
        return tuple(self.axes)

    def problems(self, plant: Plant) -> list[str]:
        if not isinstance(plant, HasCentreOfMass):
            return [f"expected a robot, got {type(plant).__name__} (only a robot has a centre of mass)"]
        return super().problems(plant)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        assert isinstance(plant, HasCentreOfMass)  # `problems` says otherwise
        motion = trace(plant.centre_of_mass, q, v).chosen(["xyz".index(axis) for axis in self.axes])
        rows: Rows = motion.minus(self.course("value", plant, t)).rows
        return rows


@dataclass(frozen=True)
class Posture(Targeted):
    """Coordinates follow values: one row for each [units of the coordinates].

    Attributes:
        joints: Name of a joint, or of any coordinate -> its value.
    """

    joints: Mapping[str, TargetValue]

    target_fields: ClassVar = {"joints": None}

    def __post_init__(self) -> None:
        if not self.joints:
            raise TaskError("Posture: joints: expected at least one joint, got none")
        wrong, read = [], {}
        for name, value in self.joints.items():
            try:
                read[name] = read_one(value)
            except TaskError as error:
                wrong.append(f"Posture: {name}: {error}")
        if wrong:
            raise TaskError("\n".join(wrong))
        object.__setattr__(self, "joints", read)

    def problems(self, plant: Plant) -> list[str]:
        known = list(plant.coordinates)
        found = [no_such("joint", name, known) for name in self.joints if name not in known]
        for name, value in self.joints.items():
            found += [f"{name}: {problem}" for problem in name_problems((value,), plant)]
        return found

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return tuple(plant.coordinates[name] for name in self.joints)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        names = list(plant.coordinates)
        chosen = [names.index(name) for name in self.joints]
        motion = PointMotion(q[chosen], np.eye(len(names))[chosen], v[chosen], np.zeros(len(chosen)))
        return motion.minus(self.course("joints", plant, t)).rows


@dataclass(frozen=True)
class HeldPosture(Constraint):
    """Coordinates keep their values: one row for each [units of the coordinates].

    Design: the values are parameters, so runs from many starts share their compiled code.
    """

    joints: tuple[str, ...]  # names of coordinates
    values: tuple[float, ...]  # their values, in the same order

    kind = "holonomic"

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return tuple(plant.coordinates[name] for name in self.joints)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        names = list(plant.coordinates)
        chosen = [names.index(name) for name in self.joints]
        wanted = np.array(self.values, dtype=object)
        return Rows(np.eye(len(names))[chosen], np.zeros(len(chosen)), q[chosen] - wanted, v[chosen])
