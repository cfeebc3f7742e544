"""Priorities: each level of task rows is met in the null space of the higher levels.

    u_1 = T_1^+ e_1,                             N_1 = I - T_1^+ T_1
    u_k = u_j + (T_k N_j)^+ (e_k - T_k u_j),     N_k = N_j - (T_k N_j)^+ T_k N_j,     j = k - 1

A level is met exactly if the higher levels and the actuators allow it, else in the sense of least squares. It never
changes a higher level. Of all inputs that do so, u has the least norm, or the least |measure u|.

Design: this is the recursion of `mechanics.hierarchy` with inputs instead of mass-weighted accelerations. The result of
each level, `T_k u_k`, does not depend on the measure, so the measure enters once, in the space that all levels leave
free. The code runs on numbers and on symbols.

Source: Nakamura, Hanafusa, Yoshikawa 1987; Siciliano, Slotine 1991; the recursion as in Orsino 2017, (4.14), (4.15).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.linalg import Decomposition, decompose, frobenius, product
from servoctl.engine.symbol import fmin, where
from servoctl.mechanics.hierarchy import realise
from servoctl.types import Array


@dataclass(frozen=True)
class Prioritised:
    """The inputs, with ranks and residuals."""

    u: Array  # shape (m,)
    free: Array  # projector onto the null space of all levels, shape (m, m)
    ranks: tuple[Any, ...]  # per level: number of directions that it adds to those of the higher levels
    residuals: tuple[Array, ...]  # per level: `e - T u`, shape (r,)
    pivots: tuple[Any, ...]  # per level: smallest pivot counted, relative to its scale; 0 where none is

    @property
    def rank(self) -> Any:
        """Number of directions of all levels together."""
        return sum(self.ranks)

    @property
    def pivot_min(self) -> Any:
        """Smallest pivot counted at any level; 0 at rank 0."""
        # a loop with `where` instead of min(): the pivots may be symbols, and 0 means that a level has none
        smallest: Any = 0.0
        for pivot in self.pivots:
            lower = where(smallest > 0.0, fmin(smallest, pivot), pivot)
            smallest = where(pivot > 0.0, lower, smallest)
        return smallest


def prioritised(
    levels: Sequence[tuple[Array, Array]],
    rank_tolerance: Any,
    scale: Any = None,
    measure: Array | None = None,
) -> Prioritised:
    """Inputs that meet the levels `T u = e` in order.

    Args:
        levels: (T, e) of each, highest first; shapes (r, m) and (r,); at least one level.
        rank_tolerance: A direction counts when its pivot exceeds this times the scale.
        scale: Pivots count relative to this: the size of T before any projection, one for all levels or a sequence of
            one per level. None: |T|_F of each.
        measure: Selects, of all inputs that meet the levels equally well, those of least |measure u|; shape (k, m), for
            weights w diag(sqrt(w)). None: least |u|.

    Raises:
        ValueError: There is no level, or not one scale per level.
    """
    if not levels:
        raise ValueError("levels: expected at least one, got none")
    scales = scale_per_level(levels, scale)
    m = levels[0][0].shape[1]
    u, N = np.zeros(m), np.eye(m)
    splits: list[Decomposition] = []
    for (T, e), size in zip(levels, scales, strict=True):
        step = realise(u, N, T, e, rank_tolerance, size)
        u, N = step.x, step.S
        splits.append(step.split)
    if measure is not None:
        # N is a projector, so u - N z keeps every T_k u_k; z = (measure N)^+ measure u minimises |measure (u - N z)|
        freedom = decompose(product(measure, N), rank_tolerance, frobenius(measure))
        u = u - product(N, freedom.solve(product(measure, u)))
    return Prioritised(
        u,
        N,
        tuple(split.rank for split in splits),
        tuple(e - product(T, u) for T, e in levels),
        tuple(split.pivot_min for split in splits),
    )


def scale_per_level(levels: Sequence[tuple[Array, Array]], scale: Any) -> list[Any]:
    """What the pivots of each level are relative to: a given sequence, one value for all, or None for |T|_F of each.

    Raises:
        ValueError: The sequence does not have one entry per level.
    """
    if scale is None:
        return [frobenius(T) for T, _ in levels]
    scales = list(scale) if isinstance(scale, (Sequence, np.ndarray)) else [scale] * len(levels)
    if len(scales) != len(levels):
        raise ValueError(f"scale: expected one per level ({len(levels)}), got {len(scales)}")
    return scales
