"""The last thing that a torque passes: limits of torque, of its rate, and of where it may push."""

import math
from collections.abc import Sequence

from hil.drives.settings import DriveSettings


class Limits:
    """Clamps torques, one axis at a time.

    Attributes:
        previous: What each drive was last told, at the joint [actuator unit].
        clamped: Whether the last torque of each axis was changed.
        blocked: Whether the last torque of each axis was blocked by a position limit.
    """

    def __init__(self, drives: Sequence[DriveSettings], period: float) -> None:
        """Takes the drives, and the period of the loop [s]."""
        self._axes = [
            (drive.torque_limit, drive.torque_rate_limit * period, *drive.position_limits) for drive in drives
        ]
        self.previous = [0.0] * len(self._axes)
        self.clamped = [False] * len(self._axes)
        self.blocked = [False] * len(self._axes)

    def apply(self, wanted: Sequence[float], positions: Sequence[float]) -> list[float]:
        """Torques that may be sent: finite, within the limits, and not pushing further beyond a position limit.

        Args:
            wanted: At the joints [actuator unit]; one that is not finite becomes 0, by the rate limit.
            positions: Of the joints [joint unit]; NaN blocks nothing.
        """
        allowed = []
        for i, (limit, step, lower, upper) in enumerate(self._axes):
            torque, position, last = float(wanted[i]), positions[i], self.previous[i]
            asked = torque
            if not math.isfinite(torque):
                torque = 0.0
            blocked = (position > upper and torque > 0.0) or (position < lower and torque < 0.0)
            if blocked:
                torque = 0.0
            torque = min(max(torque, -limit), limit)
            torque = min(max(torque, last - step), last + step)
            self.blocked[i], self.clamped[i] = blocked, torque != asked
            self.previous[i] = torque
            allowed.append(torque)
        return allowed

    def forget(self) -> None:
        """After the drives went off: the next torque starts from zero."""
        self.previous = [0.0] * len(self._axes)
