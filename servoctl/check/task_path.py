"""States along the task by geometry alone, without a simulation: from the start, Gauss-Newton follows it through time.

Design: what the task leaves free stays near the start, and moves with the least speeds. A run may move it otherwise.

The least joint speeds that the rates of the required tasks and the loops need are
compared with the limits. A robot with free motions may move them faster than that.
"""

from collections.abc import Iterator

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.start import required_rows
from servoctl.errors import ServoctlError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.spatial.plant import Robot
from servoctl.reference.speed import too_fast
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


SPEED_SAMPLES = 60  # number of times at which the speeds are computed


def speed_warnings(run: Run) -> list[str]:
    """Sentences about joints that the references move faster than their limits; empty without robot or references."""
    model = run.system.model.plain
    used = {name for constraint in model.task.values() for name in constraint.signals}
    if not isinstance(model.plant, Robot) or not used:
        return []
    limits = {joint.name: joint.velocity for joint in model.plant.tree.joints if joint.velocity is not None}
    guided = {signal.column: signal for name, signal in run.signals.items() if name in used and signal.column in limits}
    sentences = too_fast(guided, limits)
    needed = _needed(run, list(limits))
    for name, (speed, t) in needed.items():
        if name not in guided and speed > limits[name]:
            sentences.append(
                f"task: moves {name} at {speed:.4g} at t = {t:.4g} s or faster, its speed limit is {limits[name]:.4g} "
                "(slow the reference down)"
            )
    return sentences


def _needed(run: Run, joints: list[str]) -> dict[str, tuple[float, float]]:
    """Joint -> its largest least speed along the required tasks, and when; up to where the robot cannot follow."""
    index = [list(run.system.model.plant.coordinates).index(name) for name in joints]
    found = dict.fromkeys(joints, (0.0, run.start.t))
    for state in task_states(run, SPEED_SAMPLES):
        for name, i in zip(joints, index, strict=True):
            speed = abs(float(state.v[i]))
            if speed > found[name][0]:
                found[name] = speed, state.t
    return found
