"""A run as linear and nonlinear systems of python-control."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from servoctl.assembly import Run
from servoctl.assembly.context import run_timing
from servoctl.assembly.make import make_system
from servoctl.errors import TaskError
from servoctl.estimation.attached import AttachedEstimator
from servoctl.laws.robust import ESTIMATE
from servoctl.linear.loop import LocalLoop, local, outputs, states
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.timing import Timing, UnderWay
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.estimated import COMMANDS
from servoctl.simulation.integrate import too_long
from servoctl.simulation.settings import Settings
from servoctl.types import Array, State

if TYPE_CHECKING:
    import control


RANK_TOLERANCE = 1e-6  # of the rows of a plant alone, as in a config

GROWN = 1e9  # an adaptive bound beyond every violation times gain: the state is inside the term's layer


def settled(loop: Loop, state: State) -> Array:
    """x at a state, with the memory with which observer and estimator run, and have found no disturbance.

    An estimator expects just this state at this tick, under the command that the law gives there. The bound of an
    adaptive term has grown until the term has its full gain here: it grows to that wherever the loop is disturbed.
    """
    x, h = loop.x_at(state), loop.memory_period
    memory = x[2 * loop.system.model.n :]  # a part of x, as are its parts below
    if ESTIMATE in loop.memory_names:
        memory[loop.memory_names.index(ESTIMATE)] = GROWN
    for _ in range(2 if h is not None and len(memory) else 0):  # the second time with the law's command on its way
        command = loop.control(state.t, x)
        memory += h * command[loop.layout.slices["memory_rate"]]
        _send_since_long(loop, memory, command[loop.layout.slices["u"]])
        if loop.system.estimator is not None:
            _expect(loop, loop.system.estimator, state, x, command)
    return x


def _send_since_long(loop: Loop, memory: Array, u: Array) -> None:
    """Puts into the memory that equal commands have been sent since long."""
    commands, names = loop.system.commands, loop.memory_names
    if commands is not None:
        first = names.index(f"{COMMANDS}.{commands.names[0]}")
        part = slice(first, first + len(commands.names))
        lagging = commands.read(memory[part]).torque
        memory[part] = UnderWay(np.tile(u, (commands.kept, 1)), u[: len(lagging)], 1.0).values


def _expect(loop: Loop, estimator: AttachedEstimator, state: State, x: Array, command: Array) -> None:
    """Puts into x the estimate of the last tick that leads to its state."""
    n, h = loop.system.model.n, estimator.timing.h
    first = 2 * n + len(loop.system.acting.memory)
    own = x[first : first + len(estimator.memory)]
    parts = dict(zip(estimator.parts, own.reshape(-1, n), strict=True))
    a = np.zeros(n)
    if estimator.has_model:
        parts["disturbance"][:] = 0.0
        a = parts["acceleration"] if "acceleration" in parts else loop.motion(state.t, x, command)[0][n : 2 * n]
    parts["v"][:] = state.v - h * a
    parts["q"][:] = state.q - h * parts["v"] - h * h / 2.0 * a


HELD_STEPS = 20  # steps of rk4 in one hold if the run has no fixed step


def linearize(
    run: Run | Plant,
    at: State | float | None = None,
    time: Literal["run", "continuous", "discrete"] = "run",
    period: float | None = None,
    delay: float | None = None,
    full: bool = False,
) -> "control.StateSpace":
    """The linearised closed loop.

    Inputs are added to the command of each actuator. Outputs are q, v, u of the law and the task errors. All
    are deviations from the motion at that state.

    Args:
        run: A run whose plant can be compiled; or a plant alone, without law and inputs, at the state `at`.
        at: A state; a time of the run [s], which is simulated up to it; or None: the start.
        time: `continuous`: the law acts continuously; `discrete`: from period to period; `run`: as in the run.
        period: Period for `discrete` [s]; None: that of the run.
        delay: Delay from a measurement to the torque computed from it [cycles], with fractions, without actuator lag;
            discrete only. None: delay and lag of the run's realism.
        full: Whether to keep motion that breaks the mechanism constraints, with q and v as states. Else the states are
            coordinates of the motion that these constraints allow. Without mechanism constraints both are the same.

    Raises:
        TaskError: The plant cannot be differentiated, the run stops before that time, or the arguments do not fit.
    """
    run = _alone(run, at) if isinstance(run, Plant) else run
    actuators, (t, x) = len(run.system.model.plant.actuators), state_at(run, at)
    if time not in ("run", "continuous", "discrete"):
        raise TaskError(f"linearize: time: expected run, continuous or discrete, got {time!r}")
    if not actuators:
        raise TaskError("linearize: the plant has no actuators (nothing to add to)")
    h = None if time == "continuous" else period or run.settings.period
    if time == "discrete" and h is None:
        raise TaskError("linearize: period: the run has none (give one [s])")
    if time == "continuous" and period is not None:
        raise TaskError(f"linearize: period: does not fit time='continuous', got {period} (leave one of them out)")
    if delay is not None and (delay < 0 or (delay and h is None)):
        raise TaskError(f"linearize: delay: expected cycles of a period, got {delay} (give time='discrete')")
    import control  # with SciPy's signals almost a second: only who asks for the system pays it

    timing = _timing(run, h, delay)
    around = local(run, t, x, "full" if full else "fixed", ahead=(h or 0.0) / 2)
    closed = LocalLoop(around, timing).closed
    names = _named(run, _state_names(run, len(around.A), len(closed.A), timing))
    C = np.hstack([around.C, np.zeros((len(around.C), len(closed.A) - len(around.A)))])
    return control.ss(closed.A, closed.B, C, np.zeros((len(C), actuators)), closed.period or 0, **names)


def _alone(plant: Plant, at: State | float | None) -> Run:
    """An open-loop run that starts at a state."""
    if not isinstance(at, State):
        raise TaskError(f"linearize: at: expected a State with a plant alone, got {at!r} (or give a run)")
    system = make_system(plant, {}, None, {}, at, None, RANK_TOLERANCE)
    return Run(type(plant).__name__, make_loop(system, "vm"), at, Settings(1.0))


def _named(run: Run, states: list[str]) -> dict[str, Any]:
    """Names for python-control, which does not allow dots."""
    names = {"inputs": list(run.system.model.plant.actuators), "outputs": outputs(run), "states": states}
    plain = {kind: [name.replace(".", "_") for name in listed] for kind, listed in names.items()}
    return {"name": run.name.replace(".", "_"), **plain}


def _timing(run: Run, period: float | None, delay: float | None) -> Timing:
    if period is None or delay is not None:
        return Timing.of(period, run.system.model.plant.actuators, (delay or 0.0) * (period or 0.0))
    return replace(run_timing(run.system, run.settings), period=period)


def _state_names(run: Run, size: int, total: int, timing: Timing) -> list[str]:
    """Names of the states: `size` of the mechanism, then, up to `total`, torques that lag and delayed commands."""
    actuators, names = list(run.system.model.plant.actuators), states(run)
    body = names if len(names) == size else [f"y{i + 1}" for i in range(size)]
    lagging = zip(actuators, timing.lag, strict=True) if timing.period is not None else ()
    torques = [f"torque.{name}" for name, lag in lagging if lag > 0.0]
    ages = (total - size - len(torques)) // len(actuators)
    return [*body, *torques, *(f"u.{name} {age} late" for age in range(1, ages + 1) for name in actuators)]


def state_at(run: Run, at: State | float | None = None) -> tuple[float, Array]:
    """t, and x with the controller memory, at a state or a time of the run.

    Raises:
        TaskError: The run stops before that time, or is too long to be simulated.
    """
    at = run.start if at is None or at == run.start.t else at
    if isinstance(at, State):
        return at.t, settled(run.loop, at)
    if not at > run.start.t:
        raise TaskError(f"linearize: at: expected a time from the start, {run.start.t:g} s, on, got {at:g}")
    settings = replace(run.settings, duration=float(at) - run.start.t)
    if why := too_long(run.loop, settings):
        raise TaskError(f"linearize: at: {why}")
    reached = replace(run, settings=settings).simulate()
    if reached.metadata["status"] != "done":
        raise TaskError(f"linearize: at: the run stops before {at:g} s: {reached.metadata.get('error')}")
    memory = [reached[f"memory.{name}"][-1] for name in run.loop.memory_names]
    return float(at), np.concatenate([reached.q[-1], reached.v[-1], memory])


def to_control(run: Run) -> "control.NonlinearIOSystem":
    """The nonlinear closed loop for simulations with python-control.

    Inputs and outputs are those of `linearize`; states are q, v and the controller memory. A sampled run becomes a
    discrete-time system with its period. Realism is left out.
    """
    import control

    loop, model, slices = run.loop, run.system.model, run.loop.layout.slices
    n, m, period = model.n, model.m, run.settings.period
    place = slices["violation"].start - loop.layout.command_size
    substeps = 1 if period is None else run.settings.integrator.substeps(period) or HELD_STEPS

    def command(t: float, x: Array, w: Array) -> Array:
        found = np.array(loop.control(t, x), dtype=float)
        found[:m] += np.atleast_1d(w)[:m]
        return found

    def update(t: float, x: Array, w: Array, _: dict[str, Any]) -> Array:
        held = command(t, x, w)
        if period is None:
            return loop.motion(t, x, held)[0]
        return loop.after_hold(t, x, held, period, substeps)

    def output(t: float, x: Array, w: Array, _: dict[str, Any]) -> Array:
        log = loop.motion(t, x, command(t, x, w))[1]
        return np.concatenate([x[: 2 * n], loop.control(t, x)[:m], log[place : place + len(model.task_rows)]])

    return control.nlsys(update, output, dt=0 if period is None else period, **_named(run, states(run)))
