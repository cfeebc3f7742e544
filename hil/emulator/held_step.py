"""One step of the machine and its actuators: of the simulated plant (Runge-Kutta), or of another simulator."""

from collections.abc import Sequence

import casadi as ca
import numpy as np

from hil.emulator.actuator import ActuatorOptions, after
from hil.loop.clock import SECOND
from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.engine.select_engine import run_fast
from servoctl.errors import CompileError
from servoctl.mechanics.model import Model
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.runge_kutta import rk4
from servoctl.simulation.system import Machine, System
from servoctl.types import Array, State

TOGETHER = 2  # steps in one call of compiled code: the usual number between two readings of the machine


def open_loop(system: System, start: State) -> System:
    """A system with the same plant, without task and law."""
    return System(Model(system.model.plain.plant, {}, start), None, {}, system.passive)


class HeldStep:
    """A step of the plant under the mean torque of each actuator."""

    def __init__(
        self,
        system: System,
        options: Sequence[ActuatorOptions],
        gains: Sequence[float],
        origin: float = 0.0,
        engine: str = "auto",
    ) -> None:
        """Compiles the step.

        Args:
            system: The plant, without law.
            options: Properties of each actuator.
            gains: Torque or force at each joint per torque of the motor.
            origin: Time of the plant when the world's time is 0 [s].

        Raises:
            CompileError: C is asked for and cannot be had.
        """
        loop = make_loop(system, "numpy" if engine == "numpy" else "auto")
        fixed = np.array([gains, [each.lag for each in options]], dtype=float)
        kernel = _kernel(loop)
        several = _repeated(kernel)
        # engine: its engine: `c`, `vm` or `numpy`
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
        """x after a step; `keep` then advances the actuators.

        Args:
            x: q and v at its beginning, shape (2 n,).
            duration: Its length [ns].
            now: Time of its end [ns].
            lost: Friction torque at the joints, shape (m,) [actuator unit]; None: as at the last call, at first 0.
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

    def __init__(
        self, machine: Machine, options: Sequence[ActuatorOptions], gains: Sequence[float], origin: float = 0.0
    ) -> None:
        """Prepares the step; `begin` then puts the machine at its start.

        Args:
            options: Properties of each actuator.
            gains: Torque or force at each joint per torque of the motor.
            origin: Time of the plant when the world's time is 0 [s].
        """
        self._machine, self._origin = machine, origin
        self.gains = np.array(gains, dtype=float)  # as of `HeldStep`
        self._lags = np.array([each.lag for each in options])
        m = len(options)
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
