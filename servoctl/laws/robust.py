"""Robust and adaptive terms: a bounded force against disturbances of which only the size is known, or not even that.

    beta = phi' + lambda phi (holonomic), psi (nonholonomic),   u = T^+ (b - A a_c - lambda phi' - kappa beta - g)
    robust     g = beta rho^2 / max(|beta| rho, eps)
    adaptive   the same with rho = alpha, eps = alpha^2 / G,   alpha' = rate |beta| - leak alpha   while |beta| > width
    sampled    alpha <- e^(-leak h) alpha + (1 - e^(-leak h)) / leak  rate |beta|

Rows are divided by their scale before any norm. `laws.robust_design` finds lambda, kappa and the numbers.

Source: Chen, Zhang 2010 and Zhao et al. 2018 for the three parts of u and the leakage; the bounds of
`laws.ultimate` are derived there. Sampled form and gain budget are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.symbol import where
from servoctl.mechanics.rows import Rows
from servoctl.types import Array

ESTIMATE = "adaptive.bound"  # name of the adaptive estimate in the controller memory


class RobustNumbers(NamedTuple):
    """The numbers of a term, which are parameters of the law."""

    bound: float  # rho [scaled acceleration of the rows]; unused by an adaptive term
    layer: float  # eps
    rate: float  # [1/s^2] growth of the estimate per |beta|
    leak: float  # [1/s] its decay
    width: float  # |beta| below which it does not grow
    gain: float  # [1/s] G, the largest gain on beta


@dataclass(frozen=True)
class RobustTerm:
    """The structure of a bound term."""

    members: tuple[int, ...]  # indices of the rows that it acts on
    by_rate: tuple[bool, ...]  # whether beta of such a row is made of the violation rate; else it is the violation
    adaptive: bool  # whether rho is estimated
    period: float | None  # period of the law [s]; None: the law acts continuously

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value of the estimate."""
        return {ESTIMATE: 0.0} if self.adaptive else {}

    def beta(self, task: Rows, sliding: Sequence[Any], scale: Sequence[Any]) -> Array:
        """beta of the members, divided by their scale."""
        return np.array(
            [
                ((task.violation_rate[i] + sliding[i] * task.violation[i]) if by_rate else task.violation[i]) / scale[i]
                for i, by_rate in zip(self.members, self.by_rate, strict=True)
            ]
        )

    def force(self, beta: Array, scale: Sequence[Any], values: RobustNumbers, estimate: Any) -> Array:
        """g of every row [acceleration of the row].

        Args:
            beta: Of the members, scaled.
            scale: Of every row.
            values: The numbers.
            estimate: Of an adaptive term.
        """
        rho = estimate if self.adaptive else values.bound
        # inside the layer |beta| <= edge the gain is rho / edge; without an estimate yet, the layer is empty
        gain, edge = (
            (values.gain, rho / values.gain) if self.adaptive else (rho * rho / values.layer, values.layer / rho)
        )
        square = beta @ beta
        inside = square <= edge * edge
        # the root is of 1 inside, so that its derivative stays finite
        factor = where(inside, gain, rho / np.sqrt(where(inside, 1.0, square)))
        g: Array = np.zeros(len(scale), dtype=np.asarray(beta * factor).dtype)
        for i, value in zip(self.members, beta * factor, strict=True):
            g[i] = scale[i] * value
        return g

    def rate(self, beta: Array, values: RobustNumbers, estimate: Any) -> Any:
        """The rate of the estimate; sampled: its change over a period, divided by the period."""
        square = beta @ beta
        outside = square > values.width * values.width
        growth = values.rate * where(outside, np.sqrt(where(outside, square, 1.0)), 0.0)
        if self.period is None:
            return growth - values.leak * estimate
        leaks = values.leak > 0.0
        leak = where(leaks, values.leak, 1.0)
        share = where(leaks, (1.0 - np.exp(-leak * self.period)) / leak, self.period)
        return share / self.period * (growth - values.leak * estimate)
