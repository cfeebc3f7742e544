"""Is a rise of the task's rank real, or does drift make dependent rows look independent?

Rows that depend on each other only where the task holds, such as `c = 0` and `(1 + y) c = 0`, look independent as soon
as drift has moved the state off the task. Their pivot is then as small as the drift, so the inputs that it asks for are
drift divided by drift. The rank at the nearest state that satisfies the task tells the two cases apart.
"""

from collections.abc import Sequence

import numpy as np

from servoctl.engine.linalg import decompose
from servoctl.errors import ServoctlError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms, assemble
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.types import State

DRIFT = 1e-3  # a state is on the task but for drift where the nearest one is at most this far away, relative to 1 + |q|
SATISFIED = 1e-8  # [units of the row] largest violation that the nearest state may keep
CHECKS = 20  # rises of the rank that are looked at in one run: each takes some milliseconds


def judges_rank(loop: Loop) -> bool:
    """Whether a rise of the rank is looked at: not of derived rows (no violation to project), nor with noise."""
    system = loop.system
    return hasattr(system.law, "rank_tolerance") and system.model.plain is system.model and system.realism is None


class TaskRank:
    """Looks at the rank of the task, row by row of one run."""

    def __init__(self, loop: Loop) -> None:
        self._system, self._last, self._left = loop.system, np.inf, CHECKS
        self._tolerance: float | None = getattr(loop.system.law, "rank_tolerance", None) if judges_rank(loop) else None

    def look(self, rows: Trajectory) -> tuple[int, str] | None:
        """The first row at which drift has raised the rank, and why the run ends there; None where there is none."""
        ranks = rows.columns.get("rank")
        if self._tolerance is None or ranks is None or not len(ranks):
            return None
        before = np.concatenate([[self._last], ranks[:-1]])
        self._last = float(ranks[-1])
        for i in np.flatnonzero(ranks > before):
            if self._left == 0:
                return None
            self._left -= 1
            sentence = self._sentence(State(float(rows.t[i]), rows.q[i], rows.v[i]), int(ranks[i]), self._tolerance)
            if sentence is not None:
                return int(i), sentence
        return None

    def _sentence(self, state: State, rank: int, tolerance: float) -> str | None:
        model = self._system.model
        try:
            near, left = nearest(model, state)
            at = assemble(near, model.matrices(near), self._system.passive.rank_tolerance)
        except ServoctlError:
            return None
        away = float(np.max(np.abs(near.q - state.q) / (1.0 + np.abs(state.q))))
        if not away <= DRIFT or not float(np.nanmax(np.abs(left.violation), initial=0.0)) <= SATISFIED:
            return None
        there = decompose(at.task_map, tolerance, at.scale).rank
        if there >= rank:
            return None
        return (
            f"t = {state.t:.6g} s: task rank {rank}, but {there} at the nearest state that satisfies the task, "
            f"{away:.1e} away: drift makes dependent rows ({', '.join(_dependent(model, at, tolerance))}) look "
            "independent, so the inputs follow the drift (leave out the rows that the others imply, or raise "
            "law.rank_tolerance above the drift)"
        )


def _dependent(model: Model, at: Terms, tolerance: float) -> Sequence[str]:
    """Names of the rows that add no direction to the rows above them."""
    ranks = [decompose(at.task_map[: i + 1], tolerance, at.scale).rank for i in range(len(at.task_map))]
    return [row.name for row, step in zip(model.task_rows, np.diff(ranks, prepend=0), strict=True) if step == 0]
