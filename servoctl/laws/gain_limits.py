"""How coarse a period, or a fixed step, the gains of a correction bear.

    held for a period h, d cycles late   z+ = Ad z + Bd w(-d),  w = -K z,  z = (y, y', ..., y^(r-1)):  y^(r) is held
    d + f cycles late, 0 < f < 1         w(-d-1) stands for f h, then w(-d);  with a lag a' = (w - a) / T, y^(r) is a
    velocities from positions            w = -K (y, what the filter makes of y),  as `laws.hold.differences`
    explicit Runge-Kutta step h          |R(s h)| < 1 at the poles s,  R(z) = 1 + sum over k of (b A^(k-1) 1) z^k

Design: the limit is computed, not tabulated: the largest h at which the error still decays, from the eigenvalues of
(z, w(-1), ..., w(-d)) and what lags, or from the tableau of the method. This analysis is our own; it takes the plant as
exactly linearised, which is what the law makes of it. The one-line results that it must meet: `kappa h < 2 sin(pi / (2
(2 d + 1)))` for `beta' = -kappa beta`.
"""

import math
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.integrate import DOP853

from servoctl.laws.hold import close, differences, hold, transition
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


def sampled(gains: Sequence[float], h: float, delay: float = 0, lag: float = 0.0, velocity: float = 0.0) -> Array:
    """The map of (y, y', ..., y^(r-1), what lags, w(-1), w(-2), ...) over one period.

    Args:
        gains: Of the violation, its rate, and so on: `y^(r) = -gains . (y, y', ...)`.
        h: Period [s].
        delay: Cycles between a measurement and the command that answers it; any number >= 0.
        lag: Time constant of what then answers the command, in cycles; 0: none.
        velocity: Time constant of the filter that makes velocities of positions, in cycles; 0: they are measured. A
            chain of one is a velocity, and the map then has its position as well, at z = 1; longer ones than two
            count as measured.
    """
    filtered = velocity > 0.0 and len(gains) <= 2
    K = [0.0, *gains] if filtered and len(gains) == 1 else list(gains)
    r = len(K)
    chain = hold(np.eye(r, k=1), np.eye(r)[:, -1:], h, delay * h, lag * h)
    estimate = differences(np.eye(r)[:1], np.eye(r)[:, 1:2], h, velocity * h) if filtered else None
    return close(chain, -np.array([K]), estimate).A


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
    delay: float = 0,
    method: str = "rk4",
    lag: float = 0.0,
    velocity: float = 0.0,
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
        lag: Of what answers a held command, in cycles.
        velocity: Of the filter that makes velocities of positions for a held command, in cycles; 0: none.
    """
    return _radius(_gains(damping, stiffness, has_rate, higher), h, held, delay, method, lag, velocity)


def _radius(gains: list[float], h: float, held: bool, delay: float, method: str, lag: float, velocity: float) -> float:
    if held:
        found = np.asarray(np.linalg.eigvals(sampled(gains, h, delay, lag, velocity)), dtype=complex)
        let_be = [int(np.argmin(np.abs(found - 1.0)))] if velocity and len(gains) == 1 else []  # a velocity's position
        return float(np.max(np.abs(np.delete(found, let_be))))
    R = _stability(method)
    return 0.0 if R is None else float(np.max(np.abs(np.polyval(R, h * np.roots([1.0, *reversed(gains)])))))


@lru_cache(KEPT)
def longest_spacing(
    damping: float,
    stiffness: float,
    has_rate: bool,
    held: bool,
    higher: tuple[float, ...] = (),
    delay: float = 0,
    method: str = "rk4",
    lag: float = 0.0,
    velocity: float = 0.0,
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
        lag: As for `growth`.
        velocity: As for `growth`.
    """
    gains = _gains(damping, stiffness, has_rate, higher)
    speed = float(np.max(np.abs(np.roots([1.0, *reversed(gains)])), initial=0.0))
    if speed <= 0.0 or (not held and _stability(method) is None):
        return math.inf

    def decays(h: float) -> bool:
        return _radius(gains, h, held, delay, method, lag, velocity) < 1.0

    stable = 1e-2 / (speed * (1 + delay + lag + velocity))
    if not decays(stable):
        return 0.0
    unstable = stable
    while decays(unstable):
        stable, unstable = unstable, unstable * 1.1
    for _ in range(60):
        middle = (stable + unstable) / 2
        stable, unstable = (middle, unstable) if decays(middle) else (stable, middle)
    return stable


@lru_cache(KEPT)
def overshoot(
    damping: float,
    stiffness: float,
    has_rate: bool,
    h: float | None,
    held: bool,
    higher: tuple[float, ...] = (),
    delay: float = 0,
    lag: float = 0.0,
) -> float:
    """How far the violation swings past zero after a step, relative to the step; 1 where it does not decay.

    Args:
        damping: As for `poles`.
        stiffness: As for `poles`.
        has_rate: As for `poles`.
        h: Period [s]; of a law that acts continuously it does not count.
        held: As for `growth`.
        higher: As for `poles`.
        delay: As for `growth`.
        lag: As for `growth`.
    """
    gains = _gains(damping, stiffness, has_rate, higher)
    speed = float(np.max(np.abs(np.roots([1.0, *reversed(gains)])), initial=0.0))
    if speed <= 0.0:
        return 0.0
    if held and h is not None:
        step = sampled(gains, h, delay, lag)
    else:
        companion = np.eye(len(gains), k=1)
        companion[-1] = -np.array(gains)
        step = transition(companion, SAMPLE / speed)
    radius = float(np.max(np.abs(np.linalg.eigvals(step))))
    if radius >= 1.0:
        return 1.0
    first = np.zeros((len(step), 1))
    first[0] = 1.0
    following, power = first, step  # z, then step z, then the next two, the next four, ...
    while len(following.T) < min(SETTLED / (1.0 - radius), LONGEST):
        following, power = np.hstack([following, power @ following]), power @ power
    return float(np.clip(-following[0].min(), 0.0, 1.0))


SAMPLE = 0.05
"""Spacing of the samples of a response in continuous time, in units of 1 / |fastest pole|."""

SETTLED, LONGEST = 12.0, 1 << 17
"""A response is followed for so many of its slowest time constants, and for at most so many samples."""
