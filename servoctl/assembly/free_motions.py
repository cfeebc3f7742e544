"""Does the task hold every motion that the inputs can make, and does anything damp the rest?

Design: the smallest inputs that meet a task accelerate the free motions without end, because nothing asks where they
go. Two arms with seven joints each, whose box follows a pose, have two such motions: after 6 s they turn at 449 rad/s.
A task of priority 2 holds them at the same inputs.
"""

from dataclasses import dataclass

from servoctl.engine.linalg import decompose, frobenius
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.task_map import TaskMap
from servoctl.mechanics.terms import assemble
from servoctl.simulation.system import System
from servoctl.types import State

SMALLEST = ("minimum_norm", "weighted")  # allocations that ask nothing of the free motions


@dataclass(frozen=True)
class FreeMotions:
    """How many motions a machine has, and what becomes of them."""

    total: int  # motions without any constraint; a free base has six
    held: int  # those that the passive constraints and the task determine
    free: int  # those that the inputs can move and the task leaves free
    damped: bool  # whether the law damps the free ones

    @property
    def line(self) -> str:
        """One line of a report."""
        held = f"{self.held} of {self.total} motions are held"
        if not self.free:
            return held
        return f"{held}; {self.free} {'is' if self.free == 1 else 'are'} free" + (", and damped" if self.damped else "")


def free_motions(system: System, start: State, task_map: TaskMap | None) -> FreeMotions | None:
    """The motions at the start; None without constraint following, or if a term is not finite there."""
    law, model = system.law, system.model
    if not isinstance(law, BoundConstraintFollowing) or task_map is None:
        return None
    at = assemble(start, model.matrices(start), system.passive.rank_tolerance)
    if not (at.finite and at.positive):
        return None
    moved = decompose(at.project(at.inputs).T, law.rank_tolerance, frobenius(at.inputs)).rank
    bases = len(model.plant.tree.free_bases) if isinstance(model.plant, Robot) else 0
    damped = law.free_damping > 0.0 or law.null_space is not None or law.allocation not in SMALLEST
    held = at.passive.rank + task_map.rank - bases
    return FreeMotions(model.n - bases, held, max(0, moved - task_map.rank), damped)


def warning(motions: FreeMotions | None, stable: bool | None, is_robot: bool) -> list[str]:
    """A warning if nothing damps the free motions.

    Args:
        motions: The motions.
        stable: Whether the internal dynamics decay by themselves; None: unknown, or they neither decay nor grow.
        is_robot: Whether the plant has joints that a posture can hold.
    """
    if motions is None or not motions.free or motions.damped or stable:
        return []
    them = "it" if motions.free == 1 else "them"
    task = "a task `posture: initial` with priority: 2" if is_robot else "a task with priority: 2"
    return [
        f"{motions.line} and least torques do not damp {them} (add {task}, or law.secondary.damping, or "
        "law.allocation: constraint_force with law.secondary.damping)"
    ]
