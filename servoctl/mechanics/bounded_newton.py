"""Roots of `error(x) = 0` inside bounds, near a given point.

    step:  least |A d + e|^2 + damping |d|^2      subject to  lower <= x + d <= upper

Design: a Levenberg-Marquardt method whose steps hold components at their bounds. The damping is proportional to |e|, so
that steps become Newton's own close to a root, and the smallest ones where A has more columns than rows. `nearest_root`
then slides along the roots towards a wanted point.

Source: the damping is that of Yamashita, Fukushima 2001.
"""

from collections.abc import Callable

import numpy as np

from servoctl.types import Array

ErrorFunction = Callable[[Array], tuple[Array, Array]]
"""x -> (error, shape (r,), and its Jacobian, shape (r, n)); not finite where there is none."""

STEPS = 200  # most steps of a search; from random starts of seven-joint arms it takes 5 to 40


def bounded_root(error: ErrorFunction, x: Array, lower: Array, upper: Array, good_enough: float = 1e-12) -> Array:
    """The point at which the search ends: a root, or a point from which no step reduces |error|.

    Args:
        error: The equations.
        x: The start inside the bounds, shape (n,).
        lower: Shape (n,); may be -inf.
        upper: Shape (n,); may be inf.
        good_enough: The search ends below this largest |error|.
    """
    value, slope = error(x)
    factor = 1.0
    for _ in range(STEPS):
        size = float(np.linalg.norm(value))  # infinite too where squares overflow
        if not np.isfinite(size) or np.abs(value).max(initial=0.0) < good_enough:
            break
        damping = factor * 1e-3 * size * max(1.0, float(np.abs(slope).max(initial=0.0)))
        step = bounded_step(slope, -value, x, lower, upper, damping)
        trial = np.clip(x + step, lower, upper)
        new_value, new_slope = error(trial)
        if np.isfinite(new_value).all() and float(np.linalg.norm(new_value)) < size:
            x, value, slope, factor = trial, new_value, new_slope, max(factor / 10.0, 1e-9)
        elif factor > 1e12:
            break
        else:
            factor *= 10.0
    return x


def nearest_root(error: ErrorFunction, x: Array, wanted: Array, lower: Array, upper: Array) -> Array:
    """A root from which no step along the roots comes nearer to a wanted point.

    Args:
        error: The equations.
        x: A root.
        wanted: Shape (n,).
        lower: See `bounded_root`.
        upper: See `bounded_root`.
    """
    distance = float(np.linalg.norm(x - wanted))
    for _ in range(STEPS):
        step, held = _step_towards(*error(x), wanted - x, x, lower, upper)
        fraction = 1.0
        while fraction > 1e-3:
            # components that reach a bound stay there while the others return to the roots
            begin, stays = x + fraction * step, held & (fraction == 1.0)
            trial = bounded_root(error, begin, np.where(stays, begin, lower), np.where(stays, begin, upper))
            closer = float(np.linalg.norm(trial - wanted))
            if closer < distance * (1.0 - 1e-12) and np.abs(error(trial)[0]).max(initial=0.0) < 1e-10:
                break
            fraction /= 2.0
        else:
            break
        x, gain, distance = trial, distance - closer, closer
        if gain < 1e-10 * (1.0 + distance):
            break
    return x


def bounded_step(A: Array, e: Array, x: Array, lower: Array, upper: Array, damping: float) -> Array:
    """d of least |A d - e|^2 + damping |d|^2 with components held at the bounds that it would pass, shape (n,)."""
    n = len(x)
    step, free = np.zeros(n), np.ones(n, dtype=bool)
    for _ in range(n):
        columns = A[:, free]
        rest = e - A[:, ~free] @ step[~free]
        gram = columns @ columns.T + damping * np.eye(len(e))
        step[free] = columns.T @ np.linalg.lstsq(gram, rest, rcond=1e-14)[0]
        outside = free & ((x + step > upper) | (x + step < lower))
        if not outside.any():
            break
        step[outside] = np.clip(x + step, lower, upper)[outside] - x[outside]
        free &= ~outside
    return step


def _step_towards(value: Array, A: Array, towards: Array, x: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """d of least |d - towards| with A d + value = 0 inside the bounds, and which components are held there."""
    n = len(x)
    step, free = np.zeros(n), np.ones(n, dtype=bool)
    for _ in range(n):
        rest = -value - A[:, ~free] @ step[~free]
        columns, wish = A[:, free], towards[free]
        step[free] = wish + np.linalg.pinv(columns, rcond=1e-9) @ (rest - columns @ wish)
        outside = free & ((x + step > upper) | (x + step < lower))
        if not outside.any():
            break
        step[outside] = np.clip(x + step, lower, upper)[outside] - x[outside]
        free &= ~outside
    return np.clip(x + step, lower, upper) - x, ~free
