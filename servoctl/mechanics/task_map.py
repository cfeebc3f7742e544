"""What the actuators can do for a task: rank of `T = A Phi B`, row by row, at random states.

Design: the relative degree of a row is decided by numbers, not by the structure of expressions, since terms cancel
under Phi. A row whose T vanishes at every sample has a higher degree than its kind suggests; a row that depends on the
rows above it has no direction of its own. Both are named.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from servoctl.engine.linalg import decompose, frobenius
from servoctl.mechanics.model import Model, Row
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import Array, State

VANISHES = 1e-9
"""A row of T below this times |row of A L^-T| |L^-1 B|_F is out of reach at acceleration level."""


@dataclass(frozen=True)
class TaskMap:
    """How the actuators act on a task.

    Attributes:
        rows: The task's rows.
        rank: Rank of T at the first state.
        generic_rank: Largest rank of T at any state.
        gain: |row of T| / (|row of A L^-T| |L^-1 B|_F) at the first state, per row: 0 out of reach, at most 1.
        largest_gain: The same, largest over all states.
        dependent: Rows that do not raise the largest rank, over all states, of the rows above them: with
            `unreachable`, as many as the generic rank lacks.
        pivot: Smallest pivot at the first state, relative.
        largest_pivot: The largest that the smallest pivot is at any state of the generic rank.
    """

    rows: tuple[Row, ...]
    rank: int
    generic_rank: int
    gain: Array
    largest_gain: Array
    dependent: tuple[Row, ...]
    pivot: float
    largest_pivot: float

    @cached_property
    def unreachable(self) -> list[Row]:
        """Rows on which no actuator acts at acceleration level, at any state."""
        return [row for row, gain in zip(self.rows, self.largest_gain, strict=True) if gain <= VANISHES]

    def degree(self, row: Row) -> str:
        """The relative degree of a row, as far as it is decided here."""
        own = row.degree or 2
        return f"above {own}" if row in self._unreachable else str(own)

    @cached_property
    def _unreachable(self) -> frozenset[Row]:
        return frozenset(self.unreachable)


def sample_task_map(
    model: Model, states: Iterable[State], rank_tolerance: float, passive_rank_tolerance: float
) -> TaskMap:
    """Looks at the task from every state; states where a term is not finite are passed over."""
    found = [assemble(state, model.matrices(state), passive_rank_tolerance) for state in states]
    terms = [at for at in found if at.finite and at.positive]
    r = len(model.task_rows)
    if not terms:
        unknown = np.full(r, np.nan)
        return TaskMap(tuple(model.task_rows), 0, 0, unknown, unknown, (), 0.0, 0.0)
    splits = [decompose(at.task_map, rank_tolerance, at.scale) for at in terms]
    gains = [_gains(at) for at in terms]
    ranks = [split.rank for split in splits]
    own_direction = np.full(r, True)
    if max(ranks) < r:
        leading = np.max([np.cumsum(_independent(at.task_map, rank_tolerance, at.scale)) for at in terms], axis=0)
        own_direction = np.diff(leading, prepend=0) > 0
    largest = np.max(gains, axis=0)
    dependent = [
        row for row, own, g in zip(model.task_rows, own_direction, largest, strict=True) if not own and g > VANISHES
    ]
    pivots = [float(split.pivot_min) for split in splits if split.rank == max(ranks)]
    return TaskMap(
        tuple(model.task_rows),
        ranks[0],
        max(ranks),
        gains[0],
        largest,
        tuple(dependent),
        float(splits[0].pivot_min),
        max(pivots),
    )


def _gains(terms: Terms) -> Array:
    inputs = frobenius(terms.inputs)
    sizes = np.linalg.norm(terms.rows, axis=1) * inputs
    gains: Array = np.linalg.norm(terms.task_map, axis=1) / np.where(sizes > 0.0, sizes, 1.0)
    return gains


def _independent(T: Array, rank_tolerance: float, scale: float) -> Array:
    """Which rows add a direction to those above them.

    The rank of the first rows never falls with their number, so the rows at which it rises are found by bisection: some
    log2(rows) decompositions for each direction instead of one for each row.
    """
    own = np.zeros(len(T), dtype=bool)

    def mark(first: int, last: int, rank_before: int, rank_after: int) -> None:
        """Marks rows first .. last - 1, given the rank of those before the first and of those before the last."""
        if rank_after <= rank_before:
            return
        if last - first == 1:
            own[first] = True
            return
        middle = (first + last) // 2
        rank = decompose(T[:middle], rank_tolerance, scale).rank
        mark(first, middle, rank_before, rank)
        mark(middle, last, rank, rank_after)

    if len(T):
        mark(0, len(T), 0, decompose(T, rank_tolerance, scale).rank)
    return own
