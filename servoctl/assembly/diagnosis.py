"""Which faults of plant and task can no gain, step or period repair? And what was the cause of how a run ended?

Design: each finding is a sentence with its remedy. Findings about the start appear before a run and in `check`;
findings about the internal dynamics in `check`, and as the cause of a run that diverged (`EndOfRun`).

Motions of the machine that a fixed step of rk4 cannot follow, although they decay or swing in truth:

    J = dx'/dx at the start;  |R(h lambda)| > 1,  R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24,  for a pole with Re <= 0

Design: a held command damps nothing between two ticks, so a joint with much damping and little inertia keeps its own
fast pole. Slopes over speeds are secants over one unit per second on both sides: dry friction, whose slope holds near
standstill alone, hardly counts.

A mechanism led to the edge of what it reaches: there the rows of its loops and of the task lose rank.

    E = (A_passive; A_task)     smallest singular value along a run, over that at the start

Design: at such a pose the speeds and inputs that the task needs grow without bound, and so do the poles of whatever is
free. It is therefore the cause, not they.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.assembly.gains import STATES, all_gains
from servoctl.engine.decomposition import decompose
from servoctl.engine.linalg import slopes
from servoctl.errors import Finding
from servoctl.laws.hold import RK4
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.model import Model
from servoctl.mechanics.task_map import VANISHES, Shared, TaskMap, free_inputs, shared_inputs
from servoctl.run_folder.missed import missed_tasks, sentence
from servoctl.run_folder.trajectory import Trajectory
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.internal_dynamics import InternalDynamics, internal_dynamics, pole_text
from servoctl.simulation.settings import Settings
from servoctl.simulation.side_by_side import RUNAWAY, divergence, growth, size
from servoctl.simulation.system import System
from servoctl.types import Array, State, Status

NEAR = 0.01  # [-] a row whose gain at the start is below this is nearly singular, whatever its gain nearby
SMALLER = 0.1  # a gain or pivot at the start below this fraction of its value nearby is nearly singular

REMEDY = "choose another output, add an actuator, or feed the internal state back"
"""Remedy for unstable internal dynamics."""

DAMPED = "damp the free motion: law.secondary.damping, or law.allocation: constraint_force"
"""Remedy if the inputs move more than the task: what is left of them reaches the internal dynamics."""


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


def of_internal(
    system: System, found: InternalDynamics | None, state: State, place: str = "at the start"
) -> list[Finding]:
    """Unstable internal dynamics at a state, with their fastest pole."""
    if found is None or found.stable is not False:
        return []
    pole = found.modes[0]
    text = (
        f"unstable: {found.growing} of {found.dimension} modes grow while the task is met, the fastest "
        f"pole is {pole_text(pole)} 1/s {place} ({DAMPED if _has_free_inputs(system, state) else REMEDY})"
    )
    return [Finding("internal dynamics", text, kind="internal_dynamics")]


def _has_free_inputs(system: System, state: State) -> bool:
    """Whether the inputs move the machine in more directions than the task takes."""
    law, terms = system.following, system.model.terms(state, system.passive.rank_tolerance)
    return law is not None and terms.sound and free_inputs(terms, law.allocation.rank_tolerance) > 0


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
            return of_internal(loop.system, found, state, f"at t = {state.t:.4g} s" if i else "at the start")
    return []


def _traced(loop: Loop) -> Loop | None:
    """The loop in symbols, for derivatives; None if the plant cannot be traced."""
    if loop.differentiable:
        return loop
    traced = make_loop(loop.system, "vm")
    return traced if traced.differentiable else None


SMALL = 1e-6  # displacement of a coordinate for its slopes, relative to 1 + its size
FADES = 0.1  # share of a motion that the steps of a run may take from it
STIFF = 0.5  # a larger |pole| times step may be beyond what rk4 follows; its limit is 2.6 to 2.83

INVOLVED = 1e-6
"""A loop holds a coordinate if one of its rows depends on it by more than this, relative to its largest entry."""


@dataclass(frozen=True)
class FastMotion:
    """A motion that decays or swings in truth, and grows in the steps of a run, or dies out in them."""

    pole: complex  # [1/s]
    coordinate: str  # the coordinate that moves most
    loops: tuple[str, ...]  # passive constraints that hold this coordinate
    step: float  # [s] step of rk4
    longest: float  # [s] longest step that follows the motion
    damped: float = 0.0  # [1/s] by how much the steps damp a motion that they follow; 0: it grows in them

    @property
    def finding(self) -> Finding:
        """What a person should know."""
        held = f" (held by {', '.join(self.loops)})" if self.loops else ""
        if self.damped:
            return Finding(
                "run.integrator.step",
                f"the machine's own motion of {self.coordinate}{held} has a pole at {pole_text(self.pole)} 1/s, which "
                f"steps of {self.step:g} s of rk4 damp by {self.damped:.2g} 1/s: it dies out in the run, not in truth "
                f"(use steps of at most {_below(self.longest):g} s, or run.integrator.method: dop853)",
            )
        return Finding(
            "run.integrator.step",
            f"the machine's own motion of {self.coordinate}{held} has a pole at "
            f"{pole_text(self.pole)} 1/s, too fast for steps of {self.step:g} s of rk4: the run grows without end "
            f"(use steps of at most {_below(self.longest):g} s, or run.integrator.method: radau; or correct damping, "
            f"stiffness and inertia of {self.coordinate})",
        )


def fast_motion(loop: Loop, start: State, settings: Settings) -> FastMotion | None:
    """The motion at the start that the steps of a run follow least; None if they follow all."""
    step = settings.integrator.spacing(settings.period)
    if step is None or loop.system.machine is not None:
        return None
    J = _motion_slopes(loop, start, held=settings.period is not None)
    if not np.isfinite(J).all():
        return None
    poles, shapes = np.linalg.eig(J)
    model = loop.system.model

    def found(worst: int, longest: float, damped: float = 0.0) -> FastMotion:
        i = int(np.argmax(np.abs(shapes[model.n :, worst])))
        name = list(model.plant.coordinates)[i]
        return FastMotion(complex(poles[worst]), name, _loops(model, start, i), step, longest, damped)

    grows = (poles.real <= 1e-6 * np.abs(poles)) & (np.abs(poles) * step > STIFF)
    # a pole that is unstable in truth, and grows faster, is the cause itself
    grows &= np.abs(np.polyval(RK4, step * poles)) > np.exp(min(step * max(poles.real.max(), 0.0), 700.0))
    if grows.any():
        worst = int(np.argmax(np.where(grows, np.abs(poles), 0.0)))
        return found(worst, _longest(poles[worst]))
    damped = poles.real - np.log(np.abs(np.polyval(RK4, step * poles))) / step
    noticed = (damped >= FADES / settings.duration) & (damped >= FADES * np.abs(poles.real)) & np.isfinite(damped)
    damped = np.where(noticed, damped, 0.0)
    worst = int(np.argmax(damped))
    # |R(i w h)| = 1 - (w h)^6 / 144 + ...
    shorter = step * (FADES / settings.duration / damped[worst]) ** 0.2 if damped[worst] else 0.0
    return found(worst, shorter, float(damped[worst])) if damped[worst] else None


def _motion_slopes(loop: Loop, start: State, held: bool) -> Array:
    """J over q and v, shape (2 n, 2 n)."""
    real, n = loop.simulated(), loop.system.model.n
    x = loop.x_at(start)
    command = [loop.control(start.t, x)] if held else []

    def rates(moved: Array) -> Array:
        return real.derivative(start.t, np.append(moved, x[2 * n :]), *command)[: 2 * n]

    return slopes(rates, x[: 2 * n], np.concatenate([SMALL * (1.0 + np.abs(start.q)), np.ones(n)]))


def _loops(model: Model, start: State, coordinate: int) -> tuple[str, ...]:
    A = np.abs(model.matrices(start).passive.A)
    used = A[:, coordinate] > INVOLVED * A.max(axis=1, initial=0.0)
    return tuple(dict.fromkeys(row.group for row, uses in zip(model.passive_rows, used, strict=True) if uses))


def _longest(pole: complex) -> float:
    """Longest stable step for a pole [s]: the edge of the stable region along its ray."""
    ray = np.linspace(STIFF, 3.0, 2501) * pole / abs(pole)
    beyond = np.flatnonzero(np.abs(np.polyval(RK4, ray)) > 1.0)
    return float(abs(ray[beyond[0]]) / abs(pole))


def _below(value: float) -> float:
    """The value, rounded down to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit


