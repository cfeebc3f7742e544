"""How did a simulated run end? Status, error and the known cause, from the trajectory and the closed loop.

A mechanism led to the edge of what it reaches: there the rows of its loops and of the task lose rank.

    E = (A_passive; A_task)     smallest singular value along a run, over that at the start

Design: at such a pose the speeds and inputs that the task needs grow without bound, and so do the poles of whatever is
free. It is therefore the cause, not they.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly.diagnosis import SMALLER, fast_motion, growth_of, of_task
from servoctl.assembly.gains import all_gains
from servoctl.engine.decomposition import decompose
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import TaskMap
from servoctl.run_folder.missed import missed_tasks, sentence
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.settings import Settings
from servoctl.simulation.side_by_side import RUNAWAY, divergence, growth, size
from servoctl.simulation.system import System
from servoctl.types import Array, State, Status

LOST = 0.25
"""A singular value below this fraction of that at the start is nearly lost: rows are sparse, and it falls as a root."""

INDEPENDENT = 1e-9  # a direction of the rows counts if its pivot exceeds this times their Frobenius norm
SHARE = 0.1  # a row takes part in the lost direction if its share exceeds this times the largest


def dead_point(model: Model, states: Sequence[State]) -> str | None:
    """The pose of a run where the loops and the task lost a direction, in a sentence; None if there is none.

    Args:
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


LOOKS = 8  # number of states along a run at which its internal dynamics are linearised
POSES = 64  # number of states along a run at which the rank of its loops is evaluated
MODERATE = 1e3  # states larger than this times the start are effects of the divergence; they do not show its cause
MISSED = Status.MISSED.name.lower()  # status of a run that missed a required task
UNKNOWN = "reduce the step, the period or the gains"  # advice when no cause is known
RAN_AWAY = "ran_away"  # status of a run that diverged while all numbers stayed finite


