"""The last check before a torque is sent: its size and its rate, in C (`hil/core/c/limits.c`)."""

from collections.abc import Callable, Sequence

from hil.core.structs import Calls, Struct
from hil.drives.settings import DriveSettings
from servoctl.types import Array


class Limits:
    """Clamps torques: one axis at a time while a law works, together while the machine comes to rest.

    Args:
        period: Period of the loop [s]. The rate limit allows at most the step of one period, also after a gap.
        now: Clock of the run [ns]. After a late tick less time has passed, so a smaller step is allowed. None: every
            torque follows the one before by one period.
    """

    def __init__(self, drives: Sequence[DriveSettings], period: float, now: Callable[[], int] | None = None) -> None:
        self._drives, self._now = list(drives), now
        self.struct = Struct("limits", {"m": len(drives)}, Calls())  # what C computes with, and remembers
        self.struct.c.m, self.struct.c.period, self.struct.c.timed = len(drives), period, now is not None
        self._x = self.struct.arrays
        self._x["steepest"][:] = [drive.torque_rate_limit for drive in drives]
        self.confine([drive.torque_limit for drive in drives])

    def confine(self, limits: Sequence[float]) -> None:
        """From now on torques stay within these limits, one per drive [actuator unit], and within torque_limit."""
        pairs = zip(self._drives, limits, strict=True)
        self._x["largest"][:] = [min(drive.torque_limit, limit) for drive, limit in pairs]

    def begin(self, torques: Sequence[float] | Array) -> None:
        """The next torques follow these, one per drive [actuator unit]."""
        self._x["previous"][:] = torques

    @property
    def previous(self) -> list[float]:
        """Last torque of each drive, at the joint [actuator unit]."""
        previous: list[float] = self._x["previous"].tolist()
        return previous

    @property
    def clamped(self) -> list[bool]:
        """Whether the last torque of each axis was changed."""
        clamped: list[bool] = self._x["clamped"].astype(bool).tolist()
        return clamped

    @property
    def now(self) -> int:
        """Present time by which torques are limited [ns]; 0 without a clock."""
        return 0 if self._now is None else self._now()

    def forget(self) -> None:
        """Restarts from zero torque after the drives were switched off."""
        self.begin([0.0] * len(self._drives))