LOST = 0.25
"""A singular value below this fraction of that at the start is nearly lost: rows are sparse, and it falls as a root."""

INDEPENDENT = 1e-9  # a direction of the rows counts if its pivot exceeds this times their Frobenius norm
SHARE = 0.1  # a row takes part in the lost direction if its share exceeds this times the largest


def dead_point(model: Model, states: Sequence[State]) -> str | None:
    """The pose of a run where the loops and the task lost a direction, in a sentence; None if there is none.

    Args:
        states: In order of time, the start first; before the run diverged.
    """
    if not model.passive_rows or len(states) < 2:
        return None
    rows = (*model.passive_rows, *model.task_rows)
    all_of = [_rows(model, state) for state in states]
    if not np.isfinite(all_of[0]).all():
        return None
    rank = decompose(all_of[0], INDEPENDENT).rank
    sizes = [np.linalg.svd(E, compute_uv=False)[rank - 1] if np.isfinite(E).all() else np.inf for E in all_of]
    size = sizes[-1]
    if not rank or size > min(sizes) or not size < LOST * sizes[0]:
        return None
    share = np.abs(np.linalg.svd(all_of[-1])[0][:, rank - 1])
    named = [row for row, part in zip(rows, share, strict=True) if part > SHARE * share.max()]
    groups = {
        "loops": dict.fromkeys(row.group for row in named if row in model.passive_rows),
        "task": dict.fromkeys(row.group for row in named if row in model.task_rows),
    }
    listed = " and ".join(f"{what} {', '.join(names)}" for what, names in groups.items() if names)
    return (
        f"the mechanism came to the edge of its reach at t = {states[-1].t:.4g} s: {listed} lose rank there, from "
        f"{rank} to {rank - 1} (smallest singular value {size:.2g}, {sizes[0]:.2g} at the start), so the inputs that "
        "the task needs are unbounded: lead the task inside the reach"
    )


