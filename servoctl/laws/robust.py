"""Robust and adaptive terms: a bounded force against disturbances of which only the size is known, or not even that.

    beta = phi' + lambda phi (holonomic), psi (nonholonomic),   u = T^+ (b - A a_c - lambda phi' - kappa beta - g)
    robust     g = beta rho^2 / max(|beta| rho, eps)
    adaptive   the same with rho = alpha, eps = alpha^2 / G,   alpha' = rate |beta| - leak alpha   while |beta| > width
    sampled    alpha <- e^(-leak h) alpha + (1 - e^(-leak h)) / leak  rate |beta|

Rows are divided by their scale before any norm. `laws.robust_design` finds lambda, kappa and the numbers.

On the true plant beta' = (1 + E)(-kappa beta - g) + d. With rho >= |d| / (1 + rho_E) and V = |beta|^2 / 2:

    V' <= -(1 + rho_E) (kappa |beta|^2 - eps / 4)
    |beta(t)|^2 <= |beta(0)|^2 e^(-2 (1 + rho_E) kappa t) + eps / (4 kappa) (1 - e^(...))

kappa is the smallest of all rows if they differ, or `mu / (1 + rho_E)` of `laws.uncertainty` for an uncertain plant.

With a disturbance observer of rate L instead, and rows that E does not couple:

    beta / d = s / (s^2 + (1 + E) (kappa + L) s + (1 + E) kappa L),   |beta| settles below sup|d'| / ((1 + E) kappa L)

The observer knows what acted, so it leaves alone what a late command misses: sup|T_n u_n'| (delay + h) / kappa more.

Source: Chen, Zhang 2010 and Zhao et al. 2018 for the three parts of u and the leakage. The bounds are derived here, in
the structure of Chen, Zhang 2010; that with a constant rho (`settled`), the gain budget and the sampled form are ours.
"""

import math
from dataclasses import dataclass

import numpy as np

from servoctl.engine.symbol import where
from servoctl.laws.corrections import sliding_errors
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.types import Array, Command

ESTIMATE = "adaptive.bound"  # name of the adaptive estimate in the controller memory


