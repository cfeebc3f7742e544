"""The deceleration with which drives brake by their own control, from the inertia of the machine."""

from dataclasses import replace

import numpy as np

from hil.assembly.settings import HilSettings
from hil.sensing.gravity import Hold

SHARE = 0.5  # part of what gravity leaves of each torque limit that a ramp uses: the inertia differs from pose to pose
FASTEST_STOP = 0.02  # shortest time from all speed limits to standstill [s]: a ramp of fewer samples is a blow
SLOWEST_STOP = 1.0  # longest such time [s]: a drive that needs longer brakes with all its torque


@np.errstate(over="ignore")  # a torque limit may be tiny
def with_decelerations(settings: HilSettings, start: Hold) -> HilSettings:
    """The rig with the deceleration of each drive; all drives take the same time from their speed limits to rest.

    With that time T each motor i needs the torque sum_j |W_ij| v_j / T at the start pose while all brake at once.

    Args:
        settings: The rig.
        start: What holds the start pose, and the inertia W that the motors see there.
    """
    speeds = np.array([drive.speed_limit for drive in settings.drives])
    limits = np.array([drive.torque_limit for drive in settings.drives])
    left = SHARE * (limits - np.abs(start.u))
    if not (left > 0.0).all():
        return settings
    time = float(np.max(np.abs(start.inertia) @ speeds / left))
    if not np.isfinite(time):
        return settings
    time = min(SLOWEST_STOP, max(FASTEST_STOP, time))
    drives = tuple(replace(drive, deceleration=drive.speed_limit / time) for drive in settings.drives)
    return replace(settings, drives=drives)
