"""The part of a check that is about a robot: its free motions, joints at the start, and notes of its files."""

import math
from collections.abc import Iterator
from typing import Any

from servoctl.assembly.robot_checks import JointUse, joint_uses
from servoctl.assembly.run import Run
from servoctl.mechanics.friction import friction_of
from servoctl.mechanics.spatial.inertial_values import IMPOSSIBLE
from servoctl.mechanics.spatial.model import WORLD
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.task import CentreOfMass


def robot_section(run: Run) -> tuple[list[str], dict[str, Any]]:
    """Lines and values; empty if the plant is no robot."""
    plant = run.system.model.plant
    if not isinstance(plant, Robot):
        return [], {}
    joints = joint_uses(run.loop, run.start)
    lines = [*_nearest_limit(joints), *_largest_share(joints)]
    notes = [*plant.tree.notes, *_frictionless(plant), *_weighed(run, plant)]
    lines += [note for note in notes if IMPOSSIBLE not in note]  # which is a warning
    values = {joint.name: _values(joint) for joint in joints}
    return lines, {"joints": values, "notes": notes}


def _weighed(run: Run, plant: Robot) -> Iterator[str]:
    """What a task on the centre of mass counts, where some of it cannot move."""
    names = [name for name, constraint in run.system.model.task.items() if isinstance(constraint, CentreOfMass)]
    fixed = [link.name for link in plant.tree.links if link.body == WORLD]
    if names and fixed:
        total, still = (
            sum(getattr(plant, f"{link.name}_m") for link in plant.tree.links if link.name in of)
            for of in ([link.name for link in plant.tree.links], fixed)
        )
        yield (
            f"{', '.join(names)}: the centre of mass is that of every link, {total:.4g} kg, of which {still:.4g} kg do "
            f"not move ({', '.join(fixed)})"
        )


def _frictionless(plant: Robot) -> Iterator[str]:
    """Joints whose friction in the file is not in the plant."""
    rough = [joint.name for joint in plant.tree.joints if joint.follows is None and joint.kind != "free"]
    rough = [name for name in rough if plant.tree.friction(name)]
    known, driven = friction_of(plant) is not None, plant.tree.motors
    if off := [] if known else [name for name in rough if name in driven]:
        yield f"{', '.join(off)}: the file's friction is off (`plant.friction: robot` turns it on)"
    if off := [name for name in rough if name not in driven]:
        yield f"{', '.join(off)}: the file's friction is off (joints without an actuator have none)"


def _nearest_limit(joints: list[JointUse]) -> list[str]:
    limited = [joint for joint in joints if math.isfinite(joint.margin)]
    if not limited:
        return ["joint limits: the files give none"]
    least = min(limited, key=lambda joint: joint.margin)
    if least.margin < 0.0:
        return [f"joint limits: {sum(joint.margin < 0.0 for joint in limited)} of {len(limited)} joints start outside"]
    closest = f"{least.name} is closest, by {least.margin:.3g} {least.unit}"
    return [f"joint limits: all {len(limited)} met at the start; {closest}"]


def _largest_share(joints: list[JointUse]) -> list[str]:
    shares = [(joint.share, joint) for joint in joints if joint.share is not None]
    if not shares:
        return []
    share, joint = max(shares, key=lambda pair: pair[0])
    used = f"{abs(joint.u or 0.0):.4g} of {joint.effort:.4g} {joint.u_unit}, {100 * share:.0f} %"
    return [f"first command against effort: {joint.name} uses most, {used}"]


def _values(joint: JointUse) -> dict[str, Any]:
    limits = [x if math.isfinite(x) else None for x in (joint.lower, joint.upper)]
    return {"q": joint.q, "limits": limits, "u": joint.u, "effort": joint.effort}
