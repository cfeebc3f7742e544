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
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.placement import rotation_to
from servoctl.mechanics.spatial.rotation import HALF_TURN, far_turn, half_angle_ratio, skew
from servoctl.mechanics.spatial.task.pose import OneFrame
from servoctl.mechanics.spatial.task.target import TargetValues, direction_course, numbers, read
from servoctl.mechanics.spatial.task.targeted import naming
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
        rate = d.rate - np.cross(w, d.value)
        drift = d.acceleration + np.cross(d.value, motion.angular_drift) - np.cross(w, d.rate) - np.cross(w, rate)
        return _turn_rows(seen @ d.value, seen @ rate, seen @ skew(d.value) @ motion.angular, seen @ drift)


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


def _turn_rows(c: Array, rate: Array, slope: Array, drift: Array) -> Rows:
    """The rows from the direction c in axes whose third one is to point along it: `c'' = slope q'' + drift`."""
    k = where(1.0 + c[2] > 2.0 * HALF_TURN**2, c[2], np.nan)
    f, f1, f2 = _angle_over_sine(k)
    y, y_rate, y_drift = (np.array([x[1], -x[0]]) for x in (c, rate, drift))
    Y = np.array([slope[1], -slope[0]])
    bend = 2.0 * f1 * rate[2] * y_rate + (f2 * rate[2] * rate[2] + f1 * drift[2]) * y
    return Rows(
        f * Y + f1 * np.outer(y, slope[2]),
        -(f * y_drift + bend),
        f * y,
        f * y_rate + f1 * rate[2] * y,
    )


def _angle_over_sine(k: Any) -> tuple[Any, Any, Any]:
    """`f(k) = acos(k)/sqrt(1 - k^2)` and its first and second derivative; f = r(s) g(s), s = (1 - k)/2."""
    s = (1.0 - k) / 2.0
    r, r1, r2 = half_angle_ratio(s)
    g = 1.0 / np.sqrt(1.0 - s)
    by_s = r1 * g + r * g**3 / 2.0
    twice = r2 * g + r1 * g**3 + 0.75 * r * g**5
    return r * g, -by_s / 2.0, twice / 4.0
