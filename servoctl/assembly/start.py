"""Can a run start from this state? Projection on request, and errors for impossible starts."""

import math
from collections.abc import Sequence

import numpy as np

from servoctl.engine.decomposition import decompose
from servoctl.errors import TaskError
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.hierarchy import Contradiction, PassiveLevel, contradictions
from servoctl.mechanics.initial import Consistency, consistency, nearest
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import TaskMap, sample_task_map
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.system import System
from servoctl.types import State

ASSEMBLED = 1e-3  # [m or rad, and per s] if a passive constraint is violated by more, the mechanism is not assembled
CLOSED = 1e-6  # [units of the row] rows that are violated by more at the nearest state contradict each other
INDEPENDENT = 1e-9  # a direction of the rows counts if its pivot exceeds this times their Frobenius norm
STATES = 6  # number of states at which the reach of the actuators is evaluated, including the start


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
    gains = zip(model.passive_rows, passive.stiffness, strict=True)
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
            return [
                f"no state near the start satisfies {_listed(open_rows)}{together}: the rows contradict each other, "
                "or are out of reach (correct the equations, or the start)"
            ]
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
        return [f"no acceleration satisfies {', '.join(wrong)} together: the rows contradict each other (drop one)"]
    return []


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
