"""Warnings about a start from which the run is possible."""

import numpy as np

from servoctl.assembly.diagnosis import of_task
from servoctl.assembly.start import CLOSED, required_rows
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.initial import Consistency, consistency
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import VANISHES, TaskMap
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import State, Status

UNPROJECTED = (
    "passive rows are dependent, and with a correction they drift until they look independent: only projection gives "
    "the right motion from every start"
)


def start_warnings(loop: Loop, start: State, found: TaskMap | None) -> list[str]:
    """One sentence each."""
    system = loop.system
    at = consistency(system.model, start)
    sentences = _small_passive(system.model, at) + _of_tasks(system.model, at)
    if system.passive.dependent(system.model) and not system.passive.projection:
        sentences.append(f"{UNPROJECTED} (set plant.passive.projection: true)")
    law = system.law
    if not isinstance(law, BoundConstraintFollowing):
        return sentences
    sentences += [] if found is None else _reach_warnings(system, law, start, found)
    return sentences + _rate_alone(law) + _without_feedback(law, at) + _standstill(loop, start, at)


def _of_tasks(model: Model, at: Consistency) -> list[str]:
    """What the tasks themselves say about their violation at the start."""
    rows = list(zip(at.rows, at.violation, strict=True))
    sentences = []
    for name, constraint in model.plain.task.items():
        violation = np.array([x for row, x in rows if row.group == name and row in model.plain.task_rows])
        sentences += [f"task.{name}: {sentence}" for sentence in constraint.warnings(violation)]
    return sentences


def _reach_warnings(system: System, law: BoundConstraintFollowing, start: State, found: TaskMap) -> list[str]:
    """Rows that the inputs reach badly, or not at all."""
    sentences = [finding.text for finding in of_task(system, start, found)]
    if found.rank < found.generic_rank:
        rank = f"rank {found.rank} at the start, {found.generic_rank} nearby"
        sentences.insert(0, f"task: {rank}: the start is a singular pose")
    for row in [found.rows[i] for i in law.wishes if found.rows[i] in found.unreachable]:
        sentences.append(f"task.{row.name}: no input acts on it: given_up.{row.name} shows the error that remains")
    everywhere = {row.name for row in (*found.unreachable, *found.idle)}
    lost = [row.name for row, gain in zip(found.rows, found.gain, strict=True) if gain <= VANISHES]
    return sentences + [
        f"task.{name}: no input acts on it at the start, but nearby one does: its relative degree changes there"
        for name in lost
        if name not in everywhere
    ]


def _rate_alone(law: BoundConstraintFollowing) -> list[str]:
    rows = [
        row.name
        for row, damping, stiffness in zip(law.rows, law.damping, law.stiffness, strict=True)
        if row.has_rate and damping and not stiffness
    ]
    remedy = "give p_feedback.rate, or beta"
    return (
        [f"task: {', '.join(rows)}: the correction acts only on the rate, positions drift ({remedy})"] if rows else []
    )


def _small_passive(model: Model, at: Consistency) -> list[str]:
    rows = [(row, x) for row, x in zip(at.rows, at.violation, strict=True) if row in model.passive_rows]
    return [
        f"the start violates the plant's own constraint {row.name} by {x:.1e} (initial.project: true removes this)"
        for row, x in rows if abs(x) > CLOSED
    ]  # fmt: skip


def _without_feedback(law: BoundConstraintFollowing, at: Consistency) -> list[str]:
    passive = len(at.rows) - len(law.rows)
    values = zip(law.rows, at.violation[passive:], at.violation_rate[passive:], law.damping, law.stiffness, strict=True)
    worst: dict[tuple[str, str], float] = {}
    for row, violation, rate, damping, stiffness in values:
        if abs(violation) > CLOSED and not stiffness:
            key, off = (row.group, "off in velocity" if row.kind == "nonholonomic" else "off"), violation
        elif row.has_rate and abs(rate) > CLOSED and not damping:
            key, off = (row.group, "off in rate"), rate
        else:
            continue
        worst[key] = max(off, worst.get(key, 0.0), key=abs)
    return [
        f"task.{group}: starts {off:.4g} {how}, and no correction reduces it (law.correction)"
        for (group, how), off in worst.items()
    ]


def _standstill(loop: Loop, start: State, at: Consistency) -> list[str]:
    """A warning if nothing ever moves from this start although the task is not met."""
    x, system = np.concatenate([start.q, start.v, loop.memory_start]), loop.system
    rates, row = loop.rates(start.t, x)
    counted = [*system.model.plain.passive_rows, *required_rows(system.model, system.law)]
    violated = any(abs(x) > CLOSED for row, x in zip(at.rows, at.violation, strict=True) if row in counted)
    ok = row[loop.layout.slices["status"].start] < Status.NOT_POSITIVE.code
    if violated and ok and not np.abs(rates).max() > 1e-12:
        return ["nothing moves from this start: velocities and accelerations are zero, but the task is not met"]
    return []
