"""Warnings about a config and a start from which the run is possible: of tasks, of robots, of unit words."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly.diagnosis import of_task
from servoctl.assembly.start import CLOSED, first_command, required_rows
from servoctl.config.load import LoadedConfig
from servoctl.errors import ExpressionError
from servoctl.expression import foreign_word, parse
from servoctl.finding import Finding
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.initial import Consistency, consistency
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import IMPOSSIBLE
from servoctl.mechanics.spatial.model import TreeJoint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits
from servoctl.mechanics.task_map import VANISHES, TaskMap
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import State, Status

UNPROJECTED = (
    "mechanism rows are dependent, and with a correction they drift until they look independent: only projection gives "
    "the right motion from every start"
)


def start_warnings(loop: Loop, start: State, found: TaskMap | None) -> list[Finding]:
    """What a run may meet, and a person should know before."""
    system = loop.system
    at = consistency(system.model, start)
    findings = _small_passive(system.model, at) + _of_tasks(system.model, at)
    if system.passive.dependent(system.model) and not system.passive.projection:
        findings.append(Finding("", f"{UNPROJECTED} (set plant.passive.projection: true)"))
    law = system.following
    if law is None:
        return findings
    findings += [] if found is None else _reach_warnings(system, law, start, found)
    return findings + _rate_alone(law) + _without_feedback(law, at) + _standstill(loop, start, at)


def _of_tasks(model: Model, at: Consistency) -> list[Finding]:
    """What the tasks themselves say about their violation at the start."""
    findings, rows = [], at.each(model.plain.task_rows)
    for name, constraint in model.plain.task.items():
        violation = np.array([x for row, x, _ in rows if row.group == name])
        findings += [Finding(f"task.{name}", sentence) for sentence in constraint.warnings(violation)]
    return findings


def _reach_warnings(system: System, law: AttachedConstraintFollowing, start: State, found: TaskMap) -> list[Finding]:
    """Rows that the inputs reach badly, or not at all."""
    findings = of_task(system, start, found)
    if found.rank < found.generic_rank:
        rank = f"rank {found.rank} at the start, {found.generic_rank} nearby"
        findings.insert(0, Finding("task", f"{rank}: the start is a singular pose"))
    for row in [found.rows[i] for i in law.low_priority_rows if found.rows[i] in found.unreachable]:
        findings.append(
            Finding(f"task.{row.name}", f"no input acts on it: given_up.{row.name} shows the error that remains")
        )
    everywhere = {row.name for row in (*found.unreachable, *found.idle)}
    lost = [row.name for row, gain in zip(found.rows, found.gain, strict=True) if gain <= VANISHES]
    return findings + [
        Finding(
            f"task.{name}", "no input acts on it at the start, but nearby one does: its relative degree changes there"
        )
        for name in lost
        if name not in everywhere
    ]


def _rate_alone(law: AttachedConstraintFollowing) -> list[Finding]:
    rows = [
        row.name
        for row, damping, stiffness in zip(law.rows, law.correction.damping, law.correction.stiffness, strict=True)
        if row.has_rate and damping and not stiffness
    ]
    remedy = "give p_feedback.rate, or beta"
    sentence = f"{', '.join(rows)}: the correction acts only on the rate, positions drift ({remedy})"
    return [Finding("task", sentence)] if rows else []


def _small_passive(model: Model, at: Consistency) -> list[Finding]:
    remedy = "initial.project: true removes this"
    return [
        Finding("", f"the start violates the plant's own constraint {row.name} by {x:.1e} ({remedy})")
        for row, x, _ in at.each(model.passive_rows)
        if abs(x) > CLOSED
    ]


def _without_feedback(law: AttachedConstraintFollowing, at: Consistency) -> list[Finding]:
    passive = len(at.rows) - len(law.rows)
    gains = law.correction.damping, law.correction.stiffness
    values = zip(law.rows, at.violation[passive:], at.violation_rate[passive:], *gains, strict=True)
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
        Finding(f"task.{group}", f"starts {off:.4g} {how}, and no correction reduces it (law.correction)")
        for (group, how), off in worst.items()
    ]


def _standstill(loop: Loop, start: State, at: Consistency) -> list[Finding]:
    """A warning if nothing ever moves from this start although the task is not met."""
    x, system = loop.x_at(start), loop.system
    rates, row = loop.rates(start.t, x)
    counted = [*system.model.plain.passive_rows, *required_rows(system.model, system.law)]
    violated = any(abs(x) > CLOSED for _, x, _ in at.each(counted))
    ok = row[loop.layout.slices["status"].start] < Status.NOT_POSITIVE.code
    if violated and ok and not np.abs(rates).max() > 1e-12:
        still = "nothing moves from this start: velocities and accelerations are zero, but the task is not met"
        return [Finding("", still)]
    return []


def unit_word_warnings(loaded: LoadedConfig, plant: Plant) -> list[Finding]:
    """One for each of them in a config as it is written."""
    found = []
    for place, text, unit in _texts(loaded.document.values, plant):
        try:
            foreign = foreign_word(parse(text), plant.coordinates, unit)
        except ExpressionError:  # refused elsewhere
            continue
        if foreign is not None:
            word, other = foreign
            found.append(
                Finding(place, f"{text!r} has the unit word {word!r} where {other} belongs (give it in {other})")
            )
    return found


def _texts(values: Mapping[str, Any], plant: Plant) -> Iterator[tuple[str, str, str]]:
    """Place, text, and the unit that belongs there; empty for equations, whose terms say it."""
    initial = values.get("initial")
    for field in ("q", "v"):
        given = initial.get(field) if isinstance(initial, Mapping) else None
        for name, value in given.items() if isinstance(given, Mapping) else ():
            yield f"initial.{field}.{name}", str(value), plant.coordinates.get(name, "")
    for section in ("task", "bounds"):
        entries = values.get(section)
        for i, entry in enumerate(entries if isinstance(entries, list) else []):
            for field in ("holonomic", "nonholonomic"):
                if isinstance(entry, Mapping) and isinstance(entry.get(field), str):
                    yield f"{section}.{entry.get('name', i)}.{field}", entry[field], ""
            limits = entry.get("position") if isinstance(entry, Mapping) else None
            for name, pair in limits.items() if isinstance(limits, Mapping) else ():
                for value in pair if isinstance(pair, list) else [pair]:
                    yield f"bounds.{entry.get('name', i)}.position.{name}", str(value), plant.coordinates.get(name, "")


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
    def warnings(self) -> list[Finding]:
        """A joint outside its limits, and a command at or above the effort."""
        found = []
        if self.margin < 0.0:
            side, limit = ("below its lower", self.lower) if self.q < self.lower else ("above its upper", self.upper)
            outside = f"the start has {self.name} = {self.q:.4g} {self.unit}, {side} limit {limit:.4g} (initial.q)"
            found.append(Finding("", outside))
        if self.share is not None and self.share >= 1.0 - AT_LIMIT:
            at = "is at" if self.share <= 1.0 + AT_LIMIT else f"is {abs(self.u or 0.0):.4g} {self.u_unit}, above"
            remedy = "start elsewhere, or slower" if at == "is at" else "law.limits: robot keeps it inside"
            effort = f"the first command of {self.name} {at} its effort, {self.effort:.4g} {self.u_unit} ({remedy})"
            found.append(Finding("", effort))
        return found


def joint_uses(loop: Loop, start: State) -> list[JointUse]:
    """Each joint with a coordinate of its own; empty if the plant is no robot."""
    plant = loop.system.model.plant
    if not isinstance(plant, Robot):
        return []
    q, u = dict(zip(plant.coordinates, start.q, strict=True)), first_command(loop, start)
    limits = joint_limits(plant.tree)
    return [
        JointUse(
            joint.name, joint.unit, float(q[joint.name]), *limits[joint.name],
            u.get(joint.name), _effort(joint, u.get(joint.name, 0.0)), "N" if joint.kind == "prismatic" else "N m",
        )
        for joint in plant.tree.joints
        if joint.leads
    ]  # fmt: skip


def _effort(joint: TreeJoint, u: float) -> float | None:
    """The largest torque or force of a joint in the direction of u."""
    if joint.effort is None:
        return None
    return joint.effort[1] if u > 0.0 else -joint.effort[0]


def robot_warnings(loop: Loop, start: State) -> list[Finding]:
    """Warnings about a robot and its start."""
    plant = loop.system.model.plant
    notes = plant.tree.notes if isinstance(plant, Robot) else ()
    impossible = [Finding("", note) for note in notes if IMPOSSIBLE in note]
    return [
        *impossible,
        *_pulling_feet(plant),
        *(finding for joint in joint_uses(loop, start) for finding in joint.warnings),
    ]


def _pulling_feet(plant: Plant) -> Iterator[Finding]:
    """A warning about the points of a robot with a free base that loops hold on the ground."""
    if not isinstance(plant, Robot) or not plant.tree.free_bases:
        return
    fixed = {frame.name for frame in plant.tree.frames if frame.body < 0}
    feet = [loop.name for loop in plant.tree.loops if loop.kind == "point" and fixed & {loop.first, loop.second}]
    if feet:
        pulls = "a foot may pull on the ground, too, unless a bound holds its reaction"
        yield Finding("", f"loops {', '.join(feet)}: {pulls}")
