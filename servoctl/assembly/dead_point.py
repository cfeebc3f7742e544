"""Was a mechanism led to the edge of what it reaches? There the rows of its loops and of the task lose rank.

    E = (A_passive; A_task)     smallest singular value along a run, over that at the start

Design: at such a pose the speeds and inputs that the task needs grow without bound, and so do the poles of whatever is
free. It is therefore the cause, not they.
"""

from collections.abc import Sequence

import numpy as np

from servoctl.engine.linalg import decompose
from servoctl.mechanics.model import Model
from servoctl.types import Array, State

LOST = 0.25
"""A singular value below this fraction of that at the start is nearly lost: rows are sparse, and it falls as a root."""

INDEPENDENT = 1e-9  # a direction of the rows counts if its pivot exceeds this times their Frobenius norm
SHARE = 0.1  # a row takes part in the lost direction if its share exceeds this times the largest


def dead_point(model: Model, states: Sequence[State]) -> str | None:
    """The pose of a run where the loops and the task lost a direction, in a sentence; None if there is none.

    Args:
        model: Plant and task.
        states: In order of time, the start first; before the run diverged.
    """
    if not model.passive_rows or len(states) < 2:
        return None
    rows = (*model.passive_rows, *model.task_rows)
    all_of = [_rows(model, state) for state in states]
    if not np.isfinite(all_of[0]).all():
        return None
    rank = decompose(all_of[0], INDEPENDENT).rank
    sizes = [np.linalg.svd(E, compute_uv=False)[rank - 1] if np.isfinite(E).all() else np.inf for E in all_of]
    size = sizes[-1]
    if not rank or size > min(sizes) or not size < LOST * sizes[0]:
        return None
    share = np.abs(np.linalg.svd(all_of[-1])[0][:, rank - 1])
    named = [row for row, part in zip(rows, share, strict=True) if part > SHARE * share.max()]
    groups = {
        "loops": dict.fromkeys(row.group for row in named if row in model.passive_rows),
        "task": dict.fromkeys(row.group for row in named if row in model.task_rows),
    }
    listed = " and ".join(f"{what} {', '.join(names)}" for what, names in groups.items() if names)
    return (
        f"the mechanism came to the edge of its reach at t = {states[-1].t:.4g} s: {listed} lose rank there, from "
        f"{rank} to {rank - 1} (smallest singular value {size:.2g}, {sizes[0]:.2g} at the start), so the inputs that "
        "the task needs are unbounded: lead the task inside the reach"
    )


def _rows(model: Model, state: State) -> Array:
    matrices = model.matrices(state)
    return np.vstack([matrices.passive.A, matrices.task.A])
