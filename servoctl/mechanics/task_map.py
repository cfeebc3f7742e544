"""Which task rows the actuators can accelerate: the task map `T = A Phi B`, row by row, at several states.

Design: whether an input acts on a row is decided by numbers, not by the structure of expressions, because terms cancel
under Phi. A row whose T is zero at every state has a higher relative degree than its kind suggests. A row that depends
on the rows above it adds no direction. The results name both. A row that no motion of the machine changes, as the
height of a planar arm's tip, needs no input as long as it asks for nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from servoctl.engine.linalg import decompose, frobenius
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import Array, State

VANISHES = 1e-9  # no input acts on a row of T below this times |row of A L^-T| |L^-1 B|_F


@dataclass(frozen=True)
class TaskMap:
    """How the actuators act on the rows of a task."""

    rows: tuple[Row, ...]  # the task's rows
    rank: int  # rank of T at the first state
    generic_rank: int  # largest rank of T at any state
    gain: Array  # |row of T| / (|row of A L^-T| |L^-1 B|_F) at the first state, shape (r,): from 0, no input acts, to 1
    largest_gain: Array  # the largest of these gains over all states, shape (r,)
    # rows that add no direction to the rows above them at any state. Together with `unreachable` and `idle` they are as
    # many as the generic rank lacks
    dependent: tuple[Row, ...]
    idle: tuple[Row, ...]  # rows whose A and b are zero at every state: they need no input
    pivot: float  # smallest pivot counted at the first state, relative to the scale of T
    largest_pivot: float  # largest such value over the states that have the generic rank

    @cached_property
    def unreachable(self) -> list[Row]:
        """Rows that need an input, but on whose acceleration no actuator acts at any state."""
        rows = zip(self.rows, self.largest_gain, strict=True)
        return [row for row, gain in rows if gain <= VANISHES and row not in self.idle]

    def degree(self, row: Row) -> str:
        """The relative degree of a row in words: `2`, or `above 2` where no input acts on its acceleration."""
        lowest = row.degree or 2
        return f"above {lowest}" if row in self._unreachable else str(lowest)

    @cached_property
    def _unreachable(self) -> frozenset[Row]:
        return frozenset(self.unreachable)


def sample_task_map(
    model: Model, states: Iterable[State], rank_tolerance: float, passive_rank_tolerance: float
) -> TaskMap:
    """The task map at several states; states at which a term is not finite or M not positive definite do not count.

    Args:
        model: Plant and task.
        states: The start first.
        rank_tolerance: A direction of T counts when its pivot exceeds this times |A L^-T|_F |L^-1 B|_F.
        passive_rank_tolerance: The same for passive rows, relative to |Ahat L^-T|_F.
    """
    assembled = [assemble(state, model.matrices(state), passive_rank_tolerance) for state in states]
    terms = [at for at in assembled if at.finite and at.positive]
    r = len(model.task_rows)
    if not terms:
        unknown = np.full(r, np.nan)
        return TaskMap(tuple(model.task_rows), 0, 0, unknown, unknown, (), (), 0.0, 0.0)
    splits = [decompose(at.task_map, rank_tolerance, at.scale) for at in terms]
    gains = [_gains(at) for at in terms]
    ranks = [split.rank for split in splits]
    independent = np.full(r, True)
    if max(ranks) < r:
        leading = np.max([np.cumsum(_independent(at.task_map, rank_tolerance, at.scale)) for at in terms], axis=0)
        independent = np.diff(leading, prepend=0) > 0
    largest, idle = np.max(gains, axis=0), np.all([_idle(at) for at in terms], axis=0)
    dependent = [
        row for row, adds, g in zip(model.task_rows, independent, largest, strict=True) if not adds and g > VANISHES
    ]
    pivots = [float(split.pivot_min) for split in splits if split.rank == max(ranks)]
    return TaskMap(
        tuple(model.task_rows),
        ranks[0],
        max(ranks),
        gains[0],
        largest,
        tuple(dependent),
        tuple(row for row, nothing in zip(model.task_rows, idle, strict=True) if nothing),
        float(splits[0].pivot_min),
        max(pivots),
    )


def _gains(terms: Terms) -> Array:
    inputs = frobenius(terms.inputs)
    sizes = np.linalg.norm(terms.rows, axis=1) * inputs
    gains: Array = np.linalg.norm(terms.task_map, axis=1) / np.where(sizes > 0.0, sizes, 1.0)
    return gains


def _idle(terms: Terms) -> Array:
    """Which rows have neither a coefficient nor a right-hand side at this state, shape (r,)."""
    task = terms.matrices.task
    found: Array = ~np.any(task.A, axis=1) & (task.b == 0.0)
    return found


def _independent(T: Array, rank_tolerance: float, scale: float) -> Array:
    """Which rows add a direction to the rows above them, shape (r,).

    The rank of the first k rows never falls as k grows, so bisection finds the rows at which it rises: about log2(r)
    decompositions per direction instead of one per row.
    """
    adds = np.zeros(len(T), dtype=bool)

    def mark(first: int, last: int, rank_before: int, rank_after: int) -> None:
        """Marks rows first .. last - 1, given the rank of those before the first and of those before the last."""
        if rank_after <= rank_before:
            return
        if last - first == 1:
            adds[first] = True
            return
        middle = (first + last) // 2
        rank = decompose(T[:middle], rank_tolerance, scale).rank
        mark(first, middle, rank_before, rank)
        mark(middle, last, rank, rank_after)

    if len(T):
        mark(0, len(T), 0, decompose(T, rank_tolerance, scale).rank)
    return adds