@dataclass(frozen=True)
class RobustTerm(AttachedTerm):
    """The term of an attached law."""

    members: tuple[int, ...]  # indices of the rows that it acts on
    by_rate: tuple[bool, ...]  # whether beta of such a row is made of the violation rate; else it is the violation
    adaptive: bool  # whether rho is estimated
    timing: Timing  # of the loop
    sliding: tuple[float, ...]  # [1/s] lambda of each row of the task
    scale: tuple[float, ...]  # size by which the violation of each row of the task is divided
    bound: float = 0.0  # rho [scaled acceleration of the rows]; unused by an adaptive term
    layer: float = 0.0  # eps
    rate: float = 0.0  # [1/s^2] growth of the estimate per |beta|
    leak: float = 0.0  # [1/s] its decay
    width: float = 0.0  # |beta| below which it does not grow
    gain: float = math.inf  # [1/s] G, the largest gain on beta

    label = "robust"

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value of the estimate."""
        return {ESTIMATE: 0.0} if self.adaptive else {}

    @property
    def period(self) -> float | None:
        return self.timing.period

    def beta(self, task: Rows) -> Array:
        """beta of the members, divided by their scale."""
        sliding, scale = ([of[i] for i in self.members] for of in (self.sliding, self.scale))
        beta: Array = np.array(sliding_errors(task, self.members, self.by_rate, sliding)) / np.array(scale)
        return beta

    def acceleration(self, at: Terms, memory: Array) -> Array:
        """-g of every row [acceleration of the row]."""
        beta, rho = self.beta(at.task), memory[0] if self.adaptive else self.bound
        # inside the layer |beta| <= edge the gain is rho / edge; without an estimate yet, the layer is empty
        gain, edge = (self.gain, rho / self.gain) if self.adaptive else (rho * rho / self.layer, self.layer / rho)
        square = beta @ beta
        inside = square <= edge * edge
        # the root is of 1 inside, so that its derivative stays finite
        factor = where(inside, gain, rho / np.sqrt(where(inside, 1.0, square)))
        g: Array = np.zeros(len(self.scale), dtype=np.asarray(beta * factor).dtype)
        for i, value in zip(self.members, beta * factor, strict=True):
            g[i] = self.scale[i] * value
        return -g

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        if not self.adaptive:
            return memory
        beta, estimate = self.beta(at.task), memory[0]
        square = beta @ beta
        outside = square > self.width * self.width
        growth = self.rate * where(outside, np.sqrt(where(outside, square, 1.0)), 0.0)
        if self.period is None:
            return np.array([growth - self.leak * estimate])
        leaks = self.leak > 0.0
        leak = where(leaks, self.leak, 1.0)
        share = where(leaks, (1.0 - np.exp(-leak * self.period)) / leak, self.period)
        return np.array([share / self.period * (growth - self.leak * estimate)])


def radius(eps: float, kappa: float) -> float:
    """R: |beta| settles below it whatever rho is [rate of the row, scaled]."""
    return math.sqrt(eps / (4.0 * kappa))


def settled(rho: float, eps: float, kappa: float) -> float:
    """|beta| settles below it for a constant rho; at most `radius`, and equal to it at rho^2 = kappa eps."""
    return rho * eps / (kappa * eps + rho * rho)


def leakage_rms(alpha: float, rate: float, leak: float, kappa: float, gain: float) -> float:
    """Root mean square of beta that a leaking estimate settles below; infinite if there is no bound.

    Averaged, -(leak / rate) (x - alpha) x + x^2 / (4 G) of the estimate x is at most
    c^2 alpha^2 / (4 (c - 1 / (4 G))) with c = leak / rate.

    Args:
        alpha: Size of the disturbance divided by 1 + rho_E.
        rate, leak: Of the estimate [1/s^2], [1/s].
        kappa: Decay rate of beta [1/s].
        gain: G, the gain budget without kappa [1/s].
    """
    c = leak / rate
    rest = c - 1.0 / (4.0 * gain)
    return alpha * math.sqrt(c * c / (4.0 * rest * kappa)) if rest > 0.0 else math.inf


def dead_zone_time(
    alpha: float, rate: float, width: float, kappa: float, gain: float, rho_E: float, beta: float = 0.0
) -> float:
    """Longest total time for which |beta| is above the dead zone [s]; infinite if there is no bound.

    Args:
        alpha, rate, kappa, gain: As of `leakage_rms`.
        width: Of the dead zone.
        rho_E: Worst relative error of the task map.
        beta: |beta| at the start.
    """
    V = beta * beta / 2.0 + (1.0 + rho_E) * alpha * alpha / (2.0 * rate)
    largest = alpha + math.sqrt(2.0 * rate * V / (1.0 + rho_E))  # of the estimate: V never grows outside the zone
    rest = kappa * width * width - largest * largest / (4.0 * gain)
    return V / ((1.0 + rho_E) * rest) if rest > 0.0 else math.inf


def observer_lag(rate: float, period: float, delay: float) -> float:
    """Time by which a held observer follows a disturbance late [s]: 1 / L, half a period, the delay and the hold.

    Args:
        rate: L [1/s].
        delay: From the measurement to the torque [s].
    """
    return period / math.expm1(rate * period) + 1.5 * period + delay


def observed(rate: float, lag: float, kappa: float, rho_E: float, missed: float = 0.0) -> float:
    """|beta| settles below it with a disturbance observer; infinite if rho_E is at or below -1.

    For E below 0 the poles may be complex. The largest answer to a bounded d' is then that of their step response with
    every swing added: coth(pi zeta / (2 sqrt(1 - zeta^2))) times as large.

    Args:
        rate: Largest |d'| [acceleration of the rows per s, scaled].
        lag: Of the observer [s]; 1 / L if it is not held.
        kappa: Decay rate of beta [1/s].
        rho_E: Worst relative error of the task map.
        missed: Largest part of the model's own acceleration that late commands miss [as of `rate`, times s].
    """
    if not rho_E > -1.0:
        return math.inf
    damping, stiffness = (1.0 + rho_E) * (kappa + 1.0 / lag), (1.0 + rho_E) * kappa / lag
    zeta = damping / (2.0 * math.sqrt(stiffness))
    swings = 1.0 if zeta >= 1.0 else 1.0 / math.tanh(math.pi * zeta / (2.0 * math.sqrt(1.0 - zeta * zeta)))
    return (rate / stiffness + missed / kappa) * swings
