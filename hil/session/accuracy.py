"""How large a task's error may be by quantisation, sampling, delay and friction alone, computed from the model.

A row of the task obeys `p(d/dt) e = w`: p is what its correction asks for, w the derivative of highest order by which
the machine misses what the law asks. Whoever causes it, |e| stays below `|h|_1 max |w|`, h the impulse response of 1/p.
Causes of w, each followed along the run, T being the derivatives per unit of input:

    delay           |T u'| times how late a torque acts
    torque          T times its rounding towards zero, which pushes against u by half a step on average; and friction
    samples         T times what the law changes by when a sample moves by its error

Roundings differ from channel to channel, so they add up by their squares, at three standard deviations and never above
their sum; in time they are taken at their worst, since a machine at rest rounds the same way at every tick.

Source: the bound on a linear filter's output by the 1-norm of its impulse response (Desoer, Vidyasagar 1975, II.4); its
use for these causes is ours.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import expm

from hil.assembly.prepare import RigSetup
from hil.drives import Feedback
from hil.recorder.columns import STAGES
from hil.safety.stages import Phase
from hil.sensing.sample_errors import sample_errors
from servoctl.engine.kernel import Kernel
from servoctl.engine.trace import trace
from servoctl.laws.constraint_following import BoundConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms, assemble
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State

INSTANTS = 200
"""Of the run that are looked at."""

RATE_TIME = 0.02
"""Time over which the rate of the torques is taken: longer than what quantisation does to them [s]."""

DEVIATIONS = math.sqrt(3.0)
"""Three standard deviations of a rounding, in half steps."""

POINTS = 20_000
"""Of an impulse response at most."""

Chain = Callable[[State], tuple[Array, Array]]
"""A state -> T, and the violations of the task rows with their derivatives, shape (rows, degree)."""


def explained_errors(prepared: RigSetup, trajectory: Trajectory) -> dict[str, float]:
    """Task row -> largest error that the loop itself explains, in the row's unit; NaN for a row that has no correction.

    Args:
        prepared: The run.
        trajectory: What it left; rows before the task began do not count.
    """
    law, model = prepared.loop.system.law, prepared.loop.system.model
    working = np.flatnonzero(trajectory["stage"] == STAGES.index(Phase.FULL.value))
    if not isinstance(law, BoundConstraintFollowing) or len(working) < 2:
        return {}
    apart = max(1, round(RATE_TIME / prepared.settings.values.period))
    chosen = np.unique(np.linspace(working[0], max(working[0], working[-1] - apart), INSTANTS).astype(int))
    chain = _chain(model, law.passive_rank_tolerance)
    u = np.stack([trajectory[f"law.{name}"] for name in model.plant.actuators], axis=1)
    delay, steps, friction = _delay(prepared), _torque_steps(prepared), _friction(prepared, trajectory)
    w, off = np.zeros(len(model.task_rows)), np.zeros(len(model.task_rows))
    for i in chosen:
        state = State(float(trajectory["task_time"][i]), trajectory.q[i], trajectory.v[i])
        T = chain(state)[0]
        following = min(i + apart, len(u) - 1)
        rate = (u[following] - u[i]) / max(trajectory.t[following] - trajectory.t[i], 1e-12)
        asked, shifted = _sampled(prepared, chain, state, T)
        biased = np.abs(T @ np.clip(u[i], -steps / 2, steps / 2)) + np.abs(T) @ friction[i]
        random = together(np.concatenate([asked, (T * steps / 2).T]))
        w, off = np.fmax(w, delay * np.abs(T @ rate) + biased + random), np.fmax(off, together(shifted))
    first = State(float(trajectory["task_time"][working[0]]), trajectory.q[working[0]], trajectory.v[working[0]])
    begun = chain(first)[1]
    bounds = {}
    for i, row in enumerate(model.task_rows):
        damping, stiffness, higher = law.gains(i)
        gains = (stiffness, damping, *higher) if row.has_rate else (stiffness,)
        bounds[row.name] = float(begin(gains, begun[i]) + off[i] + norm(gains) * w[i])
    return bounds


def _chain(model: Model, tolerance: float) -> Chain:
    """Compiled where the plant can be."""

    def derivatives(terms: Terms) -> tuple[Array, Array]:
        task = terms.matrices.task
        columns = [task.violation.reshape(-1, 1), task.violation_rate.reshape(-1, 1)]
        columns += [] if task.higher is None else [task.higher]
        return terms.task_map, np.concatenate(columns, axis=1)

    if model.opaque is not None:
        return lambda state: _known(*derivatives(assemble(state, model.matrices(state), tolerance)))
    given = model.symbols()
    state = State(given["t"][0], given["q"], given["v"])
    T, violations = trace(lambda: derivatives(assemble(state, model.symbolic_matrices(given), tolerance)))
    kernel = Kernel.compile("errors", given, {"T": T, "violations": violations})
    return lambda state: _known(*kernel(state.t, state.q, state.v, model.parameters))


def _known(T: Array, violations: Array) -> tuple[Array, Array]:
    return T, np.nan_to_num(violations)


def _delay(prepared: RigSetup) -> float:
    """How late a torque acts at most after the instant that its samples are of [s]."""
    values = prepared.settings.values
    synced = any(drive.feedback is Feedback.SYNC for drive in prepared.drives)
    filtered = _filter_time(prepared) if values.velocity == "filter" else 0.0
    return values.period * (2.0 if synced else 1.0) + values.period + values.emulation.current_lag + filtered


def _filter_time(prepared: RigSetup) -> float:
    """Time constant of the filter of speeds [s]."""
    values = prepared.settings.values
    return 2.0 * values.period if values.velocity_filter is None else values.velocity_filter


def _torque_steps(prepared: RigSetup) -> Array:
    """Of the wire, at each joint, shape (m,) [actuator unit]."""
    return np.array([drive.quantum()[2] for drive in prepared.drives])


def _friction(prepared: RigSetup, trajectory: Trajectory) -> Array:
    """Largest friction of each joint in each row, shape (rows, m) [actuator unit]."""
    emulation = prepared.settings.values.emulation
    speeds = np.stack([trajectory[f"speed.{drive.settings.name}"] for drive in prepared.drives], axis=1)
    friction: Array = emulation.coulomb_friction + emulation.viscous_friction * np.abs(speeds)
    return friction


def _sampled(prepared: RigSetup, chain: Chain, state: State, T: Array) -> tuple[Array, Array]:
    """What the error of each sample does to T u and to the violations, shape (samples, rows) each."""
    positions, speeds = sample_errors(prepared.settings.values, (*prepared.drives, *prepared.sensors))
    coordinates, loop = prepared.sensing.coordinates, prepared.loop
    inverse = coordinates.view(state.t, state.q).seen.pseudoinverse() * prepared.sensing.displacements.weights
    still = np.zeros_like(inverse)
    moves = np.concatenate(
        [np.concatenate([inverse * positions, still]), np.concatenate([still, inverse * speeds])], axis=1
    )
    n, inputs = len(state.q), loop.layout.slices["u"]
    asked, shifted = [], []
    for move in moves.T:
        there = []
        for x in (np.concatenate([state.q, state.v]) + side * move for side in (1.0, -1.0)):
            u = loop.control(state.t, np.concatenate([x, loop.memory_start]))[inputs]
            there.append((T @ u, chain(State(state.t, x[:n], x[n:]))[1][:, 0]))
        asked.append((there[0][0] - there[1][0]) / 2)
        shifted.append((there[0][1] - there[1][1]) / 2)
    return np.array(asked), np.array(shifted)


def together(errors: Array) -> Array:
    """Largest sum of independent errors, shape (errors, rows) -> (rows,), each within plus or minus its value."""
    added: Array = np.minimum(np.abs(errors).sum(axis=0), DEVIATIONS * np.linalg.norm(errors, axis=0))
    return added


def norm(gains: Sequence[float]) -> float:
    """1-norm of the impulse response of `e^(r) + c_{r-1} e^(r-1) + ... + c_0 e = w`; NaN where it does not die out.

    Args:
        gains: c_0 ... c_{r-1}.
    """
    found = _responses(gains)
    if found is None:
        return math.nan
    step, responses = found
    return float(np.trapezoid(np.abs(responses[:, -1]), dx=step))


def begin(gains: Sequence[float], derivatives: Array) -> float:
    """Largest |e| of a row that is left alone with `e, e', ...` at its start, each of these at its worst sign."""
    found = _responses(gains)
    if found is None:
        return math.nan
    return float(np.abs(found[1]).max(axis=0) @ np.abs(derivatives[: len(gains)]))


def _responses(gains: Sequence[float]) -> tuple[float, Array] | None:
    """Step [s], and e from a start with 1 in each derivative in turn, shape (points, r); None: it does not die out."""
    r = len(gains)
    A = np.eye(r, k=1)
    A[-1] = -np.asarray(gains)
    poles = np.linalg.eigvals(A)
    slowest = -poles.real.max()
    if not slowest > 1e-9 * max(1.0, np.abs(poles).max()):
        return None
    horizon = (20.0 + 5.0 * r) / slowest
    points = int(min(POINTS, max(500, 100 * horizon * np.abs(poles).max())))
    step = horizon / points
    E, row = expm(A * step), np.eye(r)[0]
    responses = np.empty((points + 1, r))
    for k in range(points + 1):
        responses[k], row = row, row @ E
    return step, responses
