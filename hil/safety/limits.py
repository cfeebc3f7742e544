"""The last check before a torque is sent: its size and its rate."""

from collections.abc import Callable, Sequence

import numpy as np

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

    def apply(self, wanted: Sequence[float], held: Sequence[float] | None = None) -> list[float]:
        """Torques that may be sent: finite and within the limits.

        Args:
            wanted: Torques at the joints [actuator unit]. A non-finite one moves to 0 at the rate limit.
            held: The part of them that holds a machine that comes to rest. The other part brakes it and is scaled as a
                whole. None: no machine comes to rest.
        """
        struct, functions, now = self.struct.c, self.struct.functions, 0 if self._now is None else self._now()
        self._x["wanted"][:] = wanted
        if held is not None:
            self._x["held"][:] = held
        functions.limits_apply(struct, now, self.struct.ffi.NULL if held is None else struct.held)
        functions.limits_keep(struct, now)
        return self.previous

    def forget(self) -> None:
        """Restarts from zero torque after the drives were switched off."""
        self.begin([0.0] * len(self._drives))


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
        # the torque in the frame of a limit may be above the limit, by rounding alone
        carried: Array = np.clip(self._carried(wanted), -self._limits, self._limits)
        self.rest[:] = wanted - carried
        return carried
