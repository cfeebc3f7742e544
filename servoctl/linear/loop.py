"""The linearised loop: exact derivatives of plant and law at a state, then with its timing.

    x' = f(t, x, w),  w the command, held       A = df/dx, B = df/dw, K = dw/dx, C = dy/dx
    dx = W dy,  S = Z W:   S dy' = rate W dy    W: orthonormal basis of the motion that the passive constraints allow
    Z = W', rate = W' A                         fixed coordinates
    Z = (E; N'), rate = (E A + H; N' A)         errors of the task and the internal dynamics: exact in motion too

    dy' = A dy + B dw,  dw = K dy                                                continuous law
    s+ = A s + B w,  s = (dy, lagging torques, delayed commands, filter)         from sample to sample

Design: the command is a separate input, so that hold, delay and filter can be put between law and plant. Dry friction
is left out: its slope at rest is valid at zero speed only.

Design: only this module combines a timing with the linearised plant, by `laws.hold`; poles, margins and the factor on
the gains all use it. With a jitter it takes the shortest delay and the longest as two loops.
"""

import cmath
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import drives_timing, run_timing
from servoctl.assembly.uncertainty import machine_errors, uncertainty_box
from servoctl.engine.decomposition import MANY, decompose
from servoctl.engine.parameters import field_of, parameter_names, parameter_values
from servoctl.engine.step import rk4
from servoctl.errors import TaskError
from servoctl.laws.hold import Closed, close, differences, hold
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.internal_dynamics import chains, error_kernel, neutral
from servoctl.types import Array

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
    E: Array  # de/dx of the errors at the state, shape (errors, 2 n + memory)
    H: Array  # what the motion of the state adds to E dx'/dx for d(e')/dx, in the same shape


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


def nearest(run: Run, t: float, x: Array, real: Array | None = None) -> Array:
    """x on the passive constraints of the plant, nearest to x; `real` as of `local`."""
    if not run.system.model.passive_rows:
        return x
    loop = compiled(run)
    other = copy.copy(loop)
    other.parameters = loop.simulated().parameters if real is None else real
    return other.projected(t, x)


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
    t: float,
    x: Array,
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
    n, m = run.system.model.n, run.system.model.m
    of_law, slopes = loop.parameters if law is None else law, loop.held_slopes_kernel
    inputs = np.r_[:m, loop.layout.slices["memory_rate"]]
    command = loop.control_kernel(t, x, of_law)[0]
    K = loop.control_kernel.derivative("x")(t, x, of_law)[0][inputs]
    # the log part of a row begins with the violations
    violation = loop.motion_kernel.derivative("x", "log", slice(0, len(run.system.model.task_rows)))
    C = np.vstack([np.eye(len(x))[: 2 * n], K[:m], violation(t, x, p, command)[0]])
    there = rk4(lambda s, y: slopes(s, y, p, command)[0], t, x, ahead) if ahead else x
    f, Fx, B = (
        kernel(t + ahead, there, p, command)[0]
        for kernel in (slopes, slopes.derivative("x"), slopes.derivative("command"))
    )
    B = B[:, inputs]
    _, E, H = error_kernel(loop)(t, x, p, f)
    if not all(np.isfinite(part).all() for part in (f, Fx, B, K, C, E, H)):
        raise TaskError(f"linearize: a derivative is not finite at t = {t:g} s (choose another state)")
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
    return Local(A, B, K @ W, C @ W, W, S, len(ours), n, m, E, H)


def local_nearest(run: Run, t: float, x: Array, real: Array | None = None, law: Array | None = None) -> Local:
    """Plant and law at the state on the passive constraints nearest to x; arguments as of `local`."""
    return local(run, t, nearest(run, t, x, real), real=real, law=law)


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


ROUNDING = 1e-13  # relative error of derivatives, before any division by small singular values
CIRCLE = 1e-9  # a pole z is neutral, too, if |z| - 1 is below this
SPREAD = 1e-4  # largest shift by rounding of one of several equal poles
DEADBEAT = 1e-6  # a pole z up to this size counts as 0: its motion vanishes after one sample
REPEATED = 2  # multiplicity of poles that rounding may spread: 2, as in a critically damped row


def timings(run: Run) -> list[Timing]:
    """Timings to analyse, in simulation and on drives; none without a law. A sampled run comes last.

    With a jitter the shortest delay and the longest are two timings. With an estimator the run is not analysed on
    drives: its gains, its period and its delay are those of the simulation.
    """
    system, hil = run.system, run.hil
    if system.law is None or not system.model.m:
        return []
    simulated = run_timing(system, run.settings)
    if hil is None or system.estimator is not None:
        return [*simulated.extremes]
    drives = drives_timing(hil, system.model.plant)
    return [simulated, drives] if simulated.period is None else [drives, *simulated.extremes]


