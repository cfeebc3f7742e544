"""Exact derivatives of a closed loop at a state, with respect to the state and to what is added to the inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import casadi as ca
import numpy as np

from servoctl.analysis import error_kernel
from servoctl.closed_loop import CompiledLoop, Loop, rk4
from servoctl.engine.decomposition import decompose
from servoctl.engine.kernel import Kernel
from servoctl.errors import TaskError
from servoctl.integrate import held_steps
from servoctl.runs import Run
from servoctl.types import Array, State

HELD_STEPS = 20
"""Steps of rk4 in one hold where the run itself has none."""

RANK = 1e-9
"""Errors are independent along directions whose pivot exceeds this times their Frobenius norm."""


@dataclass(frozen=True)
class Linear:
    """dx' = A dx + B dw, dy = C dx; or the same from period to period.

    Attributes:
        A: Shape (states, states).
        B: Shape (states, m); w is added to the inputs.
        C: Shape (outputs, states); outputs are q, v, u and the violations of the task, in this order.
        fed: Command that reaches the plant, over the state, shape (m, states).
        period: [s]; None: continuous time.
        states: Their names.
    """

    A: Array
    B: Array
    C: Array
    fed: Array
    period: float | None
    states: tuple[str, ...]


_TRACED: WeakKeyDictionary[Loop, CompiledLoop] = WeakKeyDictionary()


def compiled(run: Run) -> CompiledLoop:
    """The loop of a run, as one that has derivatives.

    Raises:
        TaskError: It has none.
    """
    loop = run.loop
    if isinstance(loop, CompiledLoop):
        return loop
    model = run.system.model
    if model.opaque is not None:
        raise TaskError(f"linearize: the plant cannot be differentiated: {model.opaque}")
    return _TRACED.get(loop) or _TRACED.setdefault(loop, CompiledLoop(run.system))


def outputs(run: Run) -> list[str]:
    """Names of y."""
    plant, rows = run.system.model.plant, run.system.model.task_rows
    names = [f"q.{name}" for name in plant.coordinates] + [f"v.{name}" for name in plant.coordinates]
    return names + [f"u.{name}" for name in plant.actuators] + [f"violation.{row.name}" for row in rows]


def states(run: Run) -> list[str]:
    """Names of x."""
    names = list(run.system.model.plant.coordinates)
    return [*(f"q.{name}" for name in names), *(f"v.{name}" for name in names)] + [
        f"memory.{name}" for name in run.loop.memory_names
    ]


_JACOBIANS: WeakKeyDictionary[Kernel, dict[Any, ca.Function]] = WeakKeyDictionary()


def _known(loop: CompiledLoop, kind: Any, make: Callable[[CompiledLoop], ca.Function]) -> ca.Function:
    """What `make` makes of a loop, made once for all loops that share their functions."""
    there = _JACOBIANS.setdefault(loop.control_kernel, {})
    if kind not in there:
        there[kind] = make(loop)
    return there[kind]


def _symbols(loop: CompiledLoop) -> tuple[ca.MX, ca.MX, ca.MX, ca.MX]:
    """t, x, the parameters that the law knows, those of the plant."""
    count = len(loop.parameters)
    t, x, p, real = (ca.MX.sym(name, n) for name, n in (("t", 1), ("x", loop.size), ("p", count), ("real", count)))
    return t, x, p, real


def _read_out(loop: CompiledLoop, x: ca.MX, command: ca.MX, log: ca.MX) -> ca.MX:
    """y = (q, v, u, violation)."""
    n, m, r = loop.system.model.n, loop.system.model.m, len(loop.system.model.task_rows)
    place = loop.layout.slices["violation"].start - loop.layout.command_size
    return ca.vertcat(x[: 2 * n], command[:m], log[place : place + r])


def continuous(run: Run, at: State, memory: Array, real: Array | None = None) -> Linear:
    """In continuous time, the law acting at once.

    Args:
        run: The run.
        at: Where.
        memory: Of the law.
        real: Parameters of the plant that there is; None: those that the law knows.
    """
    loop = compiled(run)
    A, B, C = _numbers(loop, _known(loop, "continuous", _at_once), at, memory, real)
    return Linear(A, B, C, C[2 * loop.system.model.n :][: loop.system.model.m], None, tuple(states(run)))


def _at_once(loop: CompiledLoop) -> ca.Function:
    """(t, x, p, real) -> A, B, C."""
    t, x, p, real = _symbols(loop)
    m = loop.system.model.m
    w = ca.MX.sym("w", m)
    command = loop.control_kernel.function(t, x, p)
    added = ca.vertcat(w, ca.MX.zeros(loop.layout.command_size - m, 1))
    rates, log = loop.motion_kernel.function(t, x, real, command + added)
    y = _read_out(loop, x, command, log)
    matrices = [ca.jacobian(rates, x), ca.jacobian(rates, w), ca.jacobian(y, x)]
    at_zero = ca.Function("with_added", [t, x, p, real, w], [ca.densify(matrix) for matrix in matrices])
    return ca.Function("at_once", [t, x, p, real], list(at_zero(t, x, p, real, ca.MX.zeros(m, 1))))


def discrete(run: Run, at: State, memory: Array, period: float, delay: int, real: Array | None = None) -> Linear:
    """From period to period, the command held, and applied so many periods after the measurement that it answers."""
    loop, m = compiled(run), run.system.model.m
    substeps = held_steps(run.settings.integrator, period) or HELD_STEPS
    make = partial(_held, period=period, substeps=substeps)
    Phi, Gamma, K, C = _numbers(loop, _known(loop, (period, substeps), make), at, memory, real)
    size = loop.size
    own = Phi + Gamma[:, m:] @ K[m:]  # what the law integrates is not late
    if not delay:
        A, B = own + Gamma[:, :m] @ K[:m], Gamma[:, :m]
        return Linear(A, B, C, K[:m], period, tuple(states(run)))
    A = np.zeros((size + delay * m, size + delay * m))
    A[:size, :size], A[:size, -m:] = own, Gamma[:, :m]
    A[size : size + m, :size] = K[:m]
    A[size + m :, size:-m] = np.eye((delay - 1) * m)
    B = np.vstack([Gamma[:, :m], np.zeros((delay * m, m))])
    C = np.hstack([C, np.zeros((len(C), delay * m))])
    waiting = [f"u.{name} {k} late" for k in range(1, delay + 1) for name in run.system.model.plant.actuators]
    fed = np.hstack([np.zeros((m, len(A) - m)), np.eye(m)])
    return Linear(A, B, C, fed, period, (*states(run), *waiting))


def _held(loop: CompiledLoop, period: float, substeps: int) -> ca.Function:
    """(t, x, p, real) -> derivatives of x after a hold by x and by the command, of the command, and of y by x."""
    t, x, p, real = _symbols(loop)
    held = ca.MX.sym("held", loop.layout.command_size)
    slopes, h, following = loop.held_slopes_kernel.function, period / substeps, x
    for k in range(substeps):
        following = rk4(lambda s, y: slopes(s, y, real, held), t + k * h, following, h)
    parts = [ca.densify(ca.jacobian(following, by)) for by in (x, held)]
    moved = ca.Function("moved", [t, x, real, held], parts)
    command = loop.control_kernel.function(t, x, p)
    log = loop.motion_kernel.function(t, x, real, command)[1]
    gains = [ca.jacobian(command, x), ca.jacobian(_read_out(loop, x, command, log), x)]
    return ca.Function("held", [t, x, p, real], [*moved(t, x, real, command), *map(ca.densify, gains)])


def _numbers(loop: CompiledLoop, function: ca.Function, at: State, memory: Array, real: Array | None) -> list[Array]:
    x = np.concatenate([at.q, at.v, memory])
    return [np.array(part) for part in function(at.t, x, loop.parameters, loop.parameters if real is None else real)]


def on_constraints(run: Run, linear: Linear, at: State, memory: Array, real: Array | None = None) -> Linear:
    """The same for motion that keeps the passive constraints; itself where there are none."""
    W = passive_basis(run, at, memory, real)
    if W is None:
        return linear
    extra = len(linear.A) - len(W)
    wide = np.block([[W, np.zeros((len(W), extra))], [np.zeros((extra, W.shape[1])), np.eye(extra)]])
    names = tuple(f"y{i + 1}" for i in range(W.shape[1])) + linear.states[len(W) :]
    A, B = wide.T @ linear.A @ wide, wide.T @ linear.B
    return Linear(A, B, linear.C @ wide, linear.fed @ wide, linear.period, names)


def passive_basis(run: Run, at: State, memory: Array, real: Array | None = None) -> Array | None:
    """Orthonormal basis of the changes of x that keep the passive constraints, shape (2 n + memory, freedoms)."""
    loop, model = compiled(run), run.system.model
    if not model.passive_rows:
        return None
    x = np.concatenate([at.q, at.v, memory])
    _, E, _ = error_kernel(loop)(at.t, x, loop.parameters if real is None else real, np.zeros(loop.size))
    rows = sum(int(row.has_violation) + int(row.has_rate) for row in model.passive_rows)
    return null_space(E[:rows])


def null_space(E: Array) -> Array:
    """Orthonormal basis of the null space, shape (columns, nullity)."""
    if not len(E):
        return np.eye(E.shape[1])
    return np.asarray(np.linalg.svd(E)[2][decompose(E, RANK).rank :].T)
