"""Priorities: levels of task rows, each realised in what the higher ones leave free.

    u_1 = T_1^+ e_1,                             N_1 = I - T_1^+ T_1
    u_k = u_j + (T_k N_j)^+ (e_k - T_k u_j),     N_k = N_j - (T_k N_j)^+ T_k N_j,     j = k - 1

A level is met exactly where the higher ones and the actuators let it, else by least squares; it never costs a higher
one anything. Of all inputs that do so, u is the shortest, or the one of least |measure u|.

Design: the recursion of `mechanics.hierarchy` with the inputs in the place of mass-weighted accelerations. What every
level does, `T_k u_k`, does not depend on the measure, so the measure enters once, in what all levels leave free. It
runs on numbers and on symbols.

Source: Nakamura, Hanafusa, Yoshikawa 1987; Siciliano, Slotine 1991; the recursion as in Orsino 2017, (4.14), (4.15).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.linalg import decompose, frobenius
from servoctl.engine.symbol import minimum, where
from servoctl.mechanics.projection import realise
from servoctl.types import Array


@dataclass(frozen=True)
class Prioritised:
    """The inputs, with their evidence.

    Attributes:
        u: Shape (m,).
        free: Projector onto what no level needs, shape (m, m).
        ranks: Per level: directions that it added to those of the higher ones.
        residuals: Per level: `e - T u`, shape (r,).
        pivots: Per level: smallest pivot counted, relative to its scale; 0 where none is.
    """

    u: Array
    free: Array
    ranks: tuple[Any, ...]
    residuals: tuple[Array, ...]
    pivots: tuple[Any, ...]

    @property
    def rank(self) -> Any:
        """Directions of all levels together."""
        return sum(self.ranks)

    @property
    def pivot_min(self) -> Any:
        """Smallest pivot counted at any level; 0 at rank 0."""
        smallest: Any = 0.0
        for pivot in self.pivots:
            lower = where(smallest > 0.0, minimum(smallest, pivot), pivot)
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
        scale: What pivots are measured against, one for all levels or a sequence of one per level: the size of T
            before any projection. None: |T|_F of each.
        measure: Of all inputs that do for the levels what they can, those of least |measure u|; shape (k, m); for
            weights w, diag(sqrt(w)). None: least |u|.

    Raises:
        ValueError: There is no level, or not one scale per level.
    """
    if not levels:
        raise ValueError("levels: expected at least one, got none")
    scales = [frobenius(T) for T, _ in levels] if scale is None else scale
    scales = list(scales) if isinstance(scales, (Sequence, np.ndarray)) else [scales] * len(levels)
    if len(scales) != len(levels):
        raise ValueError(f"scale: expected one per level ({len(levels)}), got {len(scales)}")
    m = levels[0][0].shape[1]
    u, N = np.zeros(m), np.eye(m)
    splits = []
    for (T, e), size in zip(levels, scales, strict=True):
        step = realise(u, N, T, e, rank_tolerance, size)
        u, N = step.x, step.S
        splits.append(step.split)
    if measure is not None:
        freedom = decompose(measure @ N, rank_tolerance, frobenius(measure))
        u = u - N @ freedom.solve(measure @ u)
    return Prioritised(
        u,
        N,
        tuple(split.rank for split in splits),
        tuple(e - T @ u for T, e in levels),
        tuple(split.pivot_min for split in splits),
    )
