"""The longest period, or fixed integration step, at which the gains of a correction are stable.

    held for a period h, d cycles late   z+ = Ad z + Bd w(-d),  w = -K z,  z = (y, y', ..., y^(r-1)):  y^(r) is held
    d + f cycles late, 0 < f < 1         w(-d-1) acts for f h, then w(-d);  with a lag a' = (w - a) / T, y^(r) is a
    velocities from positions            w = -K (y, filtered differences of y),  see `laws.hold.differences`
    explicit Runge-Kutta step h          |R(s h)| < 1 at the poles s,  R(z) = 1 + sum over k of (b A^(k-1) 1) z^k

Design: the limit is computed, not tabulated. It is the largest h at which the violation still decays, from the
eigenvalues of (z, lagging inputs, w(-1), ..., w(-d)) or from the tableau of the method. The analysis is ours. It takes
each row as a chain of integrators, which the law makes of it. A closed form serves as a check: `beta' = -kappa beta`, d
cycles late, is stable for `kappa h < 2 sin(pi / (2 (2 d + 1)))`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from servoctl.laws.hold import close, differences, hold, transition
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

KEPT = 1024  # number of cached results: rows share gains, and the runs of a sweep share rows


class RowFeedback(NamedTuple):
    """Feedback of the violation of one row."""

    damping: float  # [1/s]
    stiffness: float  # [1/s^2], or [1/s] for a row without a violation rate
    has_rate: bool = True  # whether the row has a violation rate
    higher: tuple[float, ...] = ()  # gains on the second and higher derivatives, for rows of `input_output`

    @property
    def gains(self) -> list[float]:
        """K: on the violation, its rate, and so on. Without stiffness the rate takes the place of the violation."""
        gains = [self.stiffness, self.damping, *self.higher] if self.has_rate else [self.stiffness]
        return gains[1:] if self.has_rate and not self.stiffness and not self.higher else gains

    @property
    def poles(self) -> Array:
        """The violation's poles [1/s] in continuous time."""
        return np.roots([1.0, *reversed(self.gains)])

    @property
    def speed(self) -> float:
        """The magnitude of the fastest pole [1/s]; 0 without feedback."""
        return float(np.max(np.abs(self.poles), initial=0.0))


def sampled(gains: Sequence[float], timing: Timing) -> Array:
    """The map of (y, y', ..., y^(r-1), what lags, w(-1), w(-2), ...) over one period.

    Args:
        gains: Gains on the violation, its rate, and so on: `y^(r) = -gains . (y, y', ...)`.
        timing: Of a sampled loop; the longest delay and the largest lag count. With a velocity filter a chain of one
            integrator is a velocity, and the map also has its position, at z = 1. Chains of more than two count as
            measured.
    """
    tau = timing.velocity_filter if len(gains) <= 2 else None
    K = [0.0, *gains] if tau and len(gains) == 1 else list(gains)
    r = len(K)
    chain = hold(np.eye(r, k=1), np.eye(r)[:, -1:], timing.of_one)
    estimate = differences(np.eye(r)[:1], np.eye(r)[:, 1:2], timing.h, tau) if tau else None
    return close(chain, -np.array([K]), estimate).A


@cache
def _stability(method: str) -> Array | None:
    """Coefficients of R, the highest power first; None for methods that are stable at any step or adapt it."""
    if method == "rk4":
        return np.array([1 / 24, 1 / 6, 1 / 2, 1.0, 1.0])
    if method != "dop853":
        return None
    from scipy.integrate import DOP853  # half a second, for such runs alone

    stage, coefficients = np.ones(len(DOP853.B)), [1.0]
    for _ in DOP853.B:
        coefficients.append(float(DOP853.B @ stage))
        stage = DOP853.A[: len(DOP853.B), : len(DOP853.B)] @ stage
    return np.array(coefficients[::-1])


@lru_cache(KEPT)
def growth(row: RowFeedback, timing: Timing, h: float, method: str = "rk4") -> float:
    """Spectral radius of the violation's map over a period or step: it decays below 1; 0: an implicit method.

    Args:
        row: The feedback.
        timing: How it acts, in periods.
        h: Period, or step of the method if the law acts continuously [s].
        method: Integrator of a law that acts continuously.
    """
    return _radius(row, timing, h, method)


def _radius(row: RowFeedback, timing: Timing, h: float, method: str) -> float:
    if timing.period is not None:
        return max(_radius_of_held(row, each, h) for each in timing.extremes)
    R = _stability(method)
    return 0.0 if R is None else float(np.max(np.abs(np.polyval(R, h * row.poles))))


def _radius_of_held(row: RowFeedback, timing: Timing, h: float) -> float:
    gains = row.gains
    with np.errstate(all="ignore"):
        closed = sampled(gains, timing.at(h))
    if not np.isfinite(closed).all():
        return np.inf  # of a period like 1e300 s
    eigenvalues = np.asarray(np.linalg.eigvals(closed), dtype=complex)
    # the position of a velocity row is not controlled: its eigenvalue at 1 does not count
    free = [int(np.argmin(np.abs(eigenvalues - 1.0)))] if timing.velocity_filter and len(gains) == 1 else []
    return float(np.max(np.abs(np.delete(eigenvalues, free))))


@lru_cache(KEPT)
def longest_spacing(row: RowFeedback, timing: Timing, method: str = "rk4") -> float:
    """The smallest h [s] at which the violation no longer decays; infinite without feedback or for a stable method.

    Delay, lag and velocity filter keep their number of periods.

    A position without feedback does not count. The search bisects between a fine h and the first coarse one that is
    unstable.
    """
    if row.speed <= 0.0 or (timing.period is None and _stability(method) is None):
        return math.inf
    stable = 1e-2 / (row.speed * (1 + timing.at(1.0).lateness))
    if _radius(row, timing, stable, method) >= 1.0:
        return 0.0
    unstable = stable
    while _radius(row, timing, unstable, method) < 1.0:
        stable, unstable = unstable, unstable * 1.1
    for _ in range(60):
        middle = (stable + unstable) / 2
        stable, unstable = (middle, unstable) if _radius(row, timing, middle, method) < 1.0 else (stable, middle)
    return stable


@lru_cache(KEPT)
def overshoot(row: RowFeedback, timing: Timing) -> float:
    """How far the violation swings past zero after a step, relative to the step; 1 if it does not decay.

    Args:
        row: The feedback.
        timing: How it acts; velocities count as measured.
    """
    if row.speed <= 0.0:
        return 0.0
    if timing.period is not None:
        each = replace(timing, velocity_filter=None).extremes
        return max(_swing(sampled(row.gains, one)) for one in each)
    companion = np.eye(len(row.gains), k=1)
    companion[-1] = -np.array(row.gains)
    return _swing(transition(companion, SAMPLE / row.speed))


def _swing(step: Array) -> float:
    """How far the first state swings past zero from 1, by its map from sample to sample; 1 if it does not decay."""
    radius = float(np.max(np.abs(np.linalg.eigvals(step))))
    if radius >= 1.0:
        return 1.0
    first = np.zeros((len(step), 1))
    first[0] = 1.0
    following, power = first, step  # doubling: columns z, step z, then the next two, the next four, ...
    while len(following.T) < min(SETTLED / (1.0 - radius), LONGEST):
        following, power = np.hstack([following, power @ following]), power @ power
    return float(np.clip(-following[0].min(), 0.0, 1.0))


SAMPLE = 0.05  # sampling interval of a response in continuous time, in units of 1 / |fastest pole|
SETTLED, LONGEST = 12.0, 1 << 17  # length of a response in slowest time constants, and its largest number of samples
