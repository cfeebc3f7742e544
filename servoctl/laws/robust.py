"""Robust and adaptive terms: a bounded force against disturbances of which only the size is known, or not even that.

    beta = phi' + lambda phi (holonomic), psi (nonholonomic),   u = T^+ (b - A a_c - lambda phi' - kappa beta - g)
    robust     g = beta rho^2 / max(|beta| rho, eps)
    adaptive   the same with rho = alpha, eps = alpha^2 / G,   alpha' = rate |beta| - leak alpha   while |beta| > width
    sampled    alpha <- e^(-leak h) alpha + (1 - e^(-leak h)) / leak  rate |beta|

Rows are divided by their scale before any norm. `laws.robust_design` finds lambda, kappa and the numbers.

Where beta settles: `check.ultimate_bounds`.

Source: Chen, Zhang 2010 and Zhao et al. 2018 for the three parts of u and the leakage. The gain budget and the
sampled form are ours.
"""

import math
from dataclasses import dataclass

import numpy as np

from servoctl.engine.symbol import where
from servoctl.laws.corrections import sliding_errors
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Rows
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
