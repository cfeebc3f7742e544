"""Does a reference ask for more than the speed limits of a robot's joints?

Design: nothing is simulated. From the start, Gauss-Newton follows the required tasks and the loops from one time to the
next, and the least joint speeds that their rates need are compared with the limits. A robot with free motions may move
them faster than that.
"""

import numpy as np

from servoctl.assembly import Run
from servoctl.errors import ServoctlError
from servoctl.mechanics.initial import nearest
from servoctl.mechanics.spatial.plant import Robot
from servoctl.reference.speed import too_fast
from servoctl.types import State

SAMPLES = 60
"""Number of times at which the speeds are computed."""

LOST = 1e-3
"""A larger violation means that the robot cannot follow from there on [units of the row]."""


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
    model, law = run.system.model.plain, run.system.law
    wishes = () if law is None else law.wishes
    required = [row for i, row in enumerate(model.task_rows) if i not in wishes]
    index = [list(model.plant.coordinates).index(name) for name in joints]
    found = dict.fromkeys(joints, (0.0, run.start.t))
    state = run.start
    for t in np.linspace(run.start.t, run.start.t + run.settings.duration, SAMPLES + 1)[1:]:
        try:
            state, left = nearest(model, State(float(t), state.q, np.zeros(model.n)), among=required)
        except ServoctlError:
            break
        counted = [x for row, x in zip(left.rows, left.violation, strict=True) if row in required]
        if not np.abs(counted).max(initial=0.0) < LOST:
            break
        for name, i in zip(joints, index, strict=True):
            speed = abs(float(state.v[i]))
            if speed > found[name][0]:
                found[name] = speed, float(t)
    return found
