"""What the start asks of a robot: joints inside their limits, first commands below their efforts."""

import math
from dataclasses import dataclass

import numpy as np

from servoctl.mechanics.spatial.inertial_values import IMPOSSIBLE
from servoctl.mechanics.spatial.model import TreeJoint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.simulation.closed_loop import Loop
from servoctl.types import State

AT_LIMIT = 1e-6  # an input closer to its effort than this share is at it


@dataclass(frozen=True)
class JointUse:
    """How a joint with a coordinate starts."""

    name: str  # of the joint
    unit: str  # of its coordinate
    q: float  # its coordinate
    # lower, upper: its limits; infinite where the file gives none
    lower: float
    upper: float
    u: float | None  # the first command of its actuator; None: it has none, or there is no law
    effort: float | None  # its largest torque or force; None: the file gives none
    u_unit: str  # unit of its actuator

    @property
    def margin(self) -> float:
        """Distance to the nearest limit; negative outside."""
        return min(self.q - self.lower, self.upper - self.q)

    @property
    def share(self) -> float | None:
        """First command relative to the effort; None where one of them is not known."""
        if self.u is None or self.effort is None:
            return None
        return abs(self.u) / self.effort if self.effort else (math.inf if self.u else 0.0)

    @property
    def warnings(self) -> list[str]:
        """A joint outside its limits, and a command at or above the effort."""
        found = []
        if self.margin < 0.0:
            side, limit = ("below its lower", self.lower) if self.q < self.lower else ("above its upper", self.upper)
            found.append(f"the start has {self.name} = {self.q:.4g} {self.unit}, {side} limit {limit:.4g} (initial.q)")
        if self.share is not None and self.share >= 1.0 - AT_LIMIT:
            at = "is at" if self.share <= 1.0 + AT_LIMIT else f"is {abs(self.u or 0.0):.4g} {self.u_unit}, above"
            remedy = "start elsewhere, or slower" if at == "is at" else "law.limits: robot keeps it inside"
            found.append(
                f"the first command of {self.name} {at} its effort, {self.effort:.4g} {self.u_unit} ({remedy})"
            )
        return found


def joint_uses(loop: Loop, start: State) -> list[JointUse]:
    """Each joint with a coordinate of its own; empty if the plant is no robot."""
    plant = loop.system.model.plant
    if not isinstance(plant, Robot):
        return []
    q, u = dict(zip(plant.coordinates, start.q, strict=True)), _first_command(loop, start, plant)
    lower, upper = (dict(zip(plant.coordinates, ends, strict=True)) for ends in joint_limits(plant.tree))
    return [
        JointUse(
            joint.name, joint.unit, float(q[joint.name]), float(lower[joint.name]), float(upper[joint.name]),
            u.get(joint.name), _effort(joint, u.get(joint.name, 0.0)), "N" if joint.kind == "prismatic" else "N m",
        )
        for joint in plant.tree.joints
        if joint.follows is None and joint.kind != "free"
    ]  # fmt: skip


def _effort(joint: TreeJoint, u: float) -> float | None:
    """The largest torque or force of a joint in the direction of u."""
    if joint.effort is None:
        return None
    return joint.effort[1] if u > 0.0 else -joint.effort[0]


def warnings(loop: Loop, start: State) -> list[str]:
    """Warnings about a robot and its start, one sentence each."""
    plant = loop.system.model.plant
    notes = plant.tree.notes if isinstance(plant, Robot) else ()
    impossible = [note for note in notes if IMPOSSIBLE in note]
    return [*impossible, *(sentence for joint in joint_uses(loop, start) for sentence in joint.warnings)]


def _first_command(loop: Loop, start: State, plant: Robot) -> dict[str, float]:
    if loop.system.law is None:
        return {}
    command = loop.control(start.t, np.concatenate([start.q, start.v, loop.memory_start]))
    return dict(zip(plant.actuators, map(float, command[loop.layout.slices["u"]]), strict=True))
