"""The distance between two segments, with derivatives that a law can use.

The points of two segments are `p + s d` and `q + t e` with s, t in [0, 1]. Their squared distance is the least value of

    f(s, t) = |p + s d - q - t e|^2 + mu ( |d|^2 s (s - 1) + |e|^2 t (t - 1) )

with mu = 0, except where the segments are nearly parallel. There the nearest points jump from one end to the other, so
the distance has a kink: its rate drops at once, and its second derivative is not bounded. With mu > 0 the nearest
points slide instead. The added terms are never positive, so the value is never above the true one, and they vanish at
the ends:

    0 <= D_true - D <= SHARE reach     where D = reach, and D = D_true beyond an angle

Design: one formula instead of a switch between cases. f is strictly convex, so its minimum and the derivative of that
are continuous in everything. The second derivative is bounded; it jumps where a nearest point comes to an end.
The idea of an exact lower bound is ours; the minimum over the square is solved as in Ericson 2005, 5.1.9.
"""

from typing import Any

import numpy as np

from servoctl.engine.symbol import clip, maximum, minimum, where
from servoctl.types import Array

SHARE = 0.01  # largest part of `reach` by which the distance of parallel segments is taken smaller than it is
STRONGEST = 1.0 / 16.0  # largest mu
FADES = 16.0  # mu is 0 where the squared sine of the angle is above this many times its largest value
TOUCH = 0.1  # below this part of `reach` the distance is a parabola, because it has no derivative where axes cross


def axis_distance(p: Array, d: Array, length: float, q: Array, e: Array, other: float, reach: Any) -> Any:
    """D, numbers or symbols; finite and within 6 % of reach about 0 where the segments cross.

    Args:
        p: Start of the first segment [m], shape (3,).
        d: From its start to its end [m], shape (3,).
        length: Length of d [m]; it does not depend on the state.
        q: Start of the second segment.
        e: From its start to its end.
        other: Length of e.
        reach: The distance that matters, above 0 [m]; how near the value is to the true one scales with it.
    """
    return _root(_squared_distance(p - q, d, length, e, other, reach), TOUCH * reach)


def _squared_distance(r: Array, d: Array, length: float, e: Array, other: float, reach: Any) -> Any:
    """The least f; r is p - q."""
    if not length or not other:
        return _to_point(r, d, length) if not other else _to_point(-r, e, other)
    dd, ee, de = length**2, other**2, d @ e
    mu = _mu(dd, ee, de, reach)
    along, across = dd * (1.0 + mu), ee * (1.0 + mu)
    first, second = d @ r - mu * dd / 2.0, e @ r + mu * ee / 2.0
    # the minimum of a convex f over a square: over s with t free, then over t, then over s again
    s = clip((de * second - first * across) / (along * across - de * de), 0.0, 1.0)
    t = clip((de * s + second) / across, 0.0, 1.0)
    s = clip((de * t - first) / along, 0.0, 1.0)
    gap = r + s * d - t * e
    return gap @ gap + mu * (dd * s * (s - 1.0) + ee * t * (t - 1.0))


def _to_point(r: Array, d: Array, length: float) -> Any:
    """Squared distance of a segment from the origin; r is its start."""
    if not length:
        return r @ r
    gap = r + clip(-(d @ r) / length**2, 0.0, 1.0) * d
    return gap @ gap


def _mu(dd: float, ee: float, de: Any, reach: Any) -> Any:
    """mu: largest where the segments are parallel, with two derivatives where it becomes 0."""
    most = minimum(8.0 * SHARE * reach**2 / (dd + ee), STRONGEST)
    sine_squared = 1.0 - de * de / (dd * ee)
    return most * maximum(1.0 - sine_squared / (FADES * most), 0.0) ** 3


def _root(square: Any, least: Any) -> Any:
    """The root of a square above `least`, below it the parabola that continues it."""
    far = square > least**2
    return where(far, np.sqrt(where(far, square, least**2)), (square / least + least) / 2.0)
