"""One step of the machine and its actuators: of the simulated plant (Runge-Kutta), or of another simulator.

Design: lag and friction are those of simulated runs, `servoctl.simulation.realism`.
"""

from collections.abc import Callable, Sequence
from math import exp
from typing import Any

import casadi as ca
import numpy as np

from hil.loop.clock import SECOND
from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.select_engine import run_fast
from servoctl.errors import CompileError
from servoctl.mechanics.model import Model
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.realism import remaining
from servoctl.simulation.runge_kutta import rk4
from servoctl.simulation.system import Machine, System
from servoctl.types import Array, State


class Actuator:
    """The torque of one motor: a first-order lag behind the command, integrated exactly.

    Design: its state is four numbers in an array of all motors: the compiled step of the machine can advance them
    too.
    """

    __slots__ = ("_asked", "_lag", "_state", "derating", "limit", "powered", "saturated")

    def __init__(self, lag: float, state: Any = None) -> None:
        """Starts at rest, without torque; `lag`: time constant of the current loop [s].

        `state` stores four numbers, zero at first: torque [N m], impulse since the start of a step [N m s], target
        [N m], time of these [ns]; None: a list of its own.
        """
        self._lag = lag
        self.limit = float("inf")  # [N m] largest torque of the motor; infinite where only the drive limits it
        self.derating = 1.0  # fraction of the limit that is available; a fault sets it
        self.powered = True  # whether it makes torque at all; a fault sets it
        self.saturated = False  # whether the last command was above the limit
        self._asked = 0.0
        self._state = [0.0, 0.0, 0.0, 0.0] if state is None else state

    def command(self, torque: float, now: int) -> None:
        """Commands a torque [N m] from now [ns] on; NaN commands 0."""
        if torque != torque:
            torque = 0.0
        self._asked = torque
        limit = self.limit * self.derating
        if -limit <= torque <= limit:
            self.saturated = False
        else:
            self.saturated = True
            torque = limit if torque > limit else -limit
        target, state = torque if self.powered else 0.0, self._state
        made, state[1] = after(state, now, self._lag, exp)
        state[0] = made if self._lag else target
        state[2], state[3] = target, now

    def refresh(self, now: int) -> None:
        self.command(self._asked, now)

    def torque(self, now: int) -> float:
        """Torque now [N m]."""
        return float(after(self._state, now, self._lag, exp)[0])


