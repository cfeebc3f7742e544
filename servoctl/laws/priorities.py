"""Priorities: each level of rows is met in the null space of the higher levels.

    u_1 = T_1^+ e_1,                             N_1 = I - T_1^+ T_1
    u_k = u_j + (T_k N_j)^+ (e_k - T_k u_j),     N_k = N_j - (T_k N_j)^+ T_k N_j,     j = k - 1

A level is met exactly if the higher levels and the actuators allow it, else in the sense of least squares. It never
changes a higher level. Of all inputs that do so, u has the least norm.

Design: what the levels take is kept as an orthonormal basis Z, N = I - Z^T Z, and each level is decomposed once for
several right-hand sides. The code runs on numbers and on symbols. One level is T^+.

Source: Nakamura, Hanafusa, Yoshikawa 1987; Siciliano, Slotine 1991; the recursion as in Orsino 2017, (4.14), (4.15).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.decomposition import Decomposition, decompose, frobenius, longer_rows
from servoctl.engine.linalg import product, project
from servoctl.engine.symbol import fmin, where
from servoctl.types import Array


@dataclass(frozen=True)
class Levels:
    """Matrices T of several levels, each decomposed in the null space of the higher ones."""

    maps: tuple[Array, ...]  # T of each, shape (r, m), the highest first
    splits: tuple[Decomposition, ...]  # of each `T N`
    basis: Array  # Z: orthonormal rows that span what all levels take, or zero rows, shape (rows, m)

    @classmethod
    def of(
        cls, maps: Sequence[Array], rank_tolerance: Any, scales: Sequence[Any], free: Any = 1.0, masked: bool = False
    ) -> "Levels":
        """The levels.

        Args:
            maps: T of each, the highest first; at least one.
            rank_tolerance: A direction counts when its pivot exceeds this times the scale.
            scales: Per level: the size of T before any projection.
            free: Per input: 1 where the levels may move it, else 0.
            masked: Whether the first level has rows of zeros in place of absent ones.
        """
        basis, splits = np.zeros((0, maps[0].shape[1])), list[Decomposition]()
        for T, scale in zip(maps, scales, strict=True):
            rows = T * free
            for _ in range(2 if len(basis) else 0):  # the second pass removes what rounding leaves
                rows = project(basis, rows.T).T
            if len(basis):  # rows for which the higher levels leave no room have no effect at all
                rows = longer_rows(rows, rank_tolerance * scale)[1]
            splits.append(decompose(rows, rank_tolerance, scale, masked=masked and not splits))
            basis = np.vstack([basis, splits[-1].row_basis]) if len(basis) else splits[-1].row_basis
        return cls(tuple(maps), tuple(splits), basis)

    def solve(self, targets: Sequence[Array], u: Array) -> tuple[Array, Array]:
        """The inputs that meet `T u = e` level by level, shape (m,), and the size of the terms that they are sums of.

        Args:
            targets: e of each level.
            u: The inputs that do not move, 0 for the others.
        """
        terms = np.abs(u)
        for T, split, e in zip(self.maps, self.splits, targets, strict=True):
            more = split.solve(e - product(T, u))
            u, terms = u + more, terms + np.abs(more)
        return u, terms

    def free(self, s: Array) -> Array:
        """N s: the part of s that no level sees, shape (m,)."""
        rest: Array = s - self.basis.T @ (self.basis @ s)
        return rest

    def least(self, measure: Array, u: Array, rank_tolerance: Any) -> Array:
        """The inputs of least |measure u| among those with the same T u."""
        freedom = measure - (measure @ self.basis.T) @ self.basis
        return u - decompose(freedom, rank_tolerance, frobenius(measure)).solve(measure @ u)

    @property
    def ranks(self) -> tuple[Any, ...]:
        """Per level: number of directions that it adds to those of the higher levels."""
        return tuple(split.rank for split in self.splits)

    @property
    def pivot_min(self) -> Any:
        """Smallest pivot counted at any level, relative to its scale; 0 at rank 0."""
        # a loop with `where` instead of min(): the pivots may be symbols, and 0 means that a level has none
        smallest, *others = (split.pivot_min for split in self.splits)
        for pivot in others:
            lower = where(smallest > 0.0, fmin(smallest, pivot), pivot)
            smallest = where(pivot > 0.0, lower, smallest)
        return smallest
