"""Which faults of plant and task can no gain, step or period repair?

Design: each finding is a sentence with its remedy. Findings about the start appear before a run and in `check`;
findings about the internal dynamics in `check`, and as the cause of a run that diverged.

Motions of the machine that a fixed step of rk4 cannot follow, although they decay or swing in truth:

    J = dx'/dx at the start;  |R(h lambda)| > 1,  R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24,  for a pole with Re <= 0

Design: a held command damps nothing between two ticks, so a joint with much damping and little inertia keeps its own
fast pole. Slopes over speeds are secants over one unit per second on both sides: dry friction, whose slope holds near
standstill alone, hardly counts.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from servoctl.finding import Finding
from servoctl.laws.hold import RK4
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import VANISHES, Shared, TaskMap, shared_inputs
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.internal_dynamics import InternalDynamics, internal_dynamics, pole_text
from servoctl.simulation.settings import Settings
from servoctl.simulation.system import System
from servoctl.types import Array, State

NEAR = 0.01  # [-] a row whose gain at the start is below this is nearly singular, whatever its gain nearby
SMALLER = 0.1  # a gain or pivot at the start below this fraction of its value nearby is nearly singular
STATES = 6  # number of states at which rows are tested for dependence

REMEDY = "choose another output, add an actuator, or feed the internal state back"
"""Remedy for unstable internal dynamics."""

DAMPED = "damp the free motion: law.secondary.damping, or law.allocation: constraint_force"
"""Remedy if there are more inputs than rows: the free inputs reach the internal dynamics."""


def of_task(system: System, start: State, task_map: TaskMap | None) -> list[Finding]:
    """Rows of priority 1 that the inputs cannot follow independently, or can hardly move at the start."""
    law = system.law
    if law is None or task_map is None:
        return []
    if not system.model.terms(start, system.passive.rank_tolerance).sound:
        return []
    apart = [*task_map.unreachable, *task_map.idle]
    rows = [i for i, row in enumerate(task_map.rows) if i not in law.low_priority_rows and row not in apart]
    shared = None
    if task_map.generic_rank < len(task_map.rows) - len(task_map.idle):
        states = system.model.near(start, STATES - 1)
        shared = shared_inputs(system.model, states, rows, system.passive.rank_tolerance)
    dependent = [] if shared is None else [_dependent(shared, [task_map.rows[i] for i in rows], task_map, system)]
    listed = () if shared is None else shared.rows
    return dependent + _singular(task_map, [i for i in rows if i not in listed], independent=shared is None)


def _dependent(shared: Shared, required: Sequence[Row], task_map: TaskMap, system: System) -> Finding:
    """Rows that share inputs, and the reason."""
    names, m = tuple(task_map.rows[i].name for i in shared.rows), system.model.m
    listed, rank = ", ".join(names), f"rank {shared.rank} of {len(required)} rows"
    fewer = f"keep at most {shared.combinations} of {listed}, or give the others priority: 2"
    if len(required) > m:
        inputs = "one input can" if m == 1 else f"{m} inputs can"
        text = f"{rank}: {inputs} follow at most {m} of them; {listed} share the inputs (add an actuator; or {fewer})"
        return Finding("task", text, kind="too_few_inputs", rows=names)
    many = "one combination" if shared.combinations == 1 else f"{shared.combinations} combinations"
    what = f"{listed} depend on only {many} of the inputs, {shared.combination}"
    if shared.integrators is None:
        return Finding(
            "task", f"{rank}: {what}: they can be met only if they agree ({fewer})", kind="dependent_rows", rows=names
        )
    count = "an integrator" if shared.integrators == 1 else f"{shared.integrators} integrators"
    inputs = shared.combination if shared.combinations == 1 else f"each of {shared.combination}"
    text = (
        f"{rank}: {what}: they have no vector relative degree and need a dynamic extension (put {count} before "
        f"{inputs} in the plant and use the integrator's input as the new input, so that the other inputs can "
        f"control the rows independently; or {fewer})"
    )
    return Finding("task", text, kind="dynamic_extension", rows=names)


def _singular(task_map: TaskMap, rows: Sequence[int], independent: bool) -> list[Finding]:
    """Rows that the inputs can hardly move at the start, alone or together."""
    found = []
    for i in rows:
        name, gain, nearby = task_map.rows[i].name, float(task_map.gain[i]), float(task_map.largest_gain[i])
        if gain > VANISHES and (gain < NEAR or gain < SMALLER * nearby):
            found.append(
                Finding(
                    f"task.{name}",
                    f"the start is nearly singular: the inputs act on the row with a gain of {gain:.2g} (1 at best, "
                    f"{nearby:.2g} nearby), so small errors need large inputs (start elsewhere, limit the inputs, or "
                    "choose another output)",
                    kind="singular_start",
                    rows=(name,),
                )
            )
    together = task_map.rank == task_map.generic_rank == len(task_map.rows) > 1 and independent
    if not found and together and task_map.pivot < SMALLER * task_map.largest_pivot:
        names = tuple(task_map.rows[i].name for i in rows)
        text = (
            f"the start is nearly singular: the rows {', '.join(names)} are almost dependent there, with a "
            f"smallest pivot of {task_map.pivot:.2g} ({task_map.largest_pivot:.2g} nearby), so small errors need large "
            "inputs (start elsewhere, or limit the inputs)"
        )
        found.append(Finding("task", text, kind="singular_start", rows=names))
    return found


def of_internal(system: System, found: InternalDynamics | None, place: str = "at the start") -> list[Finding]:
    """Unstable internal dynamics, with their fastest pole."""
    if found is None or found.stable is not False:
        return []
    pole = found.modes[0]
    text = (
        f"unstable: {found.growing} of {found.dimension} modes grow while the task is met, the fastest "
        f"pole is {pole_text(pole)} 1/s {place} ({DAMPED if system.model.m > len(system.model.task_rows) else REMEDY})"
    )
    return [Finding("internal dynamics", text, kind="internal_dynamics")]


def growth_of(loop: Loop, states: Sequence[State], until: float) -> list[Finding]:
    """Unstable internal dynamics at the first state from which the run can have diverged; empty if there is none.

    Args:
        states: In order of time, the start first.
        until: Time at which the run had diverged [s]. A pole with less than one time constant until then is not the
            cause.
    """
    traced = _traced(loop)
    if traced is None:
        return []
    for i, state in enumerate(states):
        found = internal_dynamics(traced, state)
        if found is not None and found.stable is False and found.modes[0].real * (until - state.t) > 1.0:
            return of_internal(loop.system, found, f"at t = {state.t:.4g} s" if i else "at the start")
    return []


def _traced(loop: Loop) -> Loop | None:
    """The loop in symbols, for derivatives; None if the plant cannot be traced."""
    if loop.differentiable:
        return loop
    traced = make_loop(loop.system, "vm")
    return traced if traced.differentiable else None


SMALL = 1e-6  # displacement of a coordinate for its slopes, relative to 1 + its size
STIFF = 0.5  # a larger |pole| times step may be beyond what rk4 follows; its limit is 2.6 to 2.83

INVOLVED = 1e-6
"""A loop holds a coordinate if one of its rows depends on it by more than this, relative to its largest entry."""


@dataclass(frozen=True)
class FastMotion:
    """A motion that decays or swings in truth, and grows in the steps of a run."""

    pole: complex  # [1/s]
    coordinate: str  # the coordinate that moves most
    loops: tuple[str, ...]  # passive constraints that hold this coordinate
    step: float  # [s] step of rk4
    longest: float  # [s] longest step that follows the motion

    @property
    def finding(self) -> Finding:
        """What a person should know."""
        held = f" (held by {', '.join(self.loops)})" if self.loops else ""
        return Finding(
            "run.integrator.step",
            f"the machine's own motion of {self.coordinate}{held} has a pole at "
            f"{pole_text(self.pole)} 1/s, too fast for steps of {self.step:g} s of rk4: the run grows without end "
            f"(use steps of at most {_below(self.longest):g} s, or run.integrator.method: radau; or correct damping, "
            f"stiffness and inertia of {self.coordinate})",
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "pole": [self.pole.real, self.pole.imag]}


def fast_motion(loop: Loop, start: State, settings: Settings) -> FastMotion | None:
    """The fastest motion at the start that the steps of a run cannot follow; None if there is none."""
    step = settings.integrator.spacing(settings.period)
    if step is None or loop.system.machine is not None:
        return None
    slopes = _slopes(loop, start, held=settings.period is not None)
    if not np.isfinite(slopes).all():
        return None
    poles, shapes = np.linalg.eig(slopes)
    grows = (poles.real <= 1e-6 * np.abs(poles)) & (np.abs(poles) * step > STIFF)
    # a pole that is unstable in truth, and grows faster, is the cause itself
    grows &= np.abs(np.polyval(RK4, step * poles)) > np.exp(min(step * max(poles.real.max(), 0.0), 700.0))
    if not grows.any():
        return None
    worst = int(np.argmax(np.where(grows, np.abs(poles), 0.0)))
    model = loop.system.model
    i = int(np.argmax(np.abs(shapes[model.n :, worst])))
    name = list(model.plant.coordinates)[i]
    return FastMotion(complex(poles[worst]), name, _loops(model, start, i), step, _longest(poles[worst]))


def _slopes(loop: Loop, start: State, held: bool) -> Array:
    """J over q and v, shape (2 n, 2 n)."""
    real, n = loop.simulated(), loop.system.model.n
    x = loop.x_at(start)
    command = loop.control(start.t, x) if held else None
    delta = np.concatenate([SMALL * (1.0 + np.abs(start.q)), np.ones(n)])
    columns = []
    for i, size in enumerate(delta):
        ends = []
        for sign in (1.0, -1.0):
            moved = x.copy()
            moved[i] += sign * size
            ends.append(
                real.derivative(start.t, moved) if command is None else real.held_derivative(start.t, moved, command)
            )
        columns.append((ends[0] - ends[1])[: 2 * n] / (2.0 * size))
    return np.array(columns).T


def _loops(model: Model, start: State, coordinate: int) -> tuple[str, ...]:
    rows = model.matrices(start).passive.A
    used = [row.group for row, A in zip(model.passive_rows, rows, strict=True) if _depends(A, coordinate)]
    return tuple(dict.fromkeys(used))


def _depends(A: Array, coordinate: int) -> bool:
    return bool(abs(A[coordinate]) > INVOLVED * np.abs(A).max(initial=0.0))


def _longest(pole: complex) -> float:
    """Longest stable step for a pole [s]: the edge of the stable region along its ray."""
    ray = np.linspace(STIFF, 3.0, 2501) * pole / abs(pole)
    beyond = np.flatnonzero(np.abs(np.polyval(RK4, ray)) > 1.0)
    return float(abs(ray[beyond[0]]) / abs(pole))


def _below(value: float) -> float:
    """The value, rounded down to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit
