"""The error between two rotations as three numbers, with its exact first and second time derivatives.

    E = R_ref^T R,   w = R^T (w_frame - w_ref),   c = cos(angle/2) = sqrt(1 + tr E)/2

    chord            e = 2 sin(angle/2) axis      e' = G w,   e'' = G w' - |w|^2 e/4,   G = c I + [e]x/2
    rotation vector  phi = angle axis = r(s) e    s = |e|^2/4,   r(s) = asin(sqrt s)/sqrt s

Design: the rotation vector is the default. Its size is the angle, and its derivatives keep full rank up to half a turn.
The chord costs half as much and loses rank as cos(angle/2); it serves where errors stay small, as in closed loops. Both
are NaN close to half a turn, where the axis of the error jumps. The chord is in closed form, because to differentiate
the nine entries of E takes 1.8 to 2.3 times the operations of a task; phi(e) is differentiated.

Source: the derivatives of the chord are ours; the rotation vector is the logarithm of E.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from servoctl.engine.symbol import where
from servoctl.mechanics.spatial.kinematics import FrameMotion, PointMotion
from servoctl.types import Array

HALF_TURN = 0.05  # errors with cos(angle/2) below this, 174.3 deg and more, count as half a turn and are NaN
FAR = 150.0  # [deg] from this angle on, `check` warns about the start
SMALL = 1e-3  # below this s, r(s) and its derivatives come from the series, because the closed forms cancel

SERIES = (1.0, 1 / 6, 3 / 40, 5 / 112, 35 / 1152, 63 / 2816, 231 / 13312)
"""Coefficients of r(s) in powers of s; at `SMALL` the first one left out changes r'' by 2e-16."""


def skew(a: Array) -> Array:
    """[a]x, shape (3, 3): `[a]x b = a x b`."""
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def vee(A: Array) -> Array:
    """a of the skew-symmetric part [a]x of A, shape (3,)."""
    return np.array([A[2, 1] - A[1, 2], A[0, 2] - A[2, 0], A[1, 0] - A[0, 1]]) / 2.0


def chord(E: Array, Rt: Array, angular: Array, w: Array, drift: Array) -> PointMotion:
    """`2 sin(angle/2) axis` of the error, in the frame's axes.

    Args:
        E: Rotation of the frame in its reference, shape (3, 3).
        Rt: Turns vectors of the axes that w is in to those of the frame, shape (3, 3).
        angular: J of the frame's angular velocity, shape (3, n).
        w: Angular velocity of the frame relative to the reference, shape (3,) [rad/s].
        drift: `w' - J q''`, shape (3,) [rad/s^2].
    """
    square: Any = 1.0 + E[0, 0] + E[1, 1] + E[2, 2]
    c = np.sqrt(where(square > 4.0 * HALF_TURN**2, square, np.nan)) / 2.0
    e = vee(E) / c
    G = (c * np.eye(3) + skew(e) / 2.0) @ Rt
    return PointMotion(e, G @ angular, G @ w, G @ drift - (w @ w) / 4.0 * e)


def rotation_vector(E: Array, Rt: Array, angular: Array, w: Array, drift: Array) -> PointMotion:
    """`angle axis` of the error [rad]; see `chord` for the arguments."""
    error = chord(E, Rt, np.eye(3), w, drift).mapped(lambda e: half_angle_ratio(e @ e / 4.0) * e)
    return replace(error, linear=error.linear @ angular)


def half_angle_ratio(s: Any) -> Any:
    """`r(s) = asin(sqrt s)/sqrt s` for 0 <= s < 1; s = sin^2(angle/2)."""
    small = s < SMALL
    root = np.sqrt(where(small, 0.5, s))  # a branch that is not taken must stay finite, and its derivatives too
    series: Any = 0.0
    for coefficient in reversed(SERIES):
        series = series * s + coefficient
    return where(small, series, np.arcsin(root) / root)


def far_turn(error: Array) -> list[str]:
    """A sentence if an error, whose size is its angle [rad], is close to half a turn."""
    angle = float(np.degrees(np.linalg.norm(np.asarray(error, dtype=float))))
    if not angle >= FAR:
        return []
    return [
        f"{angle:.0f} deg from its reference at the start: from 174 deg on, the error has no direction and a run stops "
        "(start nearer, or let the reference begin near the start)"
    ]


def relative_motion(motion: FrameMotion, base: FrameMotion) -> FrameMotion:
    """The motion of one frame seen from another, in the axes of the other.

    With d from the base to the frame and w the angular velocity of the base, `y = R^T d` has `y' = R^T (d' - w x d)`
    and `y'' = R^T (d'' - w' x d - 2 w x d' + w x (w x d))`.
    """
    Rt, w = base.rotation.T, base.angular_velocity
    d, rate = motion.position - base.position, motion.velocity - base.velocity
    drift = motion.drift - base.drift - np.cross(base.angular_drift, d)
    return replace(
        motion,
        rotation=Rt @ motion.rotation,
        position=Rt @ d,
        linear=Rt @ (motion.linear - base.linear + skew(d) @ base.angular),
        angular=Rt @ (motion.angular - base.angular),
        velocity=Rt @ (rate - np.cross(w, d)),
        angular_velocity=Rt @ (motion.angular_velocity - w),
        drift=Rt @ (drift - 2.0 * np.cross(w, rate) + np.cross(w, np.cross(w, d))),
        angular_drift=Rt @ (motion.angular_drift - base.angular_drift - np.cross(w, motion.angular_velocity)),
    )
