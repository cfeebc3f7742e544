"""The last thing that a torque passes: limits of torque, of its rate, and of where it may push."""

import math
from collections.abc import Callable, Sequence

from hil.drives.settings import DriveSettings
from hil.loop import SECOND


class Limits:
    """Clamps torques, one axis at a time.

    Attributes:
        previous: What each drive was last told, at the joint [actuator unit].
        clamped: Whether the last torque of each axis was changed.
        blocked: Whether the last torque of each axis was blocked by a position limit.
    """

    def __init__(self, drives: Sequence[DriveSettings], period: float, now: Callable[[], int] | None = None) -> None:
        """Takes the drives.

        Args:
            drives: In the order of the actuators.
            period: Of the loop [s]: after a longer time no larger step is allowed.
            now: The run's clock [ns]: after a shorter time, as behind a late tick, a smaller one is; None: each
                torque is a period after the one before.
        """
        self._axes = [(drive.torque_limit, drive.torque_rate_limit, *drive.position_limits) for drive in drives]
        self._period, self._now, self._last = period, now, 0
        self.previous = [0.0] * len(self._axes)
        self.clamped = [False] * len(self._axes)
        self.blocked = [False] * len(self._axes)

    def apply(self, wanted: Sequence[float], positions: Sequence[float]) -> list[float]:
        """Torques that may be sent: finite, within the limits, and not pushing further beyond a position limit.

        Args:
            wanted: At the joints [actuator unit]; one that is not finite becomes 0, by the rate limit.
            positions: Of the joints [joint unit]; NaN blocks nothing. What is blocked is 0 at once.
        """
        elapsed, allowed = self._elapsed(), list(wanted)
        for i, (limit, rate, lower, upper) in enumerate(self._axes):
            torque, last, step = wanted[i], self.previous[i], rate * elapsed
            slow = last - step <= torque <= last + step
            self.blocked[i] = self.clamped[i] = False
            if not (slow and -limit <= torque <= limit and lower <= positions[i] <= upper):  # NaN is neither
                self._clamp(i, allowed, positions[i], step)
        self.previous = allowed
        return allowed.copy()

    def _clamp(self, i: int, torques: list[float], position: float, step: float) -> None:
        """Changes the torque of an axis where a limit asks for it."""
        asked, last, (limit, _, lower, upper) = torques[i], self.previous[i], self._axes[i]
        torque = asked if math.isfinite(asked) else 0.0
        torque = min(max(torque, -limit), limit)
        torque = min(max(torque, last - step), last + step)
        blocked = (position > upper and torque > 0.0) or (position < lower and torque < 0.0)
        if blocked:
            torque = 0.0
        self.blocked[i], self.clamped[i], torques[i] = blocked, torque != asked, torque

    def _elapsed(self) -> float:
        """Time for which the torque before has held, a period at most [s]."""
        if self._now is None:
            return self._period
        now = self._now()
        elapsed, self._last = (now - self._last) / SECOND, now
        return min(elapsed, self._period)

    def forget(self) -> None:
        """After the drives went off: the next torque starts from zero."""
        self.previous = [0.0] * len(self._axes)
