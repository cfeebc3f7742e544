"""The distance of two frames, or of a frame and a point: one row, of a task or of a bound.

With `d = p_1 - p_2`, `D = |d|` and `n = d/D`: `D' = n.d'`, `D'' = n.d'' + (|d'|^2 - D'^2)/D`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
        first, wanted = motions[self.first], self.course("value", plant, t)
        d, rate, J, drift = first.position, first.velocity, first.linear, first.drift
        if isinstance(self.second, str):
            other = motions[self.second]
            d, rate, J, drift = d - other.position, rate - other.velocity, J - other.linear, drift - other.drift
        else:
            point = self.course("second", plant, t)
            d, rate, drift = d - point.value, rate - point.rate, drift - point.acceleration
        square = d @ d
        D = np.sqrt(where(square > NEAREST**2, square, np.nan))
        n = d / D
        D_rate = n @ rate
        bend = n @ drift + (rate @ rate - D_rate * D_rate) / D
        return Rows((n @ J).reshape(1, -1), wanted.acceleration - bend, D - wanted.value, D_rate - wanted.rate)


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
