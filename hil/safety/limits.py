"""The last check before a torque is sent: its size, its rate, and its direction beyond a position limit."""

import math
from collections.abc import Callable, Sequence

from hil.drives.settings import DriveSettings
from hil.loop import SECOND


class Limits:
    """Clamps torques, one axis at a time.

    Args:
        drives: In the order of the actuators.
        period: Period of the loop [s]. The rate limit allows at most the step of one period, also after a gap.
        now: Clock of the run [ns]. After a late tick less time has passed, so a smaller step is allowed. None: every
            torque follows the one before by one period.

    Attributes:
        previous: Last torque of each drive, at the joint [actuator unit].
        last: When it was computed [ns]; 0 before the first.
        clamped: Whether the last torque of each axis was changed.
        blocked: Whether the last torque of each axis was blocked by a position limit.
    """

    def __init__(self, drives: Sequence[DriveSettings], period: float, now: Callable[[], int] | None = None) -> None:
        self._axes = [(drive.torque_limit, drive.torque_rate_limit, *drive.position_limits) for drive in drives]
        self._period, self._now, self.last = period, now, 0
        self.previous = [0.0] * len(self._axes)
        self.clamped = [False] * len(self._axes)
        self.blocked = [False] * len(self._axes)

    def apply(self, wanted: Sequence[float], positions: Sequence[float]) -> list[float]:
        """Torques that may be sent: finite, within the limits, and not pushing further beyond a position limit.

        Args:
            wanted: Torques at the joints [actuator unit]. A non-finite one moves to 0 at the rate limit.
            positions: Positions of the joints [joint unit]; NaN blocks nothing. A blocked torque becomes 0 at once.
        """
        elapsed, allowed = self._elapsed(), list(wanted)
        for i, (limit, rate, lower, upper) in enumerate(self._axes):
            torque, last, step = wanted[i], self.previous[i], rate * elapsed
            slow = last - step <= torque <= last + step
            self.blocked[i] = self.clamped[i] = False
            # written so that NaN fails every comparison and takes the slow path
            if not (slow and -limit <= torque <= limit and lower <= positions[i] <= upper):
                self._clamp(i, allowed, positions[i], step)
        self.previous = allowed
        return allowed.copy()

    def _clamp(self, i: int, torques: list[float], position: float, step: float) -> None:
        """Changes the torque of an axis where a limit demands it."""
        wanted, last, (limit, _, lower, upper) = torques[i], self.previous[i], self._axes[i]
        torque = wanted if math.isfinite(wanted) else 0.0
        torque = min(max(torque, -limit), limit)
        torque = min(max(torque, last - step), last + step)
        blocked = (position > upper and torque > 0.0) or (position < lower and torque < 0.0)
        if blocked:
            torque = 0.0
        self.blocked[i], self.clamped[i], torques[i] = blocked, torque != wanted, torque

    def _elapsed(self) -> float:
        """Time since the last torque, at most one period [s]."""
        if self._now is None:
            return self._period
        now = self._now()
        elapsed, self.last = (now - self.last) / SECOND, now
        return min(elapsed, self._period)

    def forget(self) -> None:
        """Restarts from zero torque after the drives were switched off."""
        self.previous = [0.0] * len(self._axes)