def after(state: Any, now: Any, lag: Any, exp: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Torque [N m] and impulse [N m s] now [ns], by `lag T' = target - T`; on numbers, arrays or symbols.

    `state` holds the four numbers of `Actuator`; without a lag [s] the torque in it equals the target.
    """
    torque, impulse, target, since = state
    elapsed, above = (now - since) / SECOND, torque - target
    left = remaining(elapsed, lag, exp)
    return target + above * left, impulse + target * elapsed + above * lag * (1.0 - left)


TOGETHER = 2  # steps in one call of compiled code: the usual number between two readings of the machine


def open_loop(system: System, start: State) -> System:
    return System(Model(system.model.plain.plant, {}, start), None, {}, system.passive)


class HeldStep:
    """A step of the plant under the mean torque of each actuator."""

    def __init__(
        self,
        system: System,
        lag: float,  # [s] time constant of the current loops
        gains: Sequence[float],  # torque or force at each joint per torque of the motor
        origin: float = 0.0,  # [s] time of the plant when the world's time is 0
        engine: str = "auto",  # `auto`, `c`, `vm` or `numpy`
    ) -> None:
        """Compiles the step of a plant without law; CompileError if C is asked for and cannot be had."""
        loop = make_loop(system, "numpy" if engine == "numpy" else "auto")
        fixed = np.array([gains, [lag] * len(gains)], dtype=float)
        kernel = _kernel(loop)
        several = _repeated(kernel)
        self.engine, why = run_fast(kernel, engine if loop.traced else loop.engine, several)
        if engine == "c" and loop.traced and self.engine != "c":
            raise CompileError(why)
        tick = self._tick = BufferedCall(kernel)  # owns the arrays that the calls below use
        # actuators: state of each actuator, as described in `Actuator`, shape (4, m)
        self._times, self._x, self.actuators, self._lost, constants, parameters = tick.inputs.values()
        self._following, self._kept = tick.outputs.values()
        constants[:], parameters[:] = fixed, loop.parameters
        # torque or force at each joint per torque of the motor, shape (m,); it may be changed
        self.gains: Array = constants[0]
        self._evaluate = tick.evaluate
        self._evaluate_together = several.bound(list(tick.inputs.values()), list(tick.outputs.values()))
        self._times[0] = origin

    def begin(self, x: Array) -> None:
        """Puts the actuators at their start, without friction."""
        self.actuators[:] = self._lost[:] = 0.0

    def __call__(self, x: Array, duration: int, now: int, lost: Array | None = None) -> Array:
        """x after a step, q and v of shape (2n,), that ends now [ns]; `keep` then advances the actuators.

        `lost`: friction torque at the joints, shape (m,) [actuator unit]; None: as at the last call, at first 0.
        """
        self._times[1], self._times[2] = duration, now
        self._x[:] = x
        if lost is not None:
            self._lost[:] = lost
        self._evaluate()
        return self._following.copy()

    def together(self, x: Array, duration: int, now: int) -> Array:
        """x after `TOGETHER` such steps without friction, the last of which ends now."""
        self._times[1], self._times[2] = duration, now
        self._x[:] = x
        self._evaluate_together()
        return self._following.copy()

    def keep(self) -> None:
        """Advances the actuators to the end of the last step, where the next mean begins."""
        self.actuators[:] = self._kept


def _kernel(loop: Loop) -> Kernel:
    m = loop.system.model.m
    sizes = {"times": (3,), "x": (loop.size,), "actuators": (4, m), "lost": (m,), "constants": (2, m),
             "p": (len(loop.parameters),)}  # fmt: skip
    times, x, actuators, lost, constants, p = symbols = [ca.SX.sym(name, *size) for name, size in sizes.items()]
    gains, lags = ca.vertsplit(constants)
    torques, impulse = after(ca.vertsplit(actuators), times[2], lags, ca.exp)
    t, h = times[0] + (times[2] - times[1]) / SECOND, times[1] / SECOND
    u = (gains * impulse / h).T - lost
    command = ca.vertcat(u, ca.SX.zeros(loop.layout.command_size - m))
    motion = loop.motion_kernel.only("plant_motion", "rates").called()
    following = rk4(lambda s, y: motion(s, y, p, command), t, x, h)
    kept = ca.vertcat(torques, ca.SX.zeros(1, m), actuators[2, :], ca.repmat(times[2], 1, m))
    function = ca.Function("plant_step", symbols, [ca.densify(following), ca.densify(kept)])
    return Kernel(function, sizes, {"x": (loop.size,), "kept": (4, m)})


def _repeated(step: Kernel) -> Kernel:
    """`TOGETHER` steps, the last of which ends at times[2]."""
    once = step.called()
    times, x, actuators, *rest = given = [ca.SX.sym(name, *shape) for name, shape in step.inputs.items()]
    for left in reversed(range(TOGETHER)):
        x, actuators = once(ca.vertcat(times[0], times[1], times[2] - left * times[1]), x, actuators, *rest)
    return Kernel(ca.Function("plant_steps", given, [x, actuators]), step.inputs, step.outputs)


class MachineStep:
    """A step of a machine under the mean torque of each actuator."""

    engine = "mujoco"

    def __init__(self, machine: Machine, lag: float, gains: Sequence[float], origin: float = 0.0) -> None:
        """Prepares the step, with arguments as of `HeldStep`; `begin` then puts the machine at its start."""
        self._machine, self._origin = machine, origin
        self.gains = np.array(gains, dtype=float)  # as of `HeldStep`
        m = len(gains)
        self._lags = np.full(m, lag)
        self.actuators = np.zeros((4, m), order="F")  # state of each actuator, as described in `Actuator`, shape (4, m)
        self._kept, self._lost = np.zeros((4, m)), np.zeros(m)
        self._rest = self._later = np.zeros(machine.size)

    def begin(self, x: Array) -> None:
        """Puts machine and actuators at their start; x: q and v, shape (2n,)."""
        self.actuators[:] = self._lost[:] = 0.0
        self._rest = self._later = self._machine.start(self._origin, x)

    def __call__(self, x: Array, duration: int, now: int, lost: Array | None = None) -> Array:
        """x after a step; `keep` then advances machine and actuators. Arguments as of `HeldStep`."""
        if lost is not None:
            self._lost[:] = lost
        h = duration / SECOND
        torques, impulse = after(self.actuators, now, self._lags, np.exp)
        self._kept[0], self._kept[2], self._kept[3] = torques, self.actuators[2], now
        u = self.gains * impulse / h - self._lost
        following, self._later = self._machine.after(self._origin + (now - duration) / SECOND, x, self._rest, u, h)
        return following

    def together(self, x: Array, duration: int, now: int) -> Array | None:
        """None: several steps in one call are for compiled code."""
        return None

    def keep(self) -> None:
        """Advances machine and actuators to the end of the last step."""
        self.actuators[:] = self._kept
        self._rest = self._later
