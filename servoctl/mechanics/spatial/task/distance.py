"""The distance of two frames, or of a frame and a point: one row, of a task or of a bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.symbol import where
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.task.frame_constraint import FrameConstraint
from servoctl.mechanics.spatial.task.target import TargetValue, TargetValues

NEAREST = 1e-9  # [m] points closer than this have no direction from one to the other


@dataclass(frozen=True)
class Distance(FrameConstraint):
    """The distance of the origin of a frame to another frame's or to a point has a value: one row [m].

    Attributes:
        first: Name of a frame.
        second: Name of another one, or three targets: a point in world axes [m].
        value: The distance [m], above 0.
    """

    first: str
    second: str | TargetValues
    value: TargetValue

    target_fields: ClassVar = {"second": 3, "value": None}
    singularity = "its two points are in one place, so the distance has no direction"

    @property
    def frames(self) -> tuple[str, ...]:
        return (self.first, self.second) if isinstance(self.second, str) else (self.first,)

    def is_target(self, field: str) -> bool:
        return field == "value" or not isinstance(self.second, str)

    def field_problems(self) -> list[str]:
        found = [] if self.first != self.second else [f"second: '{self.first}' is the first frame (name another)"]
        if isinstance(self.value, float) and not self.value > 0.0:
            hint = "to bring two points together use Position" if self.value == 0.0 else "in metres"
            found.append(f"value: expected a distance above 0, got {self.value:g} ({hint})")
        return found

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("m",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        second = self.second
        other = motions[second] if isinstance(second, str) else self.course("second", plant, t)
        gap = motions[self.first].minus(other)
        known = [where(gap.position @ gap.position > NEAREST**2, part, np.nan) for part in gap.position]
        length = replace(gap, position=np.array(known)).mapped(lambda d: np.sqrt(d @ d))
        return length.minus(self.course("value", plant, t)).rows


@dataclass(frozen=True)
class DistanceBound(Distance):
    """The distance of a frame to another frame or to a point stays at or above a value, or below: one row [m].

    Attributes:
        most: Whether the value is the largest distance; else the smallest.
    """

    most: bool = False

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        rows = super().frame_rows(motions, plant, t)
        return Rows(-rows.A, -rows.b, -rows.violation, -rows.violation_rate) if self.most else rows
