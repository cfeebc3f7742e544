"""How coarse a period, or a fixed step, the gains of a correction bear.

    held for a period h      z+ = (Ad - Bd K) z,  z = (y, y', ..., y^(r-1)),  y^(r) held:  Ad, Bd hold h^k / k!
    Runge-Kutta step h       |R(s h)| < 1 at the poles s,  R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24

Design: the limit is computed, not tabulated: the largest h at which the error still decays. This analysis is our own;
it takes the plant as exactly linearised and without delay, which is what the law makes of it.
"""

import math
from collections.abc import Sequence

import numpy as np

from servoctl.types import Array


def poles(damping: float, stiffness: float, has_rate: bool, higher: Sequence[float] = ()) -> Array:
    """The violation's poles [1/s] in continuous time.

    Args:
        damping: [1/s].
        stiffness: [1/s^2], or [1/s] for a row without a violation rate.
        has_rate: Whether the row has one.
        higher: Gains of the second and higher derivatives, for raised rows.
    """
    gains = [stiffness, damping, *higher] if has_rate else [stiffness]
    return np.roots([1.0, *reversed(gains)])


def growth(
    damping: float, stiffness: float, has_rate: bool, h: float, held: bool, higher: Sequence[float] = ()
) -> float:
    """Spectral radius of the violation's map over h: below 1 it decays.

    Args:
        damping: As for `poles`.
        stiffness: As for `poles`.
        has_rate: As for `poles`.
        h: Period or step [s].
        held: Whether the command is held over h; else it acts continuously and h is a Runge-Kutta step.
        higher: As for `poles`.
    """
    if not held:
        z = h * poles(damping, stiffness, has_rate, higher)
        return float(np.max(np.abs(1.0 + z + z**2 / 2 + z**3 / 6 + z**4 / 24)))
    gains = np.array([stiffness, damping, *higher] if has_rate else [stiffness])
    r = len(gains)
    powers = [h**k / math.factorial(k) for k in range(r + 1)]
    A = np.array([[powers[j - i] if j >= i else 0.0 for j in range(r)] for i in range(r)])
    B = np.array([powers[r - i] for i in range(r)])
    return float(np.max(np.abs(np.linalg.eigvals(A - np.outer(B, gains)))))


def longest_spacing(
    damping: float, stiffness: float, has_rate: bool, held: bool, higher: Sequence[float] = ()
) -> float:
    """The smallest h [s] from which the violation no longer decays; infinite without feedback.

    Poles at zero (a violation that is let be) do not count. Found by halving between a fine h and the first coarse one
    that is unstable.

    Args:
        damping: As for `poles`.
        stiffness: As for `poles`.
        has_rate: As for `poles`.
        held: As for `growth`.
        higher: As for `poles`.
    """
    if has_rate and not stiffness and not higher:  # the position is let be: the rate alone is a first-order row
        return longest_spacing(0.0, damping, False, held)
    speed = float(np.max(np.abs(poles(damping, stiffness, has_rate, higher))))
    if speed <= 0.0:
        return math.inf
    stable = 1e-2 / speed
    if growth(damping, stiffness, has_rate, stable, held, higher) >= 1.0:
        return 0.0
    unstable = stable
    while growth(damping, stiffness, has_rate, unstable, held, higher) < 1.0:
        stable, unstable = unstable, unstable * 1.1
    for _ in range(60):
        middle = (stable + unstable) / 2
        if growth(damping, stiffness, has_rate, middle, held, higher) < 1.0:
            stable = middle
        else:
            unstable = middle
    return stable
