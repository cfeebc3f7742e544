"""The last check before a torque is sent: its size and its rate."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from hil.drives.settings import DriveSettings
from hil.loop import SECOND
from servoctl.types import Array

ROOM = 0.1
"""A drive whose holding torque leaves less room does not keep the others from braking [share of torque_limit]."""


class Limits:
    """Clamps torques: one axis at a time while a law works, together while the machine comes to rest.

    Args:
        period: Period of the loop [s]. The rate limit allows at most the step of one period, also after a gap.
        now: Clock of the run [ns]. After a late tick less time has passed, so a smaller step is allowed. None: every
            torque follows the one before by one period.
    """

    def __init__(self, drives: Sequence[DriveSettings], period: float, now: Callable[[], int] | None = None) -> None:
        self._drives = list(drives)
        self.confine([drive.torque_limit for drive in drives])
        self._period, self._now = period, now
        self.last = 0  # when it was computed [ns]; 0 before the first
        self.previous = [0.0] * len(self._drives)  # [actuator unit] last torque of each drive, at the joint
        self.clamped = [False] * len(self._drives)  # whether the last torque of each axis was changed

    def confine(self, limits: Sequence[float]) -> None:
        """From now on torques stay within these limits, one per drive [actuator unit], and within torque_limit."""
        pairs = zip(self._drives, limits, strict=True)
        # largest torque [actuator unit] and largest change of it [actuator unit/s] of each drive
        self.axes = [(min(drive.torque_limit, limit), drive.torque_rate_limit) for drive, limit in pairs]

    def apply(self, wanted: Sequence[float], held: Sequence[float] | None = None) -> list[float]:
        """Torques that may be sent: finite and within the limits.

        Args:
            wanted: Torques at the joints [actuator unit]. A non-finite one moves to 0 at the rate limit.
            held: The part of them that holds a machine that comes to rest. The other part brakes it and is scaled as a
                whole: axis by axis, a joint would speed up while its neighbour brakes. None: no machine comes to rest.
        """
        elapsed = self._elapsed()
        allowed = list(wanted) if held is None else self._together(wanted, held, elapsed)
        for i, (limit, rate) in enumerate(self.axes):
            torque, last, step = allowed[i], self.previous[i], rate * elapsed
            # written so that NaN fails every comparison and takes the slow path
            if not (last - step <= torque <= last + step and -limit <= torque <= limit):
                torque = min(max(torque if math.isfinite(torque) else 0.0, -limit), limit)
                allowed[i] = min(max(torque, last - step), last + step)
            self.clamped[i] = allowed[i] != wanted[i]
        self.previous = allowed
        return allowed.copy()

    def _together(self, wanted: Sequence[float], held: Sequence[float], elapsed: float) -> list[float]:
        """Torques with the direction of what is wanted: a share of what brakes, then a share of the change."""
        share = change = 1.0
        for torque, hold, (limit, _) in zip(wanted, held, self.axes, strict=True):
            brake = torque - hold
            room = limit - math.copysign(hold, hold * brake)
            share = min(share, room / abs(brake) if abs(brake) > room > ROOM * limit else 1.0)
        goals = []
        for torque, hold, last, (limit, rate) in zip(wanted, held, self.previous, self.axes, strict=True):
            goal = min(max(hold + share * (torque - hold), -limit), limit)
            step = rate * elapsed
            change = min(change, step / abs(goal - last) if abs(goal - last) > step else 1.0)
            goals.append(goal)
        if share == change == 1.0:
            return list(wanted)
        return [last + change * (goal - last) for goal, last in zip(goals, self.previous, strict=True)]

    def _elapsed(self) -> float:
        """Time since the last torque, at most one period [s]."""
        if self._now is None:
            return self._period
        now = self._now()
        elapsed, self.last = (now - self.last) / SECOND, now
        return min(elapsed, self._period)

    def forget(self) -> None:
        """Restarts from zero torque after the drives were switched off."""
        self.previous = [0.0] * len(self.axes)


class WireSteps:
    """Torques in steps of the wire with the mean of those that are wanted: between two steps a light joint would drift.

    Args:
        carried: The torques in the frames that send these, shape (m,).
    """

    def __init__(self, drives: Sequence[DriveSettings], carried: Callable[[Array], Array]) -> None:
        self._limits, self._carried = np.array([drive.torque_limit for drive in drives]), carried
        self.rest = np.zeros(len(drives))  # what the frames have not carried yet [actuator units]; changed in place

    def __call__(self, torques: Array) -> Array:
        """Torques within the limits, which their frames carry exactly, shape (m,) [actuator units]."""
        wanted = np.clip(torques + self.rest, -self._limits, self._limits)
        carried = self._carried(wanted)
        self.rest[:] = wanted - carried
        return carried
