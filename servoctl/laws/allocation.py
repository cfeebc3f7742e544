"""Allocation: which of the inputs that meet `T u = e` is taken, where there are several.

    minimum_norm         least |u|
    weighted             least u^T diag(w) u
    unprojected          u = W^T (T W^T)^+ e,  W = A M^-1 B: the published implicit solution
    constraint_force     least (B u)^T M^-1 (B u): what an ideal constraint would do (Gauss's principle)
    least_acceleration   least |M^-1 B u|

Source: Chen 2009; Liu et al. 2015, (35), (71), with the reaction of the passive constraints to u included: that fixed
point is `unprojected`; Udwadia 2008 for weighted norms; Zhao et al. 2018, (72), which takes constraint_force for what
it feeds forward and least_acceleration for what it feeds back.
"""

from typing import Any, Literal

import numpy as np

from servoctl.engine.linalg import Decomposition, decompose, frobenius, solve_upper
from servoctl.mechanics.terms import Terms
from servoctl.types import Array

Allocation = Literal["minimum_norm", "weighted", "unprojected", "constraint_force", "least_acceleration"]


class Allocator:
    """`T = A Phi B` at one state, taken apart once and solved for several right-hand sides.

    Attributes:
        reach: T, shape (r, m).
        split: Decomposition of T; its rank is the task's.
    """

    def __init__(self, terms: Terms, rank_tolerance: Any) -> None:
        self._terms, self._rank_tolerance = terms, rank_tolerance
        self.reach = terms.reach
        self.split: Decomposition = decompose(self.reach, rank_tolerance, terms.scale)

    def free(self, s: Array) -> Array:
        """(I - T^+ T) s: the part of s that does not touch the task."""
        Z = self.split.row_basis
        part: Array = s - Z.T @ (Z @ s)
        return part

    def solve(self, kind: str, demand: Array, weights: Array | None = None) -> Array:
        """The inputs that meet the demand, or miss it by least squares; shape (m,).

        Args:
            kind: One of `Allocation`.
            demand: e, shape (r,).
            weights: For `weighted`: shape (m,), positive.
        """
        if kind == "minimum_norm":
            return self.split.solve(demand)
        if kind == "weighted":
            root = np.sqrt(np.ones(len(self.reach[0])) if weights is None else weights)
            inputs = self._terms.inputs / root
            scale = frobenius(self._terms.rows) * frobenius(inputs)
            return decompose(self.reach / root, self._rank_tolerance, scale).solve(demand) / root
        if kind == "unprojected":
            W = self._terms.rows @ self._terms.inputs
            scale = self._terms.scale * frobenius(W)
            return W.T @ decompose(self.reach @ W.T, self._rank_tolerance, scale).solve(demand)
        measure = self._terms.inputs
        if kind == "least_acceleration":
            measure = solve_upper(self._terms.L, measure)
        return self._least(measure, self.split.solve(demand))

    def _least(self, measure: Array, u: Array) -> Array:
        """The inputs of least |measure u| among those that do for the task what u does."""
        Z = self.split.row_basis
        freedom = measure - (measure @ Z.T) @ Z
        return u - decompose(freedom, self._rank_tolerance, frobenius(measure)).solve(measure @ u)
