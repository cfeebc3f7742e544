"""The largest rank that the geometry of a plant's own constraints allows.

    rank A(q) for q with phi(q) = 0

This rank is constant except at singular poses, where it is lower. A run that counts a higher rank has drifted: off the
constraints, dependent rows become independent.

Design: the rank is evaluated at states along the constraints. From the start, each step goes in a random direction that
the rows leave free, then back onto the constraints by Gauss-Newton. Small steps stay on the branch of the start. If the
start is singular and no step leaves it, there is no bound and all rows are allowed.
"""

from collections.abc import Iterator

import numpy as np

from servoctl.engine.decomposition import Decomposition, decompose
from servoctl.errors import PlantError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.types import State

STEPS = (0.02, 0.05, 0.1, 0.2, 0.1, 0.05, 0.0)
"""Lengths of the steps from state to state, relative to the size of q, at least 1."""

INDEPENDENT = 1e-6
"""A direction counts when its pivot exceeds this times the Frobenius norm of the rows.

States are closed to 1e-13, so a dependent row has pivots far below this."""

UNDONE = 0.5  # if Gauss-Newton leaves less than this share of a step, the step was undone: the pose is singular
TRIES = 40  # random steps from a singular pose; about one in ten leaves the flat pose of the parallelogram
CLOSED = 1e-9  # [units of the rows] a state whose violation exceeds this after Gauss-Newton does not count


def allowed_rank(model: Model, start: State) -> int:
    """Largest rank of the passive rows near the start, on the constraints themselves.

    Args:
        model: Plant and constraints; its task does not count.
        start: A state on the constraints or near them; if Gauss-Newton finds none, all rows are allowed.
    """
    rows = len(model.passive_rows)
    try:
        return _largest_rank(model, start, rows) if rows else 0
    except PlantError:  # the plant's code refuses a state near its start
        return rows


def dependent_rows(model: Model, start: State) -> list[str]:
    """Names of the passive rows that depend on each other near the start; the arguments are those of `allowed_rank`."""
    splits = [(split.rank, split) for split, _ in _decompositions(model, start)]
    largest = max((rank for rank, _ in splits), default=0)
    rows = model.passive_rows
    # row i of I - A A^+ is zero if and only if row i of A is independent of all other rows
    left = np.zeros(len(rows))
    for rank, split in splits:
        if rank == largest:
            left = np.maximum(left, np.linalg.norm(split.residual(np.eye(len(rows))), axis=1))
    return [row.name for row, size in zip(rows, left, strict=True) if size > INDEPENDENT]


def _largest_rank(model: Model, start: State, rows: int) -> int:
    largest, first, singular = 0, 0, False
    for split, undone in _decompositions(model, start):
        largest, first, singular = max(largest, int(split.rank)), first or int(split.rank), singular or undone
        if largest == rows:
            break
    return rows if singular and largest == first else largest or rows


def _decompositions(model: Model, start: State) -> Iterator[tuple[Decomposition, bool]]:
    """Decompositions of the passive rows at states along the constraints, and whether the step there was undone.

    Empty if no state is closed. At a singular pose Gauss-Newton undoes most steps; then many are tried.
    """
    random, state, undone = np.random.default_rng(0), _closed(model, start), False
    if state is None:
        return
    for length in STEPS:
        split = decompose(model.plain.matrices(state).passive.A, INDEPENDENT)
        yield split, undone
        free = random.standard_normal(model.n)
        free -= split.row_projector() @ free
        step = length * _size(state) * free / (float(np.linalg.norm(free)) or 1.0)
        closed = _closed(model, State(state.t, state.q + step, state.v)) or state
        undone = float(np.linalg.norm(closed.q - state.q)) < UNDONE * float(np.linalg.norm(step))
        if undone:
            break
        state = closed
    for i in range(TRIES if undone else 0):
        step = STEPS[i % 4] * random.standard_normal(model.n) * _size(state)
        closed = _closed(model, State(state.t, state.q + step, state.v)) or state
        yield decompose(model.plain.matrices(closed).passive.A, INDEPENDENT), undone


def _size(state: State) -> float:
    return max(1.0, float(np.abs(state.q).max()))


def _closed(model: Model, state: State) -> State | None:
    """The nearest state on the constraints; None if Gauss-Newton finds none."""
    closed, left = nearest(model, state, among=[])
    violation = np.abs(left.violation[: len(model.passive_rows)])
    return closed if np.nanmax(violation, initial=0.0) < CLOSED else None
