"""States along the task by geometry alone, without a simulation: from the start, Gauss-Newton follows it through time.

Design: what the task leaves free stays near the start, and moves with the least speeds. A run may move it otherwise.
"""

from collections.abc import Iterator

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.start import required_rows
from servoctl.errors import ServoctlError
from servoctl.mechanics.initial import nearest
from servoctl.types import State

LOST = 1e-3  # [units of the row] a larger violation means that the machine cannot follow from there on


def task_states(run: Run, count: int) -> Iterator[State]:
    """States on the required tasks and the loops at equally spaced times after the start, up to where they are lost."""
    state = run.start
    for t in np.linspace(run.start.t, run.start.t + run.settings.duration, count + 1)[1:]:
        following = task_state(run, state, float(t))
        if following is None:
            return
        state = following
        yield state


def task_state(run: Run, near: State, t: float) -> State | None:
    """The state at another time that is nearest to a state and on the required tasks and the loops; None: not found."""
    model = run.system.model.plain
    required = required_rows(model, run.system.law)
    try:
        state, left = nearest(model, State(t, near.q, np.zeros(model.n)), among=required)
    except ServoctlError:
        return None
    rows = [row for row in (*model.passive_rows, *required) if row.has_violation]
    counted = [x for row, x in zip(left.rows, left.violation, strict=True) if row in rows]
    return state if np.abs(counted).max(initial=0.0) < LOST else None
