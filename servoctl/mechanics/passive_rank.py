"""The largest rank that the geometry of a plant's own constraints allows, whatever a run's drift makes of it.

    rank A(q) for q on phi(q) = 0

is constant except at singular poses, where it is lower. What a run counts beyond it is not geometry but drift: off the
constraints rows that depend on each other no longer do.

Design: the rank is read at states that are reached from the start along the constraints: a random direction that the
rows leave free, a step, back onto the constraints by Gauss-Newton. Small steps stay on the start's own branch; several
of them leave a start at which the rank is lower.
"""

from collections.abc import Iterator

import numpy as np

from servoctl.engine.linalg import Decomposition, decompose
from servoctl.errors import PlantError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.types import State

STEPS = (0.02, 0.05, 0.1, 0.2, 0.1, 0.05, 0.0)
"""Lengths of the steps from state to state, relative to the size of q, at least 1."""

INDEPENDENT = 1e-6
"""A direction counts when its pivot exceeds this times the Frobenius norm of the rows; states are closed to 1e-13."""

CLOSED = 1e-9
"""States that Gauss-Newton leaves further from the constraints do not count [units of the rows]."""


def allowed_rank(model: Model, start: State) -> int:
    """Largest rank of the passive rows near the start, on the constraints themselves.

    Args:
        model: Plant and constraints; its task does not count.
        start: Assembled, or near a state that is; where there is none, all rows are allowed.
    """
    rows = len(model.passive_rows)
    try:
        return _largest_rank(model, start, rows) if rows else 0
    except PlantError:  # the plant's code refuses a state near its start
        return rows


def dependent_rows(model: Model, start: State) -> list[str]:
    """Names of the passive rows that depend on each other near the start; arguments as of `allowed_rank`."""
    splits = [(split.rank, split) for split in _decompositions(model, start)]
    largest = max((rank for rank, _ in splits), default=0)
    rows = model.passive_rows
    left = np.zeros(len(rows))
    for rank, split in splits:
        if rank == largest:
            left = np.maximum(left, np.linalg.norm(split.residual(np.eye(len(rows))), axis=1))
    return [row.name for row, size in zip(rows, left, strict=True) if size > INDEPENDENT]


def _largest_rank(model: Model, start: State, rows: int) -> int:
    found = 0
    for split in _decompositions(model, start):
        found = max(found, int(split.rank))
        if found == rows:
            break
    return found or rows


def _decompositions(model: Model, start: State) -> Iterator[Decomposition]:
    """The passive rows taken apart at states along the constraints; none where no state is closed."""
    random, state = np.random.default_rng(0), _closed(model, start)
    for length in STEPS if state is not None else ():
        assert state is not None
        split = decompose(model.plain.matrices(state).passive.A, INDEPENDENT)
        yield split
        free = random.standard_normal(model.n)
        free -= split.row_projector() @ free
        reach = length * max(1.0, float(np.abs(state.q).max())) / (float(np.linalg.norm(free)) or 1.0)
        state = _closed(model, State(state.t, state.q + reach * free, state.v)) or state


def _closed(model: Model, state: State) -> State | None:
    """The nearest state on the constraints; None where Gauss-Newton finds none."""
    found, left = nearest(model, state, among=[])
    violation = np.abs(left.violation[: len(model.passive_rows)])
    return found if np.nanmax(violation, initial=0.0) < CLOSED else None
