"""How large a task's error can be by quantisation, sampling, delay and friction alone, computed from the model.

A task row obeys `p(d/dt) e = w`. The polynomial p is that of the row's correction; w is the difference between the
highest derivative that the law demands and the actual one. For every cause, `|e| <= |h|_1 max |w|`, h being the impulse
response of 1/p. T denotes the highest derivatives per unit of input. The causes of w, each followed along the run:

    delay           |T u'| times the delay of a torque
    torque          T times the torque's rounding towards zero (on average half a step against u), and friction
    samples         T times the change of u when a sample moves by its error

Roundings of different channels are independent: their squares add up, at three standard deviations, never above their
sum. In time the worst case counts, because a machine at rest rounds the same way at every tick.

Source: the bound on a linear filter's output by the 1-norm of its impulse response (Desoer, Vidyasagar 1975, II.4); its
use for these causes is ours.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from hil.assembly.measuring import moved_samples
from hil.assembly.setup import RigSetup
from hil.drives import Feedback
from hil.recorder.columns import STAGES
from hil.safety.plan import Phase
from hil.sensing.prediction import StateFunction
from servoctl.laws.constraint_following import AttachedConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Matrices, assemble
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array, State

INSTANTS = 200  # number of instants of the run that are evaluated
RATE_TIME = 0.02  # time over which the rate of the torques is computed [s]; longer than the ripple by quantisation

DEVIATIONS = math.sqrt(3.0)
"""Three standard deviations of a rounding, in half steps: a uniform error of half width 1 has 1/sqrt(3)."""

POINTS = 20_000  # largest number of points of an impulse response

Chain = Callable[[State], tuple[Array, Array]]
"""A state -> T, and the violations of the task rows with their derivatives, shape (rows, degree)."""


def explained_errors(setup: RigSetup, trajectory: Trajectory) -> dict[str, float]:
    """Task row -> largest error that the loop itself can cause, in the row's unit; NaN for a row without correction.

    `trajectory`: the recorded run; rows before the task began do not count.
    """
    law, model = setup.loop.system.law, setup.loop.system.model
    working = np.flatnonzero(trajectory["stage"] == STAGES.index(Phase.FULL.value))
    if not isinstance(law, AttachedConstraintFollowing) or len(working) < 2:
        return {}
    apart = max(1, round(RATE_TIME / setup.settings.values.period))
    chosen = np.unique(np.linspace(working[0], max(working[0], working[-1] - apart), INSTANTS).astype(int))
    chain = _chain(model, law.passive_rank_tolerance)
    u = np.stack([trajectory[f"law.{name}"] for name in model.plant.actuators], axis=1)
    delay, friction = _delay(setup), _friction(setup, trajectory)
    steps = np.array([drive.quantum()[2] for drive in setup.drives])  # of the torques in the frames [actuator unit]
    w, off = np.zeros(len(model.task_rows)), np.zeros(len(model.task_rows))
    for i in chosen:
        state = State(float(trajectory["task_time"][i]), trajectory.q[i], trajectory.v[i])
        T = chain(state)[0]
        following = min(i + apart, len(u) - 1)
        rate = (u[following] - u[i]) / max(trajectory.t[following] - trajectory.t[i], 1e-12)
        demanded, shifted = _sampled(setup, chain, state, T)
        biased = np.abs(T @ np.clip(u[i], -steps / 2, steps / 2)) + np.abs(T) @ friction[i]
        random = sum_of_independent(np.concatenate([demanded, (T * steps / 2).T]))
        w, off = np.fmax(w, delay * np.abs(T @ rate) + biased + random), np.fmax(off, sum_of_independent(shifted))
    first = State(float(trajectory["task_time"][working[0]]), trajectory.q[working[0]], trajectory.v[working[0]])
    initial = np.nan_to_num(chain(first)[1])  # NaN for the rate of a row without one
    bounds = {}
    for i, row in enumerate(model.task_rows):
        damping, stiffness, higher = law.correction.gains(i)
        gains = (stiffness, damping, *higher) if row.has_rate else (stiffness,)
        bounds[row.name] = float(initial_response(gains, initial[i]) + off[i] + impulse_norm(gains) * w[i])
    return bounds


def _chain(model: Model, tolerance: float) -> Chain:
    """The function of this plant; compiled if the plant can be traced."""

    def derivatives(state: State, matrices: Matrices) -> tuple[Array, Array]:
        terms = assemble(state, matrices, tolerance)
        task = terms.matrices.task
        columns = [task.violation.reshape(-1, 1), task.violation_rate.reshape(-1, 1)]
        columns += [] if task.higher is None else [task.higher]
        return terms.task_map, np.concatenate(columns, axis=1)

    function = StateFunction("errors", model, derivatives, ("T", "violations"), "vm")

    def chain(state: State) -> tuple[Array, Array]:
        T, violations = function(state)
        return T, violations

    return chain


def _delay(setup: RigSetup) -> float:
    """Longest time from a sample to the torque that is computed from it [s]."""
    values = setup.settings.values
    synced = any(drive.feedback is Feedback.SYNC for drive in setup.drives)
    filtered = 0.0
    if values.velocity == "filter":
        filtered = 2.0 * values.period if values.velocity_filter is None else values.velocity_filter
    return values.period * (2.0 if synced else 1.0) + values.period + values.emulation.current_lag + filtered


def _friction(setup: RigSetup, trajectory: Trajectory) -> Array:
    """Largest friction of each joint in each row, shape (rows, m) [actuator unit]."""
    emulation = setup.settings.values.emulation
    speeds = np.stack([trajectory[f"speed.{drive.settings.name}"] for drive in setup.drives], axis=1)
    friction: Array = emulation.coulomb_friction + emulation.viscous_friction * np.abs(speeds)
    return friction


def _sampled(setup: RigSetup, chain: Chain, state: State, T: Array) -> tuple[Array, Array]:
    """Effect of each sample's error on T u and on the violations, shape (samples, rows) each."""
    loop, nodes = setup.loop, (*setup.drives, *setup.sensors)
    demanded, shifted = [], []

    def command(at: State) -> Array:
        return loop.control(at.t, np.concatenate([at.q, at.v, loop.memory_start]))[loop.layout.slices["u"]]

    for above, below in moved_samples(setup.settings.values, nodes, setup.sensing, state):
        demanded.append((T @ command(above) - T @ command(below)) / 2)
        shifted.append((chain(above)[1][:, 0] - chain(below)[1][:, 0]) / 2)
    return np.array(demanded), np.array(shifted)


