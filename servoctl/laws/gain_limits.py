"""How coarse a period, or a fixed step, the gains of a correction bear.

    held for a period h      x+ = (Ad - Bd K) x,  x = (phi, phi'),  K = (stiffness, damping)
    Runge-Kutta step h       |R(s h)| < 1 at the roots of s^2 + damping s + stiffness
                             R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24

Design: the limit is computed, not tabulated: the largest h at which the error still decays. This analysis is our own;
it takes the plant as exactly linearised and without delay, which is what the law makes of it.
"""

import math

import numpy as np


def growth(damping: float, stiffness: float, has_rate: bool, h: float, held: bool) -> float:
    """Spectral radius of the violation's map over h: below 1 it decays.

    Args:
        damping: [1/s].
        stiffness: [1/s^2], or [1/s] for a row without a violation rate.
        has_rate: Whether the row has one.
        h: Period or step [s].
        held: Whether the command is held over h; else it acts continuously and h is a Runge-Kutta step.
    """
    if not held:
        z = h * (np.roots([1.0, damping, stiffness]) if has_rate else np.array([-stiffness]))
        return float(np.max(np.abs(1.0 + z + z**2 / 2 + z**3 / 6 + z**4 / 24)))
    if not has_rate:
        return abs(1.0 - h * stiffness)
    A = np.array([[1.0 - h * h / 2 * stiffness, h - h * h / 2 * damping], [-h * stiffness, 1.0 - h * damping]])
    return float(np.max(np.abs(np.linalg.eigvals(A))))


def longest_spacing(damping: float, stiffness: float, has_rate: bool, held: bool) -> float:
    """The smallest h [s] from which the violation no longer decays; infinite without feedback.

    Found by halving between a fine h and the first coarse one that is unstable.
    """
    speed = max(damping, math.sqrt(stiffness) if has_rate else stiffness)
    if speed <= 0.0 or (has_rate and stiffness <= 0.0):
        return 2.0 / damping if held and damping > 0.0 else (2.785 / damping if damping > 0.0 else math.inf)
    stable = 1e-3 / speed
    if growth(damping, stiffness, has_rate, stable, held) >= 1.0:
        return 0.0
    unstable = stable
    while growth(damping, stiffness, has_rate, unstable, held) < 1.0:
        stable, unstable = unstable, unstable * 1.1
    for _ in range(60):
        middle = (stable + unstable) / 2
        if growth(damping, stiffness, has_rate, middle, held) < 1.0:
            stable = middle
        else:
            unstable = middle
    return stable
