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

from servoctl.engine.decomposition import decompose, frobenius
from servoctl.engine.linalg import solve_upper
from servoctl.engine.parameters import Part
from servoctl.engine.symbol import where
from servoctl.laws.limits import LeastSquaresProblem, Limited, Start, within_limits
from servoctl.laws.priorities import Levels
from servoctl.mechanics.constraint import InputRows
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

    label = "allocation"


def unprojected_ranks(at: Terms, rank_tolerance: float) -> tuple[int, int]:
    """Directions of the task that `unprojected` reaches at a state, and directions that the inputs reach there."""
    W, T = at.rows @ at.inputs, at.task_map
    reached = decompose(T @ W.T, rank_tolerance, at.scale * frobenius(W)).rank
    return int(reached), int(decompose(T, rank_tolerance, at.scale).rank)


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
        self._order = [list(level) for level in settings.levels if level]  # indices of the rows of each level
        self._levels = Levels.of([self.task_map[level] for level in self._order], self._rank_tolerance, self.scales())
        # ranks: per level: number of directions that it adds to those of the higher levels
        # pivot_min: smallest pivot counted, relative to its scale; 0 at rank 0
        self.ranks, self.pivot_min = self._levels.ranks, self._levels.pivot_min
        of_task = [level[0] < len(at.rows) for level in self._order]
        # number of directions counted, all levels of the task together
        self.rank = sum(rank for rank, counts in zip(self.ranks, of_task, strict=True) if counts)

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
        settings, none = self._settings, np.zeros(0)
        lower, upper = (np.array(settings.lower), np.array(settings.upper)) if settings.limited else (none, none)
        levels = [(self.task_map[level], wanted[level]) for level in self._order]
        near = u if preferring or settings.kind not in ("minimum_norm", "weighted") else None
        if damps is not None:
            levels = [(where(damps, 0.0, T), where(damps, 0.0, e)) for T, e in levels]
            near = where(damps, u, 0.0 if near is None else near)
        weights, row_scale = self._weights if settings.kind == "weighted" else None, 1.0
        G, g = np.zeros((0, len(u))), none
        if bounding is not None:
            G, g, row_scale = bounding.T, bounding.rhs, bounding.size * frobenius(self._terms.inputs)
        scales, tolerance = tuple(self.scales(weights)), self._rank_tolerance
        problem = LeastSquaresProblem(tuple(levels), scales, lower, upper, near, tolerance, G, g, row_scale)
        return within_limits(problem, u, weights, start)

    def free(self, s: Array) -> Array:
        """(I - T^+ T) s: the part of s in the null space of the task, shape (m,)."""
        return self._levels.free(s)

    def solve(self, kind: str, rhs: Array) -> Array:
        """The inputs that meet `T u = rhs`, exactly or in the sense of least squares, shape (m,).

        Args:
            kind: One of `Kind`.
            rhs: e, shape (r,).
        """
        if kind == "weighted" and len(self._order) == 1:
            # with y = sqrt(w) u the weighted norm of u is the plain norm of y
            root = np.sqrt(self._weights)
            (scale,) = self.scales(self._weights)
            scaled: Array = decompose(self.task_map / root, self._rank_tolerance, scale).solve(rhs) / root
            return scaled
        if kind == "unprojected":
            W = self._terms.rows @ self._terms.inputs
            scale = self._terms.scale * frobenius(W)
            u: Array = W.T @ decompose(self.task_map @ W.T, self._rank_tolerance, scale).solve(rhs)
            return u
        found, _ = self._levels.solve([rhs[level] for level in self._order], np.zeros(len(self._weights)))
        measure = self._measure(kind)
        return found if measure is None else self._levels.least(measure, found, self._rank_tolerance)

    def _measure(self, kind: str) -> Array | None:
        """The matrix of the norm |measure u| that an allocation minimises, shape (k, m); None for |u| itself."""
        if kind == "weighted":
            return np.diag(np.sqrt(self._weights))
        if kind == "constraint_force":
            return self._terms.inputs
        return solve_upper(self._terms.L, self._terms.inputs) if kind == "least_acceleration" else None

    def scales(self, weights: Array | None = None) -> list[Any]:
        """The size that the pivots of each level are relative to, with inputs weighted or not."""
        inputs = self._terms.inputs if weights is None else self._terms.inputs / np.sqrt(weights)
        return [self._scale(level, frobenius(inputs)) for level in self._order]

    def _scale(self, level: list[int], inputs: Any) -> Any:
        rows = self._terms.rows
        if self._prescribed is not None and level[0] >= len(rows):
            return self._prescribed.size * inputs
        return frobenius(rows[level]) * inputs
