"""Rows that keep a bound h >= 0: the least h'' or h' that a law asks for, on numbers or symbols.

    barrier    h'' >= -[(1 - e^(-2 p D)) (h' + p h) + p D h'] / (D (1 + p D / 2))      D: period
    decay      h'  >= -(1 - e^(-p D)) h / D
    speed      h'  >= -h / D
    stopping   h'' >= max(gentle, -min(pos, via)), after which braking by A still ends before the limit

`barrier` and `decay` ask that the next sample satisfies the same condition again; with D -> 0 they are
h'' >= -3 p h' - 2 p^2 h and h' >= -p h. Samples stay at h >= 0 if p D < 2. `stopping` is for a limit of a coordinate.

Source: the exactly sampled form is ours; the continuous one is the exponential barrier of Nguyen, Sreenath 2016.
`pos` and `via`: Del Prete 2018, with the position bound of his published code; `gentle` is ours.
"""

from typing import Any

import numpy as np

from servoctl.engine.symbol import maximum, minimum, where

RATE = 15.0  # [1/s] default of p, at most `SHARE` / period
SHARE = 0.5  # largest default of p times the period
LARGEST = 2.0  # with p times the period from here on, samples leave a bound that they touch


def default_rate(period: float | None) -> float:
    """p [1/s] of a law with this period [s]; None: it acts continuously."""
    return RATE if period is None else min(RATE, SHARE / period)


def barrier(h: Any, rate: Any, p: Any, period: float | None) -> Any:
    """Least h''.

    Args:
        h: The bound, >= 0 inside.
        rate: h'.
        p: Rate of the approach [1/s].
        period: D [s]; None: the law acts continuously.
    """
    if period is None:
        return -3.0 * p * rate - 2.0 * p * p * h
    left = 1.0 - np.exp(-2.0 * p * period)
    return -(left * (rate + p * h) + p * period * rate) / (period * (1.0 + 0.5 * p * period))


def decay(h: Any, p: Any, period: float | None) -> Any:
    """Least h' of a bound on velocities; the arguments of `barrier`."""
    return -p * h if period is None else -(1.0 - np.exp(-p * period)) * h / period


def speed(h: Any, p: Any, period: float | None) -> Any:
    """Least h' of a limit of a velocity, which the next sample may reach; the arguments of `barrier`."""
    return -p * h if period is None else -h / period


def stopping(h: Any, rate: Any, braking: Any, p: Any, period: float | None) -> Any:
    """Least h'' of a limit of a coordinate, before which it can stop.

    Outside the limit the coordinate returns at most with the acceleration `braking`.

    Args:
        h: Distance to the limit.
        rate: h'.
        braking: A, the acceleration away from the limit that is always there.
        p: Rate of the approach close to the limit [1/s].
        period: D [s].
    """
    if period is None:
        return minimum(_gently(h, rate, braking, p, None), where(h > 0.0, np.inf, braking))
    # outside, what a held input adds within a period is taken back within a few periods
    back = _gently(h, rate, braking, where(h > 0.0, p, maximum(p, SHARE / period)), period)
    gently = minimum(where(h > 0.0, back, maximum(back, -rate / period)), braking)  # it moves no further away
    return where(h > 0.0, maximum(gently, -_most_towards(maximum(h, 0.0), -rate, braking, period)), gently)


def _gently(h: Any, rate: Any, A: Any, p: Any, D: float | None) -> Any:
    """Least h'' for `h' >= -alpha(h)`, alpha = A/p (sqrt(1 + 2 p^2 h / A) - 1), which brakes by less than A.

    alpha is p h near the limit and sqrt(2 A h) far from it. Without it a sampled law would brake by A and let go in
    turns at the limit.
    """
    root = np.sqrt(1.0 + 2.0 * p * p * abs(h) / A)
    alpha, slope = where(h > 0.0, 1.0, -1.0) * A / p * (root - 1.0), p / root
    if D is None:
        return -slope * rate - 2.0 * p * (rate + alpha)
    left = 1.0 - np.exp(-2.0 * p * D)
    return -(left * (rate + alpha) + slope * D * rate) / (D * (1.0 + 0.5 * slope * D))


def _most_towards(h: Any, v: Any, A: Any, D: float) -> Any:
    """Largest acceleration towards a limit at the distance h and the speed v towards it."""
    stop = -v / D  # the next sample is at rest
    touch = 2.0 * (h - D * v) / D**2  # the next sample is at the limit
    brake = -v * v / (2.0 * where(h > 0.0, h, 1.0))  # rests at the limit
    reaches = (v > 0.0) * (touch <= stop)
    # at the limit itself rounding would make the braking infinite
    position = where(reaches, minimum(maximum(brake, -A - abs(v) / D), stop), touch)
    # the speed of the next sample from which braking by A still ends at the limit
    b, c = 2.0 * v * D + A * D * D, v * v - 2.0 * A * (h - D * v)
    square = b * b - 4.0 * D * D * c
    root = (-b + np.sqrt(maximum(square, 0.0))) / (2.0 * D * D)
    viable = where(square >= 0.0, maximum(root, stop), stop)
    return minimum(position, viable)