def sum_of_independent(errors: Array) -> Array:
    """Largest sum of independent errors of these sizes, shape (errors, rows) -> (rows,)."""
    total: Array = np.minimum(np.abs(errors).sum(axis=0), DEVIATIONS * np.linalg.norm(errors, axis=0))
    return total


def impulse_norm(gains: Sequence[float]) -> float:
    """1-norm of the impulse response of `e^(r) + c_{r-1} e^(r-1) + ... + c_0 e = w`; NaN if it does not decay.

    `gains`: c_0 ... c_{r-1}.
    """
    decaying = _responses(gains)
    if decaying is None:
        return math.nan
    step, responses = decaying
    return float(np.trapezoid(np.abs(responses[:, -1]), dx=step))


def initial_response(gains: Sequence[float], derivatives: Array) -> float:
    """Largest |e| of a row with w = 0 from these initial derivatives `e, e', ...`, each with its worst sign."""
    decaying = _responses(gains)
    if decaying is None:
        return math.nan
    return float(np.abs(decaying[1]).max(axis=0) @ np.abs(derivatives[: len(gains)]))


def _responses(gains: Sequence[float]) -> tuple[float, Array] | None:
    """Time step [s], and e after a unit value of each initial derivative, shape (points, r); None: no decay."""
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
    from scipy.linalg import expm  # a quarter of a second, which no start should wait for

    E, row = expm(A * step), np.eye(r)[0]
    responses = np.empty((points + 1, r))
    for k in range(points + 1):
        responses[k], row = row, row @ E
    return step, responses
