"""Exact derivatives of plant and law at a state, in coordinates of the motion that the constraints allow.

    x' = f(t, x, w),  w the command, held       A = df/dx, B = df/dw, K = dw/dx, C = dy/dx
    dx = W dy,  S = Z W:   S dy' = rate W dy    W: orthonormal basis of the motion that the passive constraints allow
    Z = W', rate = W' A                         fixed coordinates
    Z = (E; N'), rate = (E A + H; N' A)         errors of the task and the internal dynamics: exact in motion too

Design: the command is a separate input, so that hold, delay and filter can be put between law and plant. Dry friction
is left out: its slope at rest is valid at zero speed only.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.uncertainty import machine_errors, uncertainty_box
from servoctl.engine.decomposition import MANY, decompose
from servoctl.engine.parameters import field_of, parameter_names, parameter_values
from servoctl.engine.step import rk4
from servoctl.errors import TaskError
from servoctl.mechanics.plant import Plant
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.internal_dynamics import chains, error_kernel
from servoctl.types import Array, State

RANK = 1e-9  # a direction of the errors counts if its pivot exceeds this times their Frobenius norm

Frame = Literal["full", "fixed", "errors"]
"""Coordinates: all of x; those that the passive constraints allow; or the errors and the internal dynamics."""


@dataclass(frozen=True)
class Local:
    """Plant and law at a state: dy' = A dy + B dw, dw = K dy in continuous time; dx = W dy.

    The first m inputs are the actuators, the others are the rates of the controller memory.
    """

    A: Array  # under a held command, shape (states, states)
    B: Array  # shape (states, inputs)
    K: Array  # shape (inputs, states)
    C: Array  # outputs q, v, u and the violations of the task, shape (outputs, states)
    W: Array  # shape (2 n + memory, states)
    S: Array  # coordinates of `errors` over dy, the errors first, shape (coordinates, states)
    errors: int  # number of errors among these coordinates
    n: int  # number of coordinates of the plant
    m: int  # number of actuators
    f: Array  # x' at the state, shape (2 n + memory,)


_TRACED: WeakKeyDictionary[Loop, Loop] = WeakKeyDictionary()


def compiled(run: Run) -> Loop:
    """The loop of a run in symbols, which has derivatives.

    Raises:
        TaskError: The plant cannot be differentiated.
    """
    loop = run.loop
    if loop.differentiable:
        return loop
    for what, opaque in (("plant", run.system.model.opaque), ("law", run.system.acting.opaque)):
        if opaque is not None:
            raise TaskError(f"linearize: the {what} cannot be differentiated: {opaque}")
    traced = _TRACED.get(loop) or _TRACED.setdefault(loop, Loop(run.system))
    if not traced.differentiable:
        raise TaskError(f"linearize: more than {MANY} rows depend on each other, and have no derivatives")
    return traced


def nearest(run: Run, t: float, x: Array, real: Array | None = None) -> tuple[State, Array]:
    """The state on the passive constraints of the plant nearest to x, and the memory; `real` as of `local`."""
    loop = compiled(run)
    if run.system.model.passive_rows:
        other = copy.copy(loop)
        other.parameters = loop.simulated().parameters if real is None else real
        x = other.projected(t, x)
    return loop.split(t, x)


def outputs(run: Run) -> list[str]:
    """Names of y."""
    model = run.system.model
    inputs, rows = [f"u.{name}" for name in model.plant.actuators], [f"violation.{row.name}" for row in model.task_rows]
    return [*states(run)[: 2 * model.n], *inputs, *rows]


def states(run: Run) -> list[str]:
    """Names of x."""
    motion = [f"{kind}.{name}" for kind in "qv" for name in run.system.model.plant.coordinates]
    return [*motion, *(f"memory.{name}" for name in run.loop.memory_names)]


def plant_parameters(run: Run, real: Array | None = None) -> Array:
    """Parameters of the simulated plant, without dry friction; `real`: other parameters to use instead."""
    loop = compiled(run)
    parameters = (loop.simulated().parameters if real is None else real).copy()
    friction = run.system.friction
    if friction is not None:  # friction comes last but for the estimator: coulomb, viscous, speed
        last = len(parameters) - len(parameter_values(run.system.estimator))
        first = last - len(parameter_values(friction))
        parameters[first : first + run.system.model.m] = 0.0
    return parameters


def local(
    run: Run,
    at: State,
    memory: Array,
    frame: Frame = "errors",
    real: Array | None = None,
    law: Array | None = None,
    ahead: float = 0.0,
) -> Local:
    """Plant and law at a state.

    Args:
        frame: Coordinates.
        real: Parameters of the real plant; None: those of the run's simulated plant.
        law: Parameters of the law's model; None: those of the run.
        ahead: Time along the motion, under the held command, at which the plant is linearised [s]. Half a period gives
            second order for a moving state. Not for `errors`, which move with the state.

    Raises:
        TaskError: The plant cannot be differentiated, or a derivative is not finite there.
    """
    loop, p = compiled(run), plant_parameters(run, real)
    x, n, m = loop.x_at(at, memory), run.system.model.n, run.system.model.m
    of_law, slopes = loop.parameters if law is None else law, loop.held_slopes_kernel
    inputs = np.r_[:m, loop.layout.slices["memory_rate"]]
    command = loop.control_kernel(at.t, x, of_law)[0]
    K = loop.control_kernel.derivative("x")(at.t, x, of_law)[0][inputs]
    # the log part of a row begins with the violations
    violation = loop.motion_kernel.derivative("x", "log", slice(0, len(run.system.model.task_rows)))
    C = np.vstack([np.eye(len(x))[: 2 * n], K[:m], violation(at.t, x, p, command)[0]])
    there = rk4(lambda s, y: slopes(s, y, p, command)[0], at.t, x, ahead) if ahead else x
    f, Fx, B = (
        kernel(at.t + ahead, there, p, command)[0]
        for kernel in (slopes, slopes.derivative("x"), slopes.derivative("command"))
    )
    B = B[:, inputs]
    _, E, H = error_kernel(loop)(at.t, x, p, f)
    if not all(np.isfinite(part).all() for part in (f, Fx, B, K, C, E, H)):
        raise TaskError(f"linearize: a derivative is not finite at t = {at.t:g} s (choose another state)")
    passive = max((chain.place.stop for chain in chains(run.system) if chain.group == "passive"), default=0)
    W = np.eye(len(x)) if frame == "full" else null_space(E[:passive])
    N, ours = null_space(E), E[passive:]
    S = np.vstack([ours, N.T]) @ W
    if frame == "errors":
        rate, into = np.vstack([ours @ Fx + H[passive:], N.T @ Fx]) @ W, np.vstack([ours, N.T]) @ B
        both = np.linalg.lstsq(S, np.hstack([rate, into]))[0]
        A, B = both[:, : W.shape[1]], both[:, W.shape[1] :]
    else:
        A, B = W.T @ Fx @ W, W.T @ B
    return Local(A, B, K @ W, C @ W, W, S, len(ours), n, m, f)


def local_nearest(run: Run, t: float, x: Array, real: Array | None = None, law: Array | None = None) -> Local:
    """Plant and law at the state on the passive constraints nearest to x; arguments as of `local`."""
    return local(run, *nearest(run, t, x, real), real=real, law=law)


def _changed(known: Array, plant: Plant, errors: Mapping[str, float]) -> Array:
    """Parameters of a loop with the plant's changed by relative errors."""
    real = known.copy()
    for i, name in enumerate(parameter_names(plant)):
        real[i] *= (1.0 + errors.get(field_of(name), 0.0)) * (1.0 + (errors.get(name, 0.0) if "." in name else 0.0))
    return real


def box_machines(run: Run) -> Iterator[tuple[Mapping[str, float], Array]]:
    """Relative errors and loop parameters of every machine of a run's box; none without a box."""
    box = {} if run.loaded is None else uncertainty_box(run.loaded)
    if not box:
        return
    known, plant = compiled(run).parameters, run.system.model.plant
    for errors in machine_errors(box)[0]:
        yield errors, _changed(known, plant, errors)


def null_space(E: Array) -> Array:
    """Orthonormal basis of the null space, shape (columns, nullity)."""
    if not len(E):
        return np.eye(E.shape[1])
    return np.asarray(np.linalg.svd(E)[2][decompose(E, RANK).rank :].T)
