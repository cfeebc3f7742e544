"""How coarse a period, or a fixed step, the gains of a correction bear.

    held for a period h, d cycles late   z+ = Ad z + Bd w(-d),  w = -K z,  z = (y, y', ..., y^(r-1)):  y^(r) is held
    explicit Runge-Kutta step h          |R(s h)| < 1 at the poles s,  R(z) = 1 + sum over k of (b A^(k-1) 1) z^k

Design: the limit is computed, not tabulated: the largest h at which the error still decays, from the eigenvalues of
(z, w(-1), ..., w(-d)), or from the tableau of the method. This analysis is our own; it takes the plant as exactly
linearised, which is what the law makes of it. The one-line results that it must meet: `kappa h < 2 sin(pi / (2 (2 d +
1)))` for `beta' = -kappa beta`.
"""

import math
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.integrate import DOP853

from servoctl.types import Array

KEPT = 1024
"""Answers that are kept: rows share gains, and the runs of a sweep share rows."""


def poles(damping: float, stiffness: float, has_rate: bool, higher: Sequence[float] = ()) -> Array:
    """The violation's poles [1/s] in continuous time.

    Args:
        damping: [1/s].
        stiffness: [1/s^2], or [1/s] for a row without a violation rate.
        has_rate: Whether the row has one.
        higher: Gains of the second and higher derivatives, for raised rows.
    """
    return np.roots([1.0, *reversed(_gains(damping, stiffness, has_rate, higher))])


def _gains(damping: float, stiffness: float, has_rate: bool, higher: Sequence[float]) -> list[float]:
    """K: of the violation, its rate, and so on; where the position is let be, the rate is the violation."""
    gains = [stiffness, damping, *higher] if has_rate else [stiffness]
    return gains[1:] if has_rate and not stiffness and not higher else gains


def sampled(gains: Sequence[float], h: float, delay: int = 0) -> Array:
    """The map of (y, y', ..., y^(r-1), w(-1), ..., w(-delay)) over one period, shape (r + delay, r + delay).

    Args:
        gains: Of the violation, its rate, and so on: `y^(r) = -gains . (y, y', ...)`.
        h: Period [s].
        delay: Cycles between a measurement and the hold that answers it.
    """
    r = len(gains)
    powers = [h**k / math.factorial(k) for k in range(r + 1)]
    Ad = np.array([[powers[j - i] if j >= i else 0.0 for j in range(r)] for i in range(r)])
    Bd = np.array([powers[r - i] for i in range(r)])
    if not delay:
        return Ad - np.outer(Bd, gains)
    following = np.zeros((r + delay, r + delay))
    following[:r, :r], following[:r, -1] = Ad, Bd
    following[r, :r] = -np.array(gains)
    following[r + 1 :, r:-1] = np.eye(delay - 1)
    return following


@cache
def _stability(method: str) -> Array | None:
    """Coefficients of R, the highest power first; None for a method that is stable at any step, or sees to it."""
    if method == "rk4":
        return np.array([1 / 24, 1 / 6, 1 / 2, 1.0, 1.0])
    if method != "dop853":
        return None
    stage, coefficients = np.ones(len(DOP853.B)), [1.0]
    for _ in DOP853.B:
        coefficients.append(float(DOP853.B @ stage))
        stage = DOP853.A[: len(DOP853.B), : len(DOP853.B)] @ stage
    return np.array(coefficients[::-1])


@lru_cache(KEPT)
def growth(
    damping: float,
    stiffness: float,
    has_rate: bool,
    h: float,
    held: bool,
    higher: tuple[float, ...] = (),
    delay: int = 0,
    method: str = "rk4",
) -> float:
    """Spectral radius of the violation's map over h: below 1 it decays; 0 under an implicit method.

    Args:
        damping: As for `poles`.
        stiffness: As for `poles`.
        has_rate: As for `poles`.
        h: Period or step [s].
        held: Whether the command is held over h; else it acts continuously and h is a step of the method.
        higher: As for `poles`.
        delay: Cycles of delay of a held command.
        method: Integrator of a command that acts continuously.
    """
    return _radius(_gains(damping, stiffness, has_rate, higher), h, held, delay, method)


def _radius(gains: list[float], h: float, held: bool, delay: int, method: str) -> float:
    if held:
        return float(np.max(np.abs(np.linalg.eigvals(sampled(gains, h, delay)))))
    R = _stability(method)
    return 0.0 if R is None else float(np.max(np.abs(np.polyval(R, h * np.roots([1.0, *reversed(gains)])))))


@lru_cache(KEPT)
def longest_spacing(
    damping: float,
    stiffness: float,
    has_rate: bool,
    held: bool,
    higher: tuple[float, ...] = (),
    delay: int = 0,
    method: str = "rk4",
) -> float:
    """The smallest h [s] from which the violation no longer decays; infinite without feedback, or where none is.

    A position that is let be does not count. Found by halving between a fine h and the first coarse one that is
    unstable.

    Args:
        damping: As for `poles`.
        stiffness: As for `poles`.
        has_rate: As for `poles`.
        held: As for `growth`.
        higher: As for `poles`.
        delay: As for `growth`.
        method: As for `growth`.
    """
    gains = _gains(damping, stiffness, has_rate, higher)
    speed = float(np.max(np.abs(np.roots([1.0, *reversed(gains)])), initial=0.0))
    if speed <= 0.0 or (not held and _stability(method) is None):
        return math.inf

    def decays(h: float) -> bool:
        return _radius(gains, h, held, delay, method) < 1.0

    stable = 1e-2 / (speed * (1 + delay))
    if not decays(stable):
        return 0.0
    unstable = stable
    while decays(unstable):
        stable, unstable = unstable, unstable * 1.1
    for _ in range(60):
        middle = (stable + unstable) / 2
        stable, unstable = (middle, unstable) if decays(middle) else (stable, middle)
    return stable
