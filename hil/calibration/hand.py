"""A hand that moves an emulated machine without torque: each axis in turn, first in its positive direction.

An axis with stops is pushed against them; if only one is known, twice.

Design: the motion is kinematic. A spline in the axis' own displacement runs through poses that meet the passive
constraints to 1e-12; between them it errs by less than the finest encoder step.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf, isfinite

import numpy as np

from hil.calibration.calibrate import pose_at
from hil.sensing.channels import Displacements
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

REACH = 0.25  # [share of its range] farthest that an axis is moved to each side
MARGIN = 0.1  # part of the way to a position limit that is left
POSES = 60  # poses from the start to the end of a side
CLOSED = 1e-9  # largest error of a pose on the way: where it grows, the machine can move no farther

LEAP = 20.0
"""Largest change of a coordinate from pose to pose, in steps of the axis: beyond, the machine would jump to another
branch."""

MOVING = 0.95  # part of the way from corner to corner in which an axis moves; then it rests there [share of the time]
STILL = 0.06  # [share of the whole] time at the start in which the machine stands still
Motion = Callable[[float], tuple[Array, Array]]  # time since the hand began [s] -> q and v


def hand_motion(
    model: Model,
    displacements: Displacements,
    start: State,
    limits: Sequence[tuple[float, float]],
    duration: float,
    stops: Sequence[tuple[float, float]] | None = None,
) -> Motion:
    """The motion of a hand, which ends at the start pose.

    Args:
        displacements: Those of the drives, then of encoder nodes.
        limits: Lower and upper position limit of each drive [joint unit].
        duration: Time of the whole motion [s].
        stops: Lower and upper stop of each drive [joint unit], infinite where it is not known; None: none is.
    """
    from scipy.interpolate import CubicSpline

    sweeps = []
    room = _finite(stops, limits)
    for axis, (lower, upper) in enumerate(limits):
        here = float(displacements(model.plant, start.q)[axis])
        reach = REACH * (upper - lower)
        low, high = (-inf, inf) if stops is None else stops[axis]
        ends = [
            high - here if isfinite(high) else min(reach, (1 - MARGIN) * (upper - here)),
            low - here if isfinite(low) else -min(reach, (1 - MARGIN) * (here - lower)),
        ]
        (out, ahead), (back, behind) = (_side(model, displacements, start, axis, end, room) for end in ends)
        x, q = np.concatenate([back[:0:-1], out]), np.concatenate([behind[:0:-1], ahead])
        if len(x) > 3:
            highest, lowest = float(x[-1]), float(x[0])
            corners = [highest, lowest]
            if isfinite(high) != isfinite(low):  # one stop tells only what is touched twice
                corners = [highest, lowest, highest] if isfinite(high) else [highest, lowest, 0.0, lowest]
            path = [0.0, *corners, 0.0]
            sweeps.append((CubicSpline(x, q), [b for a, b in pairwise([np.inf, *path]) if a != b]))
    share, first = (1.0 - 2 * STILL) * duration / max(1, len(sweeps)), STILL * duration

    def motion(time: float) -> tuple[Array, Array]:
        number, within = divmod(time - first, share)
        if not 0 <= number < len(sweeps):
            return start.q, np.zeros_like(start.q)
        spline, corners = sweeps[int(number)]
        x, rate = _to_and_fro(within / share, corners)
        q, slope = spline(x), spline(x, 1)
        return q, slope * rate / share

    return motion


def _finite(
    stops: Sequence[tuple[float, float]] | None, limits: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The stops; where there is none, the limit."""
    given = stops or [(-inf, inf)] * len(limits)
    return [
        (low if isfinite(low) else lower, high if isfinite(high) else upper)
        for (low, high), (lower, upper) in zip(given, limits, strict=True)
    ]


def _to_and_fro(phase: float, corners: Sequence[float]) -> tuple[float, float]:
    """From corner to corner with rest at each, and its derivative; the phase goes from 0 to 1."""
    times = np.cumsum([0.0, *(abs(b - a) for a, b in pairwise(corners))])
    times = times / times[-1]
    i = min(len(corners) - 2, int(np.searchsorted(times[1:], phase, side="right")))
    span = MOVING * (times[i + 1] - times[i])
    s = min(1.0, (phase - times[i]) / span)
    change = corners[i + 1] - corners[i]
    return corners[i] + change * (1 - np.cos(np.pi * s)) / 2, change * np.pi * np.sin(np.pi * s) / 2 / span


def _side(
    model: Model,
    displacements: Displacements,
    start: State,
    axis: int,
    end: float,
    limits: Sequence[tuple[float, float]],
) -> tuple[list[float], list[Array]]:
    """Displacements of the axis from 0 to its end, as far as the machine goes there, and the poses."""
    lower, upper = np.array(limits).T
    count = len(limits)
    rest = displacements(model.plant, start.q)[:count]
    moved = np.arange(count) == axis
    channels, xs, poses, q = list(range(count)), [0.0], [start.q], start.q
    for x in np.linspace(0.0, end, POSES + 1)[1:]:
        following, error = pose_at(model, displacements, start.t, q, channels, (rest + x * moved)[channels])
        if not error < CLOSED and len(poses) == 1:  # a closed chain: the other drives must move too
            channels = [axis]
            following, error = pose_at(model, displacements, start.t, q, channels, (rest + x * moved)[channels])
        joints = displacements(model.plant, following)[:count]
        leaps = np.abs(following - q).max() > LEAP * abs(end) / POSES
        outside = (joints < lower - CLOSED).any() or (joints > upper + CLOSED).any()
        if not error < CLOSED or leaps or outside:
            break
        q = following
        xs.append(float(x))
        poses.append(q)
    return xs, poses