def _rows(model: Model, state: State) -> Array:
    matrices = model.matrices(state)
    return np.vstack([matrices.passive.A, matrices.task.A])


LOOKS = 8  # number of states along a run at which its internal dynamics are linearised
POSES = 64  # number of states along a run at which the rank of its loops is evaluated
MODERATE = 1e3  # states larger than this times the start are effects of the divergence; they do not show its cause
MISSED = Status.MISSED.name.lower()  # status of a run that missed a required task
UNKNOWN = "reduce the step, the period or the gains"  # advice when no cause is known
RAN_AWAY = "ran_away"  # status of a run that diverged while all numbers stayed finite


@dataclass(frozen=True)
class EndOfRun:
    """A simulated run that is over."""

    loop: Loop  # the closed loop
    start: State  # initial state
    settings: Settings  # how it ran
    reach: Callable[[], TaskMap | None]  # what the actuators can do for the task; None for an open loop
    trajectory: Trajectory  # its rows

    @property
    def system(self) -> System:
        """Plant, law and constraints."""
        return self.loop.system

    def facts(self, facts: dict[str, Any], last: State | None) -> dict[str, Any]:
        """Facts to add to the summary of the run.

        Args:
            facts: `status`, and `error` if there is one.
            last: State at which a number was not finite; None if the run did not stop for that reason.

        Returns:
            `status` and `error` where they change, and `diagnosis`: the cause, where it is known.
        """
        if facts["status"] == "stopped":
            cause = self._cause_of_stop(last)
            if not cause:
                return {}
            known = {} if cause.endswith(UNKNOWN) else {"diagnosis": cause}
            return {"error": f"{facts['error']} ({cause})"} | known
        if facts["status"] != "done":
            return {}
        law, rows = self.system.following, self.system.model.task_rows
        optional_rows = self.trajectory.rows if law is None else [rows[i].name for i in law.optional_rows]
        if law is not None and growth(self.start, self.trajectory) > RUNAWAY and (found := self._growth()):
            return {"status": RAN_AWAY, "error": found[0], "diagnosis": found[0]}
        if far := divergence(self.start, self.trajectory, optional_rows):
            why = self._cause_of_divergence()
            known = {} if why.endswith(UNKNOWN) else {"diagnosis": why}
            return {"status": RAN_AWAY, "error": f"the run diverged: {far} ({why})"} | known
        missed = {} if law is None else missed_tasks(self.trajectory, optional_rows)
        if not missed:
            return {}
        why = why_missed(self.system, self.start, self.reach(), missed)
        return {"status": MISSED, "error": f"{sentence(missed)} ({why})", "diagnosis": why}

    def _cause_of_stop(self, last: State | None) -> str:
        """Why the run diverged or could not be integrated further; empty if its error says everything."""
        law = self.system.following
        rows = self.trajectory
        far = last if last is not None or not len(rows) else State(float(rows.t[-1]), rows.q[-1], rows.v[-1])
        if far is not None and size(far.q, far.v) > RUNAWAY:
            return f"it ran away: {self._cause_of_divergence()}"
        if last is not None or law is None or not len(rows) or int(rows["status"][-1]) in law.stops_on:
            return ""
        growth = self._growth()
        return growth[0] if growth else ""

    def _cause_of_divergence(self) -> str:
        """The known cause, most certain first: gains and poles that the step does not follow, then the pose."""
        found = [str(gain.problem) for gain in all_gains(self.system, self.settings) if gain.problem is not None]
        fast = None if found else fast_motion(self.loop, self.start, self.settings)
        found = found if fast is None or fast.damped else [str(fast.finding)]
        if self.system.following is None:
            return "; ".join(found) or UNKNOWN
        found = found or self._dead_point() or self._growth() or self._singular_pose()
        findings = of_task(self.system, self.start, self.reach())
        found = found or [str(finding) for finding in findings if finding.kind == "singular_start"]
        wrong = "the machine is not the law's model: see servoctl analyse, or " * (self.system.simulated is not None)
        return "; ".join(found) or f"{wrong}{UNKNOWN}"

    def _growth(self) -> list[str]:
        """Unstable internal dynamics along the run; at most one sentence."""
        return [str(finding) for finding in growth_of(self.loop, self._states(LOOKS), self._until)]

    def _dead_point(self) -> list[str]:
        """A pose where the loops lost rank, unless internal dynamics that were unstable from the start led to it."""
        found = dead_point(self.system.model, self._states(POSES))
        return [] if found is None or growth_of(self.loop, [self.start], self._until) else [found]

    @property
    def _until(self) -> float:
        return float(self.trajectory.t[-1]) if len(self.trajectory) else self.start.t

    def _states(self, number: int) -> list[State]:
        """The start, and states of the run before it diverged."""
        count, trajectory = self._moderate_rows(), self.trajectory
        rows = np.unique(np.linspace(0, count - 1, number).astype(int)) if count else np.zeros(0, dtype=int)
        return [self.start, *(State(float(trajectory.t[i]), trajectory.q[i], trajectory.v[i]) for i in rows if i)]

    def _singular_pose(self) -> list[str]:
        """A pose at which the task rows lost a direction before the run diverged."""
        trajectory = self.trajectory
        pivots = trajectory["pivot_min"][: self._moderate_rows()]
        if len(pivots) < 2 or not pivots[0] > 0.0:
            return []
        i = int(np.nanargmin(pivots))
        if not pivots[i] < SMALLER * pivots[0]:
            return []
        return [
            f"the motion came near a singular pose at t = {trajectory.t[i]:.4g} s, where the smallest pivot was "
            f"{pivots[i]:.2g} ({pivots[0]:.2g} at the start): the inputs that the task needs are unbounded there "
            "(limit the inputs, raise law.rank_tolerance, or choose a task that avoids this pose)"
        ]

    def _moderate_rows(self) -> int:
        """Number of rows before the run diverged."""
        bound = MODERATE * (1.0 + size(self.start.q, self.start.v))
        sizes = np.abs(np.concatenate([self.trajectory.q, self.trajectory.v], axis=1)).max(axis=1, initial=0.0)
        beyond = np.flatnonzero(~(sizes < bound))  # NaN counts as diverged
        return int(beyond[0]) if len(beyond) else len(self.trajectory)


def why_missed(system: System, start: State, task_map: TaskMap | None, missed: Collection[str]) -> str:
    """The known cause of missed tasks, else what to do about them.

    Args:
        task_map: What the actuators can do for the task.
        missed: Names of the tasks.
    """
    causes = []
    for finding in of_task(system, start, task_map):
        groups = {row.group for row in system.model.task_rows if row.name in finding.rows}
        if groups.intersection(missed):
            causes.append(str(finding))
    return "; ".join(causes) or "set required: false in a task that may be missed, or priority: 2"
