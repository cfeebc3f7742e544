"""Allocation: which inputs to use if several meet `T u = e`.

    minimum_norm         least |u|
    weighted             least u^T diag(w) u
    unprojected          u = W^T (T W^T)^+ e,  W = A M^-1 B: the published implicit solution
    constraint_force     least (B u)^T M^-1 (B u): the force of an ideal constraint (Gauss's principle)
    least_acceleration   least |M^-1 B u|

Source: Chen 2009; Liu et al. 2015, (35), (71). As printed, (71) ignores the reaction of the passive constraints to u
and misses the task; `unprojected` is its fixed point with that reaction. Udwadia 2008 for weighted norms. Zhao et al.
2018, (72) uses constraint_force for the feedforward and least_acceleration for the feedback.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from servoctl.engine.linalg import decompose, frobenius, solve_upper
from servoctl.laws.preload import ReactionRows
from servoctl.laws.priorities import Prioritised, prioritised
from servoctl.mechanics.terms import Terms
from servoctl.types import Array

Allocation = Literal["minimum_norm", "weighted", "unprojected", "constraint_force", "least_acceleration"]


class Allocator:
    """`T = A Phi B` at one state, decomposed once and solved for several right-hand sides."""

    def __init__(
        self,
        terms: Terms,
        rank_tolerance: Any,
        levels: Sequence[Sequence[int]] = (),
        reactions: ReactionRows | None = None,
    ) -> None:
        """Decomposes T.

        Args:
            levels: Indices of the rows of each priority, highest first; fewer than two: all rows have one priority.
            reactions: Rows below those of the task; `levels` has their indices too.
        """
        self._terms, self._rank_tolerance, self._reactions = terms, rank_tolerance, reactions
        # T, shape (r, m), with the rows of reactions below those of the task
        self.task_map = terms.task_map if reactions is None else np.vstack([terms.task_map, reactions.T])
        self._levels = [list(level) for level in levels] if len(levels) > 1 else []
        if self._levels:
            inputs = self._prioritised(np.zeros(len(self.task_map)), None)
            # ranks: per level: number of directions that it adds to those of the higher levels
            # pivot_min: smallest pivot counted, relative to its scale; 0 at rank 0
            self.pivot_min, self._free, self.ranks = inputs.pivot_min, inputs.free, inputs.ranks
            of_task = [level[0] < len(terms.rows) for level in self._levels]
            # number of directions counted, all levels of the task together
            self.rank = sum(rank for rank, counts in zip(self.ranks, of_task, strict=True) if counts)
        else:
            self._split = decompose(self.task_map, rank_tolerance, terms.scale)
            self.rank, self.pivot_min = self._split.rank, self._split.pivot_min
            self.ranks = (self.rank,)

    def free(self, s: Array) -> Array:
        """(I - T^+ T) s: the part of s in the null space of the task, shape (m,)."""
        if self._levels:
            part: Array = self._free @ s
            return part
        Z = self._split.row_basis
        rest: Array = s - Z.T @ (Z @ s)
        return rest

    def solve(self, kind: str, rhs: Array, weights: Array | None = None) -> Array:
        """The inputs that meet `T u = rhs`, exactly or in the sense of least squares, shape (m,).

        Args:
            kind: One of `Allocation`.
            rhs: e, shape (r,).
            weights: For `weighted`: shape (m,), positive; None: all 1.
        """
        if self._levels:
            return self._prioritised(rhs, self.measure(kind, weights)).u
        if kind == "minimum_norm":
            return self._split.solve(rhs)
        if kind == "weighted":
            # with y = sqrt(w) u the weighted norm of u is the plain norm of y
            root = np.sqrt(np.ones(len(self.task_map[0])) if weights is None else weights)
            inputs = self._terms.inputs / root
            scale = frobenius(self._terms.rows) * frobenius(inputs)
            return decompose(self.task_map / root, self._rank_tolerance, scale).solve(rhs) / root
        if kind == "unprojected":
            W = self._terms.rows @ self._terms.inputs
            scale = self._terms.scale * frobenius(W)
            u: Array = W.T @ decompose(self.task_map @ W.T, self._rank_tolerance, scale).solve(rhs)
            return u
        measure = self.measure(kind, weights)
        assert measure is not None
        return self._least(measure, self._split.solve(rhs))

    def measure(self, kind: str, weights: Array | None = None) -> Array | None:
        """The matrix of the norm |measure u| that an allocation minimises, shape (k, m); None for |u| itself."""
        if kind == "weighted":
            return np.diag(np.sqrt(np.ones(len(self.task_map[0])) if weights is None else weights))
        if kind == "constraint_force":
            return self._terms.inputs
        return solve_upper(self._terms.L, self._terms.inputs) if kind == "least_acceleration" else None

    def scales(self, weights: Array | None = None) -> list[Any]:
        """The size that the pivots of each level are relative to, with inputs weighted or not."""
        inputs = self._terms.inputs if weights is None else self._terms.inputs / np.sqrt(weights)
        return [self._scale(level, frobenius(inputs)) for level in self.levels]

    @property
    def levels(self) -> list[list[int]]:
        """Indices of the rows of each priority, highest first."""
        return self._levels or [list(range(len(self.task_map)))]

    def _scale(self, level: list[int], inputs: Any) -> Any:
        rows = self._terms.rows
        if self._reactions is not None and level[0] >= len(rows):
            return self._reactions.size * inputs
        return frobenius(rows[level]) * inputs

    def _prioritised(self, rhs: Array, measure: Array | None) -> Prioritised:
        levels = [(self.task_map[level], rhs[level]) for level in self._levels]
        return prioritised(levels, self._rank_tolerance, self.scales(), measure)

    def _least(self, measure: Array, u: Array) -> Array:
        """The inputs of least |measure u| among those with the same T u."""
        # measure (I - Z^T Z), without forming the projector
        Z = self._split.row_basis
        freedom = measure - (measure @ Z.T) @ Z
        return u - decompose(freedom, self._rank_tolerance, frobenius(measure)).solve(measure @ u)
