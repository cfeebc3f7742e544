"""Does a reference ask for more than the speed limits of a robot's joints?

Design: nothing is simulated. The least joint speeds that the rates of the required tasks and the loops need are
compared with the limits. A robot with free motions may move them faster than that.
"""

from servoctl.assembly import Run
from servoctl.check.task_path import task_states
from servoctl.mechanics.spatial.plant import Robot
from servoctl.reference.speed import too_fast

SAMPLES = 60  # number of times at which the speeds are computed


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
    for state in task_states(run, SAMPLES):
        for name, i in zip(joints, index, strict=True):
            speed = abs(float(state.v[i]))
            if speed > found[name][0]:
                found[name] = speed, state.t
    return found