@dataclass(frozen=True)
class LocalLoop:
    """A linearised loop with its timing."""

    at: Local  # plant and law at a state
    timing: Timing  # period, delay and lag
    later: Array | float = 0.0  # [s] additional delay per actuator, or of all

    @cached_property
    def closed(self) -> Closed:
        """The closed loop, with an input added to the command of each actuator."""
        at, m, tau, estimate = self.at, self.at.m, self.timing.velocity_filter, None
        if self.timing.period is None:
            return Closed(at.A + at.B @ at.K, at.B[:, :m], at.K[:m], None)
        if tau is not None:  # velocities are not measured
            estimate = differences(at.W[: at.n], at.W[at.n : 2 * at.n].T, self.timing.h, tau)
        closed = close(hold(at.A, at.B, self.timing, self.later), at.K, estimate)
        return replace(closed, B=closed.B[:, :m], fed=closed.fed[:m])

    @property
    def matrix(self) -> Array:
        """Matrix whose eigenvalues are the poles of the loop, without directions that the law can never use."""
        return self.closed.without_idle_line(self.at.K)

    @cached_property
    def eigenvalues(self) -> Array:
        """Eigenvalues of `matrix`; infinite where it is not finite."""
        matrix = self.matrix
        return np.linalg.eigvals(matrix) if np.isfinite(matrix).all() else np.full(len(matrix), math.inf)

    @property
    def growth(self) -> float:
        """Largest real part of a pole [1/s]; of a sampled loop the largest |z|."""
        sizes = self.eigenvalues.real if self.timing.period is None else np.abs(self.eigenvalues)
        return float(sizes.max(initial=-math.inf))

    @property
    def poles(self) -> list[complex]:
        """Poles [1/s], the least stable first; for a sampled loop ln z / period, without those at z = 0."""
        found = means_of_clusters(self.eigenvalues, REPEATED)
        if self.timing.period is None:
            return found
        rates = [cmath.log(z) / self.timing.period for z in found if abs(z) > DEADBEAT]
        return sorted(rates, key=lambda pole: (-pole.real, pole.imag))

    @property
    def stable(self) -> bool:
        """Whether no pole is unstable; neutral poles are allowed."""
        return not grows(self.eigenvalues, self.timing.period)


def least_stable(at: Local, timing: Timing) -> LocalLoop:
    """The loop with a timing; with a jitter, after the shortest or the longest delay, whichever grows more."""
    return max((LocalLoop(at, each) for each in timing.extremes), key=lambda loop: loop.growth)


def grows(poles: Array, period: float | None) -> bool:
    """Whether one of the poles is unstable: it grows faster than a neutral one, whatever rounding errors do to it."""
    if not np.isfinite(poles).all():
        return True
    largest = float(np.abs(poles).max(initial=0.0))
    if not _grow(poles, period).any() or (period is not None and largest >= 1.0 + SPREAD):
        return bool(_grow(poles, period).any())
    # rounding errors are relative to the matrix, so a fast pole spreads a double pole at 0 further
    means = means_of_clusters(poles, REPEATED, ROUNDING * max(1.0, largest))
    return bool(_grow(np.array(means), period).any())


def _grow(poles: Array, period: float | None) -> Array:
    """Whether each pole grows; for a sampled loop `poles` are its eigenvalues z."""
    if period is None:
        return np.asarray(poles.real > neutral(poles))
    outside = np.abs(poles) > 1.0 + CIRCLE
    rates = np.log(np.where(outside, poles, 1.0).astype(complex)) / period
    return np.asarray(outside & (rates.real > neutral(rates)))


def means_of_clusters(poles: Array, multiplicity: int, rounding: float = ROUNDING) -> list[complex]:
    """The eigenvalues, with clusters that rounding may have spread replaced by their mean.

    Args:
        poles: Eigenvalues of a real matrix.
        multiplicity: Largest expected multiplicity.
        rounding: Relative error of the matrix.
    """
    found: list[complex] = []
    for members in clusters(poles, multiplicity, rounding):
        mean = sum(complex(poles[i]) for i in members) / len(members)
        real = abs(mean.imag) <= 10 * rounding * (1.0 + abs(mean))
        found += [complex(mean.real, 0.0) if real else mean] * len(members)
    return sorted(found, key=lambda pole: (-pole.real, pole.imag))


def clusters(poles: Array, multiplicity: int, rounding: float = ROUNDING) -> list[list[int]]:
    """Indices of the eigenvalues in each cluster that rounding may have spread; for the arguments see above."""
    left, found = list(np.lexsort((poles.imag, poles.real))), []
    while left:
        first = poles[left[0]]
        reach = 2.0 * (1.0 + abs(first)) * math.pow(rounding, 1.0 / max(1, multiplicity))
        found.append([int(i) for i in left if abs(poles[i] - first) <= reach])
        left = [i for i in left if int(i) not in found[-1]]
    return found
