"""Can a run start from this state, and what should a person know before it does? Projection on request."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly.diagnosis import INDEPENDENT, of_task
from servoctl.assembly.gains import STATES
from servoctl.config.load import LoadedConfig
from servoctl.engine.decomposition import decompose
from servoctl.errors import ExpressionError, Finding, TaskError
from servoctl.expression import foreign_word, parse, per_second
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.hierarchy import Contradiction, PassiveLevel, contradictions
from servoctl.mechanics.initial import Consistency, consistency, nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.description import IMPOSSIBLE
from servoctl.mechanics.spatial.model import TreeJoint
from servoctl.mechanics.spatial.plant import Robot
from servoctl.mechanics.spatial.pose_solver import joint_limits, joints_without_room
from servoctl.mechanics.task_map import VANISHES, TaskMap, sample_task_map
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import State, Status

ASSEMBLED = 1e-3  # [m or rad, and per s] if a passive constraint is violated by more, the mechanism is not assembled
CLOSED = 1e-6  # [units of the row] rows that are violated by more at the nearest state contradict each other


def project(model: Model, start: State, fix: Sequence[str], law: AttachedLaw | None = None) -> State:
    """The nearest state that satisfies the passive constraints and the task.

    Tasks of lower priority are left out if no state satisfies them too.

    Raises:
        TaskError: There is no such state near the start.
    """
    state, remaining = nearest(model, start, fix)
    open_rows = _open(remaining)
    required = required_rows(model, law)
    if open_rows and len(required) < len(model.plain.task_rows):
        state, remaining = nearest(model, start, fix, required)
        open_rows = _open(remaining, [*model.plain.passive_rows, *required])
    if open_rows:
        held = f" with {', '.join(fix)} fixed" if fix else ""
        remedy = "move the start, or fix fewer coordinates" if fix else "move the start"
        raise TaskError(f"no state near the start satisfies {_listed(open_rows)}{held} ({remedy})")
    return state


def _open(at: Consistency, among: Sequence[Row] | None = None) -> list[tuple[str, float]]:
    """Rows that are not satisfied: name and violation. Rows given on accelerations hold at any state."""
    values = [each for each in at.each(among) if each[0].kind != "second_order"]
    worst = [(row, float(np.nanmax(np.abs([x, y])))) for row, x, y in values if not (math.isnan(x) and math.isnan(y))]
    return [(row.name, value) for row, value in worst if not value <= CLOSED]


def _listed(rows: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} (off by {value:.3g})" for name, value in rows)


def unstabilised(system: System, start: State) -> list[str]:
    """Dependent passive rows without a correction: through drift they soon look independent."""
    model, passive = system.model, system.passive
    if not model.passive_rows or passive.projection:
        return []
    rank = model.terms(start, passive.rank_tolerance).passive.rank
    gains = zip(model.passive_rows, passive.correction.stiffness, strict=True)
    loose = [row.name for row, stiffness in gains if row.has_violation and not stiffness]
    if rank == len(model.passive_rows) or not loose:
        return []
    return [
        f"rank {rank} of {len(model.passive_rows)} mechanism rows, and nothing corrects {', '.join(loose)}: the motion "
        "would become wrong (give plant.passive.correction, or plant.passive.projection: true)"
    ]


def check_start(loop: Loop, start: State, max_violation: float) -> list[str]:
    """Why a start is impossible, one sentence each.

    Args:
        max_violation: Largest allowed violation of a holonomic task row.
    """
    model, law, funnel = loop.system.model, loop.system.law, loop.system.acting.funnel
    problems, required = _not_finite(model, start, observed=law is None), required_rows(model, law)
    if problems:
        return problems
    at = consistency(model, start)
    problems = _not_assembled(model, at)
    if not problems:
        problems += _contradictions(model, start, at, required)
    worst = at.worst(required, "holonomic")
    if worst is not None and abs(worst[1]) > max_violation:
        row, value = worst
        units = model.plant.actuators
        u = ", ".join(f"{name} = {value:.4g} {units[name]}" for name, value in first_command(loop, start).items())
        problems.append(
            f"the start violates task.{row.name} by {_with_unit(value, model.row_units[1].get(row.name))}; "
            f"initial.max_violation is {max_violation:g}{f'; the first command would be {u}' if u else ''} "
            "(move the start, set initial.project: true, or raise initial.max_violation)"
        )
    if funnel is not None:
        problems += funnel.outside(model.matrices(start).task, start.t)
    return problems


def _with_unit(value: float, unit: str | None) -> str:
    degrees = f"{math.degrees(value):.4g} deg"
    if unit is None:
        return f"{value:.4g} ({degrees}, if it is an angle)"
    return f"{value:.4g} rad ({degrees})" if unit == "rad" else f"{value:.4g} {unit}"


def _not_finite(model: Model, start: State, observed: bool = False) -> list[str]:
    """Rows that are not finite at the start; `observed`: the task is not followed, so that its rows may be anything."""
    m, problems = model.matrices(start), []
    q = ", ".join(f"{name} = {x:.6g}" for name, x in list(zip(model.plant.coordinates, start.q, strict=True))[:6])
    singular = {} if observed else model.singularities(m.task)
    problems += [f"{task}: {sentence} at the start, {q} (move the start)" for task, sentence in singular.items()]
    task = [] if observed else model.task_rows
    for field, names, rows in (("passive", model.passive_rows, m.passive), ("task", task, m.task)):
        for row, A, b, violation in zip(names, rows.A, rows.b, rows.violation, strict=False):
            if row.group not in singular and not (
                np.isfinite(A).all() and np.isfinite(b) and (np.isfinite(violation) or not row.has_violation)
            ):
                problems.append(
                    f"{field}.{row.name} is not finite at the start, {q}: error {violation:.4g}, "
                    f"A {A.tolist()}, b {b:.4g} (move the start, or correct the equation)"
                )
    return problems


def first_command(loop: Loop, start: State) -> dict[str, float]:
    """Actuator -> the first command; empty without a law."""
    if loop.system.law is None:
        return {}
    command = loop.control(start.t, loop.x_at(start))
    return dict(zip(loop.system.model.plant.actuators, map(float, command[loop.layout.slices["u"]]), strict=True))


def _not_assembled(model: Model, at: Consistency) -> list[str]:
    problems = []
    for row, violation, rate in at.each(model.passive_rows):
        for what, value in (("violates", violation), ("violates the rate of", rate)):
            if abs(value) > ASSEMBLED:
                problems.append(
                    f"the start {what} the plant's own constraint {row.name} by {value:.3g} "
                    "(correct it, or set initial.project: true)"
                )
    return problems


def required_rows(model: Model, law: AttachedLaw | None) -> list[Row]:
    """Task rows of priority 1, which a start must be able to follow; none in an open loop."""
    if law is None:
        return []
    return [row for i, row in enumerate(model.plain.task_rows) if i not in law.low_priority_rows]


def _contradictions(model: Model, start: State, at: Consistency, among: Sequence[Row]) -> list[str]:
    """Rows that no state near the start, or no acceleration, satisfies together."""
    state, counted = start, [*model.plain.passive_rows, *among]
    if _open(at, counted):
        state, remaining = nearest(model, start, among=among)
        open_rows = _open(remaining, counted)
        if open_rows:
            met = [row.name for row in counted if row.name not in dict(open_rows)]
            together = f" together with {', '.join(met)}" if met else ""
            why = "the rows contradict each other, or are out of reach (correct the equations, or the start)"
            passive, task, _ = model.plain.rows(start)
            slopes = zip((*model.plain.passive_rows, *model.plain.task_rows), (*passive.A, *task.A), strict=True)
            flat = [row.name for row, A in slopes if row.name in dict(open_rows) and not A.any()]
            why = _unmoved(flat) or why
            return [f"no state near the start satisfies {_listed(open_rows)}{together}: {why}"]
    matrices = model.plain.matrices(state)
    rows = Rows.stack([matrices.passive, matrices.task], model.n)
    used = [row in counted for row in (*model.plain.passive_rows, *model.plain.task_rows)]
    A, b = rows.A[used], rows.b[used]
    if not len(b) or not (np.isfinite(A).all() and np.isfinite(b).all()):
        return []
    left_over = decompose(A, INDEPENDENT).residual(b)
    size = 1.0 + float(np.abs(b).max())
    wrong = [row.name for row, value in zip(counted, left_over, strict=True) if abs(value) > CLOSED * size]
    if wrong:
        unmoved = _unmoved(
            [row.name for row, slope in zip(counted, A, strict=True) if row.name in wrong and not slope.any()]
        )
        together = " together" * (len(wrong) > 1)
        why = unmoved or "the rows contradict each other (drop one)"
        return [f"no acceleration satisfies {', '.join(wrong)}{together}: {why}"]
    return []


def _unmoved(rows: Sequence[str]) -> str:
    """Why these rows, which no coordinate moves, cannot be met; empty if there is none."""
    remedy = "move the start, or correct the equation"
    return f"no coordinate moves {', '.join(rows)} at the start, where its slope is 0 ({remedy})" if rows else ""


def contradicting_levels(model: Model, start: State, levels: Sequence[PassiveLevel]) -> list[Contradiction]:
    """Levels of passive constraints that contradict earlier levels; empty if the mechanism is not assembled."""
    at = consistency(model, start)
    if not levels or _not_finite(model, start) or _not_assembled(model, at):
        return []
    closed = nearest(model, start, among=[])[0] if _open(at, model.plain.passive_rows) else start
    return contradictions(model, closed, levels, INDEPENDENT, CLOSED)


def look_at_reach(system: System, start: State, count: int = STATES) -> TaskMap:
    """What the actuators can do for the task, at the start and at states near it."""
    rank_tolerance = 1e-10 if system.following is None else system.following.allocation.rank_tolerance
    states = system.model.near(start, count - 1)
    return sample_task_map(system.model, states, rank_tolerance, system.passive.rank_tolerance)


def unreachable(found: TaskMap, law: AttachedLaw) -> list[str]:
    """Rows of priority 1 that constraint following cannot follow, one sentence each."""
    problems = []
    for i, row in enumerate(found.rows):
        if row not in found.unreachable or i in law.low_priority_rows:
            continue
        problems.append(
            f"task.{row.name}: relative degree {found.degree(row)}: no actuator acts on its acceleration (A Phi B "
            f"vanishes at {STATES} states), so constraint_following cannot follow it (use law.kind: input_output with "
            "correction: {poles: -4}, or an actuator on the row's coordinates, or another task)"
        )
    return problems


UNPROJECTED = (
    "mechanism rows are dependent, and with a correction they drift until they look independent: only projection gives "
    "the right motion from every start"
)


def start_warnings(loop: Loop, start: State, found: TaskMap | None) -> list[Finding]:
    """What a run may meet, and a person should know before."""
    system = loop.system
    at = consistency(system.model, start)
    findings = _small_passive(system.model, at) + _of_tasks(system.model, at)
    if system.passive.dependent and not system.passive.projection:
        findings.append(Finding("", f"{UNPROJECTED} (set plant.passive.projection: true)"))
    law = system.following
    if law is None:
        return findings
    findings += [] if found is None else _reach_warnings(system, law, start, found)
    return findings + _rate_alone(law) + _without_feedback(law, at, system.model) + _standstill(loop, start, at)


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


def _without_feedback(law: AttachedConstraintFollowing, at: Consistency, model: Model) -> list[Finding]:
    passive = len(at.rows) - len(law.rows)
    gains = law.correction.damping, law.correction.stiffness
    values = zip(law.rows, at.violation[passive:], at.violation_rate[passive:], *gains, strict=True)
    worst: dict[tuple[str, str], tuple[float, str]] = {}  # task and kind of error -> largest error, its row
    for row, violation, rate, damping, stiffness in values:
        if abs(violation) > CLOSED and not stiffness:
            key, off = (row.group, "off in velocity" if row.kind == "nonholonomic" else "off"), violation
        elif row.has_rate and abs(rate) > CLOSED and not damping:
            key, off = (row.group, "off in rate"), rate
        else:
            continue
        worst[key] = max((off, row.name), worst.get(key, (0.0, "")), key=lambda error: abs(error[0]))
    units = model.row_units[1] if worst else {}
    findings = []
    for (group, how), (off, name) in worst.items():
        unit = units.get(name, "")
        amount = f"{off:.4g} {per_second(unit) if how == 'off in rate' else unit}".rstrip()
        findings.append(
            Finding(f"task.{group}", f"starts {amount} {how}, and no correction reduces it (law.correction)")
        )
    return findings


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
    without_room = joints_without_room(plant.tree) if isinstance(plant, Robot) else ()
    return [
        *impossible,
        *(Finding("", sentence) for sentence in without_room),
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
