"""An axis of a frame points in a direction: two rows, and the spin about the axis stays free.

With unit vectors a of the axis and d of the direction, `c = R^T d` in the frame's axes, `k = a.c = cos(angle)`:

    phi = f(k) (c x a),   f = angle/sin(angle)

Its two components at right angles to a are the rows: the rotation vector of the shortest turn from d to a.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.symbol import where
from servoctl.errors import TaskError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.mechanics.spatial.placement import rotation_to
from servoctl.mechanics.spatial.rotation import HALF_TURN, far_turn, half_angle_ratio, skew
from servoctl.mechanics.spatial.task.pose import OneFrame
from servoctl.mechanics.spatial.task.target import TargetValues, direction_course, naming, numbers, read
from servoctl.types import Array

LETTERS = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
LETTERS |= {f"-{name}": (-x, -y, -z) for name, (x, y, z) in LETTERS.items()}


@dataclass(frozen=True)
class Axis(OneFrame):
    """An axis of a frame points in a direction: two rows [rad].

    Attributes:
        frame: Its name.
        axis: `x`, `y`, `z`, `-x`, `-y`, `-z`, or three numbers: a direction in the frame's axes.
        along: The wanted direction, of any length but 0.
        relative_to: The frame in whose axes `along` is; None: the world.
    """

    frame: str
    axis: str | Sequence[float]
    along: TargetValues
    relative_to: str | None = None

    target_fields: ClassVar = {"along": 3}
    singularity = "its axis points opposite to its direction"

    def warnings(self, violation: Array) -> list[str]:
        return far_turn(violation)

    def field_problems(self) -> list[str]:
        found = super().field_problems()
        along = numbers(self.along)
        if along is not None and not any(along):
            found.append("along: all three components are 0 (give a direction)")
        try:
            object.__setattr__(self, "axis", _direction(self.axis))
        except TaskError as error:
            found.append(f"axis: {error}")
        return found

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return ("rad",)

    def frame_rows(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Rows:
        motion = self.motion(motions)
        with naming("along"):
            d = direction_course(self.along, plant, t, self._time(t))
        axis = LETTERS[self.axis] if isinstance(self.axis, str) else self.axis
        w, seen = motion.angular_velocity, rotation_to(axis).T @ motion.rotation.T
        # c = R^T d, so c' = R^T (d' - w x d) and c'' = R^T (d'' + d x w' - w x d' - w x (d' - w x d))
        rate = d.velocity - np.cross(w, d.position)
        drift = d.drift + np.cross(d.position, motion.angular_drift) - np.cross(w, d.velocity) - np.cross(w, rate)
        toward = seen @ d.position
        known = np.array([where(1.0 + toward[2] > 2.0 * HALF_TURN**2, part, np.nan) for part in toward])
        c = PointMotion(known, seen @ skew(d.position) @ motion.angular, seen @ rate, seen @ drift)
        return c.mapped(_turn).rows


def _direction(axis: Any) -> str | tuple[float, ...]:
    """A letter, or three numbers."""
    if isinstance(axis, str):
        if axis not in LETTERS:
            raise TaskError(f"expected one of {', '.join(LETTERS)} or three numbers, got {axis!r}")
        return axis
    components = numbers(read(axis, 3))
    if components is None:
        raise TaskError(f"expected one of {', '.join(LETTERS)} or three numbers, got {axis!r}")
    if not any(components):
        raise TaskError("all three components are 0 (give a direction)")
    return tuple(components)


def _turn(c: Array) -> Array:
    """The two rows from the direction c in axes whose third one is to point along it."""
    s = (1.0 - c[2]) / 2.0
    turn: Array = half_angle_ratio(s) / np.sqrt(1.0 - s) * np.array([c[1], -c[0]])
    return turn
