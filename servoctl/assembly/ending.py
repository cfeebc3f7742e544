"""How a simulated run ended: whether it did what was asked of it, and if not, why, from what is known of it."""

from typing import Any

import numpy as np

from servoctl.assembly.diagnosis import SMALLER, Finding, growth_of, of_task
from servoctl.assembly.gains import all_gains
from servoctl.assembly.run import Run
from servoctl.run_folder.missed import missed_tasks, sentence
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.simulate import RUNAWAY
from servoctl.types import State, Status

LOOKS = 8
"""States of a run at which its internal dynamics are looked at."""

MODERATE = 1e3
"""States beyond this, times what they were at the start, say how a run ended, and not why."""

MISSED = Status.MISSED.name.lower()
"""Status of a run that missed a required task."""

UNKNOWN = "reduce the step, the period or the gains"
"""What to try where nothing is known."""

RAN_AWAY = "ran_away"
"""Status of a run whose unstable internal dynamics ran away within finite numbers."""


@np.errstate(all="ignore")
def ending(run: Run, trajectory: Trajectory, facts: dict[str, Any], last: State | None) -> dict[str, Any]:
    """What the end of a run adds to its facts.

    Args:
        run: The run.
        trajectory: Its rows.
        facts: Its `status`, and its `error` where it has one.
        last: Where it stopped; None: it did not, or not for a number.

    Returns:
        `status` and `error`, where they change, and `diagnosis`: the cause, where it is known.
    """
    law = run.system.law
    if facts["status"] == "stopped":
        cause = _cause(run, trajectory, last)
        if not cause:
            return {}
        known = {} if cause.endswith(UNKNOWN) else {"diagnosis": cause}
        return {"error": f"{facts['error']} ({cause})"} | known
    if facts["status"] != "done" or law is None:
        return {}
    if len(trajectory) and _size(State(0.0, trajectory.q[-1], trajectory.v[-1])) > RUNAWAY * (1 + _size(run.start)):
        growth = growth_of(run.loop, _looks(run, trajectory), float(trajectory.t[-1]))
        if growth:
            return {"status": RAN_AWAY, "error": growth[0].text, "diagnosis": growth[0].text}
    excused = [run.system.model.task_rows[i].name for i in law.excused]
    missed = missed_tasks(trajectory, excused)
    if not missed:
        return {}
    causes = [finding.text for finding in of_task(run.system, run.start, run.task_map) if _is_of(finding, run, missed)]
    why = "; ".join(causes) or "set required: false in a task that may be missed, or priority: 2"
    return {"status": MISSED, "error": f"{sentence(missed)} ({why})", "diagnosis": why}


def _cause(run: Run, trajectory: Trajectory, last: State | None) -> str:
    """Why a run stopped that ran away, or could not be integrated on; empty where its error says all."""
    law = run.system.law
    if last is not None:
        return f"it ran away: {_reason(run, trajectory)}" if _size(last) > RUNAWAY else ""
    asked = law is not None and len(trajectory) > 0 and int(trajectory["status"][-1]) in law.stops_on
    if law is None or asked or not len(trajectory):
        return ""
    growth = growth_of(run.loop, _looks(run, trajectory), float(trajectory.t[-1]))
    return growth[0].text if growth else ""


def _reason(run: Run, trajectory: Trajectory) -> str:
    """Why a run ran away, as far as it is known, and what to do."""
    if run.system.law is None:
        return UNKNOWN
    beyond = [gain.problem for gain in all_gains(run.system, run.settings) if gain.problem is not None]
    if beyond:
        return "; ".join(beyond)
    until = float(trajectory.t[-1]) if len(trajectory) else run.start.t
    found = [finding.text for finding in growth_of(run.loop, _looks(run, trajectory), until)]
    found = found or _singular_pose(run, trajectory)
    found = found or [f.text for f in of_task(run.system, run.start, run.task_map) if f.kind == "singular_start"]
    return "; ".join(found) or UNKNOWN


def _singular_pose(run: Run, trajectory: Trajectory) -> list[str]:
    """A pose at which the task's rows lost a direction, before the run went beyond all bounds."""
    pivots = trajectory["pivot_min"][: _moderate(run, trajectory)]
    if len(pivots) < 2 or not pivots[0] > 0.0:
        return []
    i = int(np.nanargmin(pivots))
    if not pivots[i] < SMALLER * pivots[0]:
        return []
    return [
        f"the motion came near a singular pose at t = {trajectory.t[i]:.4g} s, where the smallest pivot was "
        f"{pivots[i]:.2g} ({pivots[0]:.2g} at the start): the inputs that the task asks for have no bound there (limit "
        "the inputs, raise law.rank_tolerance, or lead the task around it)"
    ]


def _moderate(run: Run, trajectory: Trajectory) -> int:
    """How many rows there are before the run went beyond all bounds."""
    bound = MODERATE * (1.0 + _size(run.start))
    sizes = np.abs(np.concatenate([trajectory.q, trajectory.v], axis=1)).max(axis=1, initial=0.0)
    beyond = np.flatnonzero(~(sizes < bound))
    return int(beyond[0]) if len(beyond) else len(trajectory)


def _looks(run: Run, trajectory: Trajectory) -> list[State]:
    """The start, and states of the run before it went beyond all bounds."""
    count = _moderate(run, trajectory)
    places = np.unique(np.linspace(0, count - 1, LOOKS).astype(int)) if count else np.zeros(0, dtype=int)
    states = [State(float(trajectory.t[i]), trajectory.q[i], trajectory.v[i]) for i in places if i]
    return [run.start, *states]


def _size(state: State) -> float:
    return float(np.nan_to_num(np.abs(np.concatenate([state.q, state.v])), nan=np.inf).max(initial=0.0))


def _is_of(finding: Finding, run: Run, missed: dict[str, float]) -> bool:
    groups = {row.group for row in run.system.model.task_rows if row.name in finding.rows}
    return bool(groups.intersection(missed))
