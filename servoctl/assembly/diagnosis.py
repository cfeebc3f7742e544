"""What is known to be wrong with a task: of the plant and the task themselves, which no gain, step or period mends.

Design: each finding is a sentence with its remedy. Those of a start are said before a run and by `check`; those of the
internal dynamics by `check`, and by a run that ran away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from servoctl.errors import ServoctlError
from servoctl.mechanics.extension import Shared, shared_inputs
from servoctl.mechanics.model import Row
from servoctl.mechanics.task_map import VANISHES, TaskMap
from servoctl.mechanics.terms import assemble
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.internal_dynamics import InternalDynamics, internal_dynamics
from servoctl.simulation.system import System
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import State

NEAR = 0.01
"""A gain at the start below this is nearly singular, whatever it is nearby [-]."""

SMALLER = 0.1
"""A gain, or a pivot, at the start below this times that nearby is nearly singular."""

STATES = 6
"""States at which dependent rows are looked at."""

REMEDY = "take another output, add an actuator, or feed the internal state back"
"""For unstable internal dynamics."""

DAMPED = "damp what the task leaves free: law.secondary.damping, or law.allocation: constraint_force"
"""The same where there are more inputs than rows: the spare ones reach it."""


@dataclass(frozen=True)
class Finding:
    """What is known to be wrong.

    Attributes:
        kind: `internal_dynamics`, `singular_start`, `dynamic_extension`, `too_few_inputs` or `dependent_rows`.
        rows: Names of the task rows that it is of; of internal dynamics none.
        text: One sentence, with its remedy.
    """

    kind: str
    rows: tuple[str, ...]
    text: str

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"kind": self.kind, "rows": list(self.rows), "text": self.text}


def of_task(system: System, start: State, task_map: TaskMap | None) -> list[Finding]:
    """What keeps the inputs from serving the rows of priority 1, and rows that they hardly reach at the start."""
    law = system.law
    if law is None or task_map is None:
        return []
    at = assemble(start, system.model.matrices(start), system.passive.rank_tolerance)
    if not (at.finite and at.positive):
        return []
    rows = [
        i for i in range(len(task_map.rows)) if i not in law.wishes and task_map.rows[i] not in task_map.unreachable
    ]
    shared = None
    if task_map.generic_rank < len(task_map.rows):
        states = [start, *system.model.samples(start, STATES - 1)]
        shared = shared_inputs(system.model, states, rows, system.passive.rank_tolerance)
    found = [] if shared is None else [_dependent(shared, [task_map.rows[i] for i in rows], task_map, system)]
    taken = () if shared is None else shared.rows
    return found + _singular(task_map, [i for i in rows if i not in taken], independent=shared is None)


def _dependent(shared: Shared, required: Sequence[Row], task_map: TaskMap, system: System) -> Finding:
    """Rows that share inputs, and why."""
    names, m = tuple(task_map.rows[i].name for i in shared.rows), system.model.m
    listed, rank = ", ".join(names), f"task: rank {shared.rank} of {len(required)} rows"
    fewer = f"keep at most {shared.combinations} of {listed}, or give the others priority: 2"
    if len(required) > m:
        inputs = "one input follows" if m == 1 else f"{m} inputs follow"
        text = f"{rank}: {inputs} at most {m} of them; {listed} share what there is (add an actuator; or {fewer})"
        return Finding("too_few_inputs", names, text)
    many = "one combination" if shared.combinations == 1 else f"{shared.combinations} combinations"
    what = f"{listed} are reached through {many} of the inputs alone, {shared.combination}"
    if shared.integrators is None:
        return Finding("dependent_rows", names, f"{rank}: {what}: they are met only where they agree ({fewer})")
    count = "an integrator" if shared.integrators == 1 else f"{shared.integrators} integrators"
    inputs = shared.combination if shared.combinations == 1 else f"each of {shared.combination}"
    text = (
        f"{rank}: {what}: they have no vector relative degree, and need a dynamic extension (put {count} before "
        f"{inputs} in the plant and take what enters there as the input: then the other inputs tell the rows apart; "
        f"or {fewer})"
    )
    return Finding("dynamic_extension", names, text)


def _singular(task_map: TaskMap, rows: Sequence[int], independent: bool) -> list[Finding]:
    """Rows that the inputs hardly reach at the start, alone or together."""
    found = []
    for i in rows:
        name, gain, nearby = task_map.rows[i].name, float(task_map.gain[i]), float(task_map.largest_gain[i])
        if gain > VANISHES and (gain < NEAR or gain < SMALLER * nearby):
            found.append(
                Finding(
                    "singular_start",
                    (name,),
                    f"task.{name}: the start is nearly singular: the inputs reach the row with a gain of {gain:.2g} "
                    f"(1 at best, {nearby:.2g} nearby), so small errors ask for large inputs (start elsewhere, limit "
                    "the inputs, or prescribe another output)",
                )
            )
    together = task_map.rank == task_map.generic_rank == len(task_map.rows) > 1 and independent
    if not found and together and task_map.pivot < SMALLER * task_map.largest_pivot:
        names = tuple(task_map.rows[i].name for i in rows)
        text = (
            f"task: the start is nearly singular: the rows {', '.join(names)} are almost dependent there, with a "
            f"smallest pivot of {task_map.pivot:.2g} ({task_map.largest_pivot:.2g} nearby), so small errors ask for "
            "large inputs (start elsewhere, or limit the inputs)"
        )
        found.append(Finding("singular_start", names, text))
    return found


def of_internal(system: System, found: InternalDynamics | None, place: str = "at the start") -> list[Finding]:
    """Unstable internal dynamics, by their fastest pole."""
    if found is None or found.stable is not False:
        return []
    pole = found.modes[0]
    shown = f"{pole.real:.4g}" if abs(pole.imag) < 1e-9 * abs(pole) else f"{pole.real:.4g}{pole.imag:+.4g}j"
    growing = sum(mode.real > 0.0 for mode in found.modes)
    text = (
        f"internal dynamics: unstable: {growing} of {found.dimension} modes grow while the task is met, the fastest "
        f"pole is {shown} 1/s {place} ({DAMPED if system.model.m > len(system.model.task_rows) else REMEDY})"
    )
    return [Finding("internal_dynamics", (), text)]


def growth_of(loop: Loop, states: Sequence[State], until: float) -> list[Finding]:
    """Unstable internal dynamics at the first state from which they can have run away; nothing where there is none.

    Args:
        loop: The closed loop.
        states: In their order in time, the start first.
        until: Time at which the run had run away [s]: a pole that had not even one time constant is not its cause.
    """
    traced = _traced(loop)
    if traced is None:
        return []
    for i, state in enumerate(states):
        found = internal_dynamics(traced, state)
        if found is not None and found.stable is False and found.modes[0].real * (until - state.t) > 1.0:
            return of_internal(loop.system, found, f"at t = {state.t:.4g} s" if i else "at the start")
    return []


def _traced(loop: Loop) -> CompiledLoop | None:
    """A loop with symbols for derivatives; None where the plant has none."""
    if isinstance(loop, CompiledLoop):
        return loop
    if loop.system.model.opaque is not None:
        return None
    try:
        found = make_loop(loop.system, "vm")
    except ServoctlError:
        return None
    return found if isinstance(found, CompiledLoop) else None