@dataclass(frozen=True)
class EndOfRun:
    """A simulated run that is over."""

    loop: Loop  # the closed loop
    start: State  # initial state
    settings: Settings  # how it ran
    reach: Callable[[], TaskMap | None]  # what the actuators can do for the task; None for an open loop
    trajectory: Trajectory  # its rows

    @property
    def system(self) -> System:
        """Plant, law and constraints."""
        return self.loop.system

    def facts(self, facts: dict[str, Any], last: State | None) -> dict[str, Any]:
        """Facts to add to the summary of the run.

        Args:
            facts: `status`, and `error` if there is one.
            last: State at which a number was not finite; None if the run did not stop for that reason.

        Returns:
            `status` and `error` where they change, and `diagnosis`: the cause, where it is known.
        """
        law = self.system.following
        if facts["status"] == "stopped":
            cause = self._cause_of_stop(last)
            if not cause:
                return {}
            known = {} if cause.endswith(UNKNOWN) else {"diagnosis": cause}
            return {"error": f"{facts['error']} ({cause})"} | known
        if facts["status"] != "done":
            return {}
        required = law is not None
        optional_rows = (
            [self.system.model.task_rows[i].name for i in law.optional_rows]
            if law is not None
            else self.trajectory.rows
        )
        if required and growth(self.start, self.trajectory) > RUNAWAY and (found := self._growth()):
            return {"status": RAN_AWAY, "error": found[0], "diagnosis": found[0]}
        if far := divergence(self.start, self.trajectory, optional_rows):
            why = self._cause_of_divergence()
            known = {} if why.endswith(UNKNOWN) else {"diagnosis": why}
            return {"status": RAN_AWAY, "error": f"the run diverged: {far} ({why})"} | known
        missed = missed_tasks(self.trajectory, optional_rows) if required else {}
        if not missed:
            return {}
        why = why_missed(self.system, self.start, self.reach(), missed)
        return {"status": MISSED, "error": f"{sentence(missed)} ({why})", "diagnosis": why}

    def _cause_of_stop(self, last: State | None) -> str:
        """Why the run diverged or could not be integrated further; empty if its error says everything."""
        law = self.system.following
        rows = self.trajectory
        far = last if last is not None or not len(rows) else State(float(rows.t[-1]), rows.q[-1], rows.v[-1])
        if far is not None and size(far.q, far.v) > RUNAWAY:
            return f"it ran away: {self._cause_of_divergence()}"
        if last is not None or law is None or not len(rows) or int(rows["status"][-1]) in law.stops_on:
            return ""
        growth = self._growth()
        return growth[0] if growth else ""

    def _cause_of_divergence(self) -> str:
        """The known cause, most certain first: gains and poles that the step does not follow, then the pose."""
        found = [str(gain.problem) for gain in all_gains(self.system, self.settings) if gain.problem is not None]
        fast = None if found else fast_motion(self.loop, self.start, self.settings)
        found = found if fast is None else [str(fast.finding)]
        if self.system.following is None:
            return "; ".join(found) or UNKNOWN
        found = found or self._dead_point() or self._growth() or self._singular_pose()
        findings = of_task(self.system, self.start, self.reach())
        found = found or [str(finding) for finding in findings if finding.kind == "singular_start"]
        wrong = "the machine is not the law's model: see servoctl analyse, or " * (self.system.simulated is not None)
        return "; ".join(found) or f"{wrong}{UNKNOWN}"

    def _growth(self) -> list[str]:
        """Unstable internal dynamics along the run; at most one sentence."""
        return [str(finding) for finding in growth_of(self.loop, self._states(LOOKS), self._until)]

    def _dead_point(self) -> list[str]:
        """A pose where the loops lost rank, unless internal dynamics that were unstable from the start led to it."""
        found = dead_point(self.system.model, self._states(POSES))
        return [] if found is None or growth_of(self.loop, [self.start], self._until) else [found]

    @property
    def _until(self) -> float:
        return float(self.trajectory.t[-1]) if len(self.trajectory) else self.start.t

    def _states(self, number: int) -> list[State]:
        """The start, and states of the run before it diverged."""
        count, trajectory = self._moderate_rows(), self.trajectory
        rows = np.unique(np.linspace(0, count - 1, number).astype(int)) if count else np.zeros(0, dtype=int)
        return [self.start, *(State(float(trajectory.t[i]), trajectory.q[i], trajectory.v[i]) for i in rows if i)]

    def _singular_pose(self) -> list[str]:
        """A pose at which the task rows lost a direction before the run diverged."""
        trajectory = self.trajectory
        pivots = trajectory["pivot_min"][: self._moderate_rows()]
        if len(pivots) < 2 or not pivots[0] > 0.0:
            return []
        i = int(np.nanargmin(pivots))
        if not pivots[i] < SMALLER * pivots[0]:
            return []
        return [
            f"the motion came near a singular pose at t = {trajectory.t[i]:.4g} s, where the smallest pivot was "
            f"{pivots[i]:.2g} ({pivots[0]:.2g} at the start): the inputs that the task needs are unbounded there "
            "(limit the inputs, raise law.rank_tolerance, or choose a task that avoids this pose)"
        ]

    def _moderate_rows(self) -> int:
        """Number of rows before the run diverged."""
        bound = MODERATE * (1.0 + size(self.start.q, self.start.v))
        sizes = np.abs(np.concatenate([self.trajectory.q, self.trajectory.v], axis=1)).max(axis=1, initial=0.0)
        beyond = np.flatnonzero(~(sizes < bound))  # NaN counts as diverged
        return int(beyond[0]) if len(beyond) else len(self.trajectory)


def why_missed(system: System, start: State, task_map: TaskMap | None, missed: Collection[str]) -> str:
    """The known cause of missed tasks, else what to do about them.

    Args:
        task_map: What the actuators can do for the task.
        missed: Names of the tasks.
    """
    causes = []
    for finding in of_task(system, start, task_map):
        groups = {row.group for row in system.model.task_rows if row.name in finding.rows}
        if groups.intersection(missed):
            causes.append(str(finding))
    return "; ".join(causes) or "set required: false in a task that may be missed, or priority: 2"
