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

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from servoctl.engine.linalg import decompose, frobenius, solve_upper
from servoctl.engine.parameters import Part
from servoctl.engine.symbol import where
from servoctl.laws.active_set import ROUNDING
from servoctl.laws.limits import Limited, Start, within_limits
from servoctl.laws.priorities import Prioritised, prioritised
from servoctl.mechanics.rows import InputRows
from servoctl.mechanics.terms import Terms
from servoctl.types import Array

Kind = Literal["minimum_norm", "weighted", "unprojected", "constraint_force", "least_acceleration"]


@dataclass(frozen=True)
class Allocation(Part):
    """The allocation of an attached law."""

    # indices of the rows of each priority, the highest first; prescribed rows follow those of the task
    levels: tuple[tuple[int, ...], ...]
    kind: str
    feedback_kind: str  # that of what terms add to b
    weights: tuple[float, ...]  # weight of an input
    limited: bool  # whether any input has a limit
    lower: tuple[float, ...]  # lower limit of an input
    upper: tuple[float, ...]  # upper limit of an input
    rank_tolerance: float  # [-] a direction counts when its pivot exceeds this times |A L^-T|_F |L^-1 B|_F
    rounding: float = ROUNDING  # [-] sums smaller than this, relative to their terms, are rounding

    label = "allocation"


class Allocator:
    """`T = A Phi B` at one state, decomposed once and solved for several right-hand sides."""

    def __init__(self, at: Terms, settings: Allocation, prescribed: InputRows | None) -> None:
        """Decomposes T.

        Args:
            prescribed: Rows below those of the task.
        """
        self._terms, self._settings, self._prescribed = at, settings, prescribed
        self._rank_tolerance = settings.rank_tolerance
        self._weights = np.array(settings.weights)
        # T, shape (r, m), with the prescribed rows below those of the task
        self.task_map = at.task_map if prescribed is None else np.vstack([at.task_map, prescribed.T])
        self._levels = [list(level) for level in settings.levels] if len(settings.levels) > 1 else []
        if self._levels:
            inputs = self._prioritised(np.zeros(len(self.task_map)), None)
            # ranks: per level: number of directions that it adds to those of the higher levels
            # pivot_min: smallest pivot counted, relative to its scale; 0 at rank 0
            self.pivot_min, self._free, self.ranks = inputs.pivot_min, inputs.free, inputs.ranks
            of_task = [level[0] < len(at.rows) for level in self._levels]
            # number of directions counted, all levels of the task together
            self.rank = sum(rank for rank, counts in zip(self.ranks, of_task, strict=True) if counts)
        else:
            self._split = decompose(self.task_map, self._rank_tolerance, at.scale)
            self.rank, self.pivot_min = self._split.rank, self._split.pivot_min
            self.ranks = (self.rank,)

    def stacked(self, of_task: Array, prescribed: bool = True) -> Array:
        """A right-hand side of the task rows, with that of the prescribed rows below it, or zeros."""
        if self._prescribed is None:
            return of_task
        rhs = self._prescribed.rhs
        return np.concatenate([of_task, rhs if prescribed else np.zeros(len(rhs))])

    def inputs(self, forward: Array, feedback: Array) -> Array:
        """The inputs that meet `T u = forward + feedback` without limits, shape (m,)."""
        kind, feedback_kind = self._settings.kind, self._settings.feedback_kind
        if kind == feedback_kind:
            return self.solve(kind, forward + feedback)
        return self.solve(kind, forward) + self.solve(feedback_kind, feedback)

    def within(
        self, u: Array, wanted: Array, preferring: bool, bounding: InputRows | None, start: Start | None, damps: Any
    ) -> Limited:
        """The inputs within their limits and bounds next to u.

        Args:
            u: The inputs without limits, shape (m,).
            wanted: What the rows ask for.
            preferring: Whether u has a part in the null space.
            bounding: Rows `G u >= g`; None: there are none.
            start: Where the search for the inputs begins; None: nothing is known.
            damps: 1 where u damps the motion and meets no row, 0 elsewhere; None: it never does.
        """
        settings = self._settings
        lower, upper = (np.array(settings.lower), np.array(settings.upper)) if settings.limited else (None, None)
        levels = [(self.task_map[level], wanted[level]) for level in self.levels]
        near = u if preferring or settings.kind not in ("minimum_norm", "weighted") else None
        if damps is not None:
            levels = [(where(damps, 0.0, T), where(damps, 0.0, e)) for T, e in levels]
            near = where(damps, u, 0.0 if near is None else near)
        weights = self._weights if settings.kind == "weighted" else None
        return within_limits(
            levels,
            lower,
            upper,
            near,
            inequalities=None if bounding is None else bounding[:2],
            row_scale=None if bounding is None else bounding.size * frobenius(self._terms.inputs),
            weights=weights,
            rank_tolerance=self._rank_tolerance,
            scale=self.scales(weights),
            unlimited=u,
            start=start,
            rounding=settings.rounding,
        )

    def free(self, s: Array) -> Array:
        """(I - T^+ T) s: the part of s in the null space of the task, shape (m,)."""
        if self._levels:
            part: Array = self._free @ s
            return part
        Z = self._split.row_basis
        rest: Array = s - Z.T @ (Z @ s)
        return rest

    def solve(self, kind: str, rhs: Array) -> Array:
        """The inputs that meet `T u = rhs`, exactly or in the sense of least squares, shape (m,).

        Args:
            kind: One of `Kind`.
            rhs: e, shape (r,).
        """
        if self._levels:
            return self._prioritised(rhs, self.measure(kind)).u
        if kind == "minimum_norm":
            return self._split.solve(rhs)
        if kind == "weighted":
            # with y = sqrt(w) u the weighted norm of u is the plain norm of y
            root = np.sqrt(self._weights)
            inputs = self._terms.inputs / root
            scale = frobenius(self._terms.rows) * frobenius(inputs)
            scaled: Array = decompose(self.task_map / root, self._rank_tolerance, scale).solve(rhs) / root
            return scaled
        if kind == "unprojected":
            W = self._terms.rows @ self._terms.inputs
            scale = self._terms.scale * frobenius(W)
            u: Array = W.T @ decompose(self.task_map @ W.T, self._rank_tolerance, scale).solve(rhs)
            return u
        measure = self.measure(kind)
        assert measure is not None
        return self._least(measure, self._split.solve(rhs))

    def measure(self, kind: str) -> Array | None:
        """The matrix of the norm |measure u| that an allocation minimises, shape (k, m); None for |u| itself."""
        if kind == "weighted":
            return np.diag(np.sqrt(self._weights))
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
        if self._prescribed is not None and level[0] >= len(rows):
            return self._prescribed.size * inputs
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
