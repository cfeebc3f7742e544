"""Waypoint profiles: every segment goes from rest to rest.

    quintic      s = 10 r^3 - 15 r^4 + 6 r^5                       C2: velocity and acceleration are 0 at each waypoint
    septic       s = 35 r^4 - 84 r^5 + 70 r^6 - 20 r^7             C3: the jerk as well
    trapezoidal  constant acceleration, velocity, deceleration     C1: the acceleration jumps

r is the time since the waypoint divided by the segment's time, s the share of the way.
"""

from typing import Literal

import numpy as np

from servoctl.reference.curve import Curve, Extrapolation
from servoctl.types import Array

Profile = Literal["quintic", "septic", "trapezoidal"]

SMOOTHNESS: dict[str, int] = {"quintic": 2, "septic": 3, "trapezoidal": 1}
"""Profile -> number of continuous derivatives."""


def waypoint_curve(
    times: Array,
    values: Array,
    profile: Profile = "quintic",
    blend: float = 0.25,
    extrapolate: Extrapolation = "hold",
) -> Curve:
    """The curve through waypoints, at rest at each of them.

    Args:
        times: Strictly increasing, shape (waypoints,) [s].
        values: Shape (waypoints, columns).
        profile: Share of the way over the share of the time.
        blend: Share of a segment's time, at each end, in which a trapezoidal profile accelerates, at most 0.5.
        extrapolate: Beyond the first and the last waypoint.
    """
    shares = _shares(profile, blend)
    knots, coefficients = [], []
    for i, duration in enumerate(np.diff(times)):
        way = values[i + 1] - values[i]
        for begin, terms in shares:
            piece = way[:, None] * (terms / duration ** np.arange(len(terms)))
            piece[:, 0] += values[i]
            knots.append(times[i] + begin * duration)
            coefficients.append(piece)
    return Curve(np.array([*knots, times[-1]]), np.array(coefficients), SMOOTHNESS[profile], extrapolate)


def _shares(profile: Profile, blend: float) -> list[tuple[float, Array]]:
    """Pieces of s(r): where they begin, coefficients of powers of (r - begin)."""
    if profile == "quintic":
        return [(0.0, np.array([0.0, 0.0, 0.0, 10.0, -15.0, 6.0]))]
    if profile == "septic":
        return [(0.0, np.array([0.0, 0.0, 0.0, 0.0, 35.0, -84.0, 70.0, -20.0]))]
    speed = 1.0 / (1.0 - blend)  # in the middle, so that the area of the trapezium is 1
    bend = speed / (2.0 * blend)
    pieces = [(0.0, np.array([0.0, 0.0, bend]))]
    if blend < 0.5:
        pieces.append((blend, np.array([speed * blend / 2.0, speed, 0.0])))
    return [*pieces, (1.0 - blend, np.array([1.0 - speed * blend / 2.0, speed, -bend]))]
