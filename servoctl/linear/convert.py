"""A run as python-control's systems."""

from dataclasses import replace
from typing import Any, Literal

import control
import numpy as np

from servoctl.closed_loop import rk4
from servoctl.errors import TaskError
from servoctl.integrate import held_steps
from servoctl.linear.jacobians import HELD_STEPS, Linear, continuous, discrete, on_constraints, outputs, states
from servoctl.runs import Run
from servoctl.types import Array, State

Time = Literal["run", "continuous", "discrete"]


def linearize(
    run: Run,
    at: State | float | None = None,
    time: Time = "run",
    period: float | None = None,
    delay: int = 0,
    full: bool = False,
) -> control.StateSpace:
    """The closed loop, linearised.

    Inputs are what is added to each actuator's command, outputs q, v, the law's u and the violations of the task; all
    of them deviations from the motion at that state.

    Args:
        run: A run; its plant must be one that can be compiled.
        at: A state, a time on the run [s], which is simulated up to it, or None: the start.
        time: `continuous`: the law acts at once; `discrete`: from period to period; `run`: as the run has it.
        period: For `discrete` [s]; None: of the run.
        delay: Cycles between a measurement and the hold that answers it; discrete only.
        full: Whether motion that breaks the passive constraints is kept, with q and v as states. Else the states are
            coordinates of the motion that they allow; where there are none, both are the same.

    Raises:
        TaskError: The plant cannot be differentiated, the run does not get that far, or the arguments do not fit.
    """
    return as_state_space(run, linear_at(run, *state_at(run, at), time, period, delay, full))


def as_state_space(run: Run, linear: Linear) -> control.StateSpace:
    """For python-control, with names."""
    D = np.zeros((len(linear.C), linear.B.shape[1]))
    timebase = 0 if linear.period is None else linear.period
    return control.ss(linear.A, linear.B, linear.C, D, timebase, **_named(run, list(linear.states)))


def _named(run: Run, states: list[str]) -> dict[str, Any]:
    """Names as python-control allows them: without dots."""
    names = {"inputs": list(run.system.model.plant.actuators), "outputs": outputs(run), "states": states}
    plain = {kind: [name.replace(".", "_") for name in listed] for kind, listed in names.items()}
    return {"name": run.name.replace(".", "_"), **plain}


def linear_at(
    run: Run,
    at: State,
    memory: Array,
    time: Time = "run",
    period: float | None = None,
    delay: int = 0,
    full: bool = False,
    real: Array | None = None,
) -> Linear:
    """As `linearize`, at a state; `real`: parameters of the plant, where they are not those that the law knows."""
    if time not in ("run", "continuous", "discrete"):
        raise TaskError(f"linearize: time: expected run, continuous or discrete, got {time!r}")
    if not run.system.model.m:
        raise TaskError("linearize: the plant has no actuators (nothing to add to)")
    h = None if time == "continuous" else period or run.settings.period
    if time == "discrete" and h is None:
        raise TaskError("linearize: period: the run has none (give one [s])")
    if delay < 0 or (delay and h is None):
        raise TaskError(f"linearize: delay: expected cycles of a period, got {delay} (give time='discrete')")
    found = continuous(run, at, memory, real) if h is None else discrete(run, at, memory, h, delay, real)
    found = found if full else on_constraints(run, found, at, memory, real)
    if not all(np.isfinite(matrix).all() for matrix in (found.A, found.B, found.C)):
        raise TaskError(f"linearize: a derivative is not finite at t = {at.t:g} s (choose another state)")
    return found


def state_at(run: Run, at: State | float | None = None) -> tuple[State, Array]:
    """State and memory of the law at an instant of the run.

    Raises:
        TaskError: It does not get that far.
    """
    if at is None:
        return run.start, run.loop.memory_start
    if isinstance(at, State):
        return at, run.loop.memory_start
    if at == run.start.t:
        return run.start, run.loop.memory_start
    if not at > run.start.t:
        raise TaskError(f"linearize: at: expected a time after {run.start.t:g} s, got {at:g}")
    duration = float(at) - run.start.t
    reached = replace(run, settings=replace(run.settings, duration=duration)).simulate()
    if reached.metadata["status"] != "done":
        raise TaskError(f"linearize: at: the run stops before {at:g} s: {reached.metadata.get('error')}")
    memory = np.array([reached[f"memory.{name}"][-1] for name in run.loop.memory_names])
    return State(float(at), reached.q[-1].copy(), reached.v[-1].copy()), memory


def to_control(run: Run) -> control.NonlinearIOSystem:
    """The closed loop for python-control's simulations: inputs, outputs as of `linearize`, states q, v and memory.

    A sampled run is a discrete-time system with its period.
    """
    loop, model, slices = run.loop, run.system.model, run.loop.layout.slices
    n, m, period = model.n, model.m, run.settings.period
    place = slices["violation"].start - loop.layout.command_size
    substeps = 1 if period is None else held_steps(run.settings.integrator, period) or HELD_STEPS

    def command(t: float, x: Array, w: Array) -> Array:
        found = np.array(loop.control(t, x), dtype=float)
        found[:m] += np.atleast_1d(w)[:m]
        return found

    def update(t: float, x: Array, w: Array, _: dict[str, Any]) -> Array:
        held = command(t, x, w)
        if period is None:
            return loop.motion(t, x, held)[0]
        h = period / substeps
        for k in range(substeps):
            x = rk4(lambda s, y: loop.motion(s, y, held)[0], t + k * h, x, h)
        return x

    def output(t: float, x: Array, w: Array, _: dict[str, Any]) -> Array:
        log = loop.motion(t, x, command(t, x, w))[1]
        return np.concatenate([x[: 2 * n], loop.control(t, x)[:m], log[place : place + len(model.task_rows)]])

    return control.nlsys(update, output, dt=0 if period is None else period, **_named(run, states(run)))
