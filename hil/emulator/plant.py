"""The simulated machine behind the emulated drives.

    M q'' = Q + Qc + B tau

Design: fixed steps of the classical Runge-Kutta method under the mean torque of each step, computed on demand; or of
another simulator, `servoctl.simulation.system.Machine`. A reading between two steps takes a partial step, which is not
kept, so readings never change the motion. Lag is that of simulated runs, `servoctl.simulation.realism`. Friction and
brakes act at the end of each step: see `hil.emulator.contacts`.
"""

from collections.abc import Callable
from math import exp, inf, isfinite

import numpy as np

from hil.emulator.contacts import Contacts, Loads, TrueDisplacements
from hil.loop.clock import SECOND
from servoctl.config.hil import Emulation
from servoctl.engine.kernel import BufferedCall, run_fast
from servoctl.errors import CompileError, PlantError
from servoctl.mechanics.model import Model
from servoctl.simulation.adaptive import differences
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.system import Machine, System
from servoctl.types import Array, State

SHORTEST = 100  # [ns] shortest step: with shorter ones a second takes hours
Motion = Callable[[float], tuple[Array, Array]]  # time since a hand began [s] -> q and v

STABLE = 2.5  # largest product of step and pole: up to 2.78 what decays does so in the method of integration too


class Actuator:
    """The torque of one motor: a first-order lag behind the command, `lag T' = target - T`, integrated exactly.

    Faults set its attributes once the steps of the machine until then are taken.
    """

    def __init__(self, plant: "SimulatedPlant", lag: float, gain: float) -> None:
        """Starts at rest, without torque.

        `lag`: time constant of the current loop [s]; `gain`: torque or force at the joint per torque of the motor.
        """
        self._plant, self._lag, self._gain = plant, lag, gain
        self.limit = inf  # [N m] largest torque of the motor; infinite where only the drive limits it
        self.powered = True  # whether it makes torque at all
        self.constant = 1.0  # true torque of the motor relative to what its drive makes of it
        self.pushed = 0.0  # [actuator unit] torque or force of a hand at its joint
        self.saturated = False  # whether the last command was above the limit
        self.target = 0.0  # [N m] what the torque tends to
        self._asked = 0.0
        # [N m, N m s] torque, and impulse since the step began, at the time `_since` [ns]
        self._torque, self._impulse, self._since = 0.0, 0.0, 0

    def command(self, torque: float, now: int) -> None:
        """Commands a torque [N m] from now [ns] on; NaN commands 0."""
        self._plant.advance(now)
        if torque != torque:
            torque = 0.0
        self._asked = torque
        limit = self.limit
        self.saturated = not -limit <= torque <= limit
        if self.saturated:
            torque = limit if torque > limit else -limit
        target = torque if self.powered else 0.0
        made, self._impulse = self.at(now)
        self._torque = made if self._lag else target
        self.target, self._since = target, now

    def refresh(self, now: int) -> None:
        self.command(self._asked, now)

    def push(self, torque: float, now: int) -> None:
        """Adds a torque or force of a hand at its joint from now on [actuator unit]."""
        self._plant.advance(now)
        self.pushed += torque

    def torque(self, now: int) -> float:
        """Torque now, as the drive measures it [N m]."""
        self._plant.advance(now)
        return self.at(now)[0]

    @property
    def gain(self) -> float:
        """True torque or force at the joint for one that the drive measures."""
        return self.constant * self._gain

    @property
    def state(self) -> tuple[float, ...]:
        """What moves its joint; while none of it changes, what rests stays at rest."""
        return self._torque, self.target, self.constant, self.pushed

    def end_step(self, now: int) -> float:
        """Its impulse since the step began [N m s]; the next step begins."""
        self._torque, impulse = self.at(now)
        self._impulse, self._since = 0.0, now
        return impulse

    def at(self, now: int) -> tuple[float, float]:
        """Torque now [N m], and impulse since the step began [N m s]."""
        if now == self._since:
            return self._torque, self._impulse
        elapsed, lag, target = (now - self._since) / SECOND, self._lag, self.target
        above = self._torque - target
        left = exp(-elapsed / lag) if lag else 0.0
        return target + above * left, self._impulse + target * elapsed + above * lag * (1.0 - left)


class CompiledPlant:
    """The plant as a `Machine`: one step of the classical Runge-Kutta method under held torques."""

    size = 0

    def __init__(self, loop: Loop, engine: str) -> None:
        """Compiles the step of a plant without law; CompileError if C is asked for and cannot be had."""
        kernel = loop.held_stepper()
        found, why = run_fast(kernel, engine if loop.traced else loop.engine)
        if engine == "c" and loop.traced and found != "c":
            raise CompileError(why)
        self._step = BufferedCall(kernel)
        self._x, self._t, self._h, parameters, command = self._step.inputs.values()
        self._u = command[: loop.system.model.m]
        (self._following,) = self._step.outputs.values()
        parameters[:] = loop.parameters

    def start(self, t: float, x: Array) -> Array:
        return np.zeros(0)

    def after(self, t: float, x: Array, rest: Array, u: Array, h: float) -> tuple[Array, Array]:
        self._x[:], self._t[0], self._h[0], self._u[:] = x, t, h, u
        self._step()
        return self._following.copy(), rest


class SimulatedPlant:
    """A machine with actuators and brakes."""

    def __init__(
        self,
        system: System,  # with the plant, or a machine in its place; task and law are not used
        start: State,
        step: int,  # [ns] step of the integration
        engine: str = "auto",  # `auto`, `c`, `vm` or `numpy`
        options: Emulation | None = None,  # lag of its actuators and friction of its joints; None: the usual ones
        gains: list[float] | None = None,  # torque or force at each joint per torque of the motor; None: 1
    ) -> None:
        """Starts at the given state, at the world's time 0."""
        bare = System(Model(system.model.plain.plant, {}, start), None, {}, system.passive)
        self.model = bare.model  # the plant
        m = self.model.m
        options = options or Emulation()
        self._lag, self._gains = options.current_lag, m * [1.0] if gains is None else gains
        self._origin = float(start.t)
        self._start = np.concatenate([start.q, start.v]).astype(float)
        self.step = step  # [ns] step of the integration
        self._closing: Callable[[float, Array], Array] | None = None
        if system.machine is None:
            loop = make_loop(bare, "numpy" if engine == "numpy" else "auto")
            self._machine: Machine = CompiledPlant(loop, engine)
            self.step = self._stable(step, loop)
            self._closing = loop.projected if loop.projects else None
        else:
            self._machine = system.machine
        self._guide: Motion | None = None
        self._guided_from = 0
        self.displacements = TrueDisplacements(self.model.plant)
        self._friction = np.full(m, options.coulomb_friction), np.full(m, options.viscous_friction)
        self.restart()

    def _stable(self, step: int, loop: Loop) -> int:
        """The step [ns], or a shorter one where dry friction that is smooth, or a stiff spring, would be unstable.

        PlantError if only a step below `SHORTEST` would be stable.
        """
        t, x, command = self._origin, self._start, np.zeros(loop.layout.command_size)
        slopes = differences(lambda y: loop.derivative(t, y, command), x, 1.0)
        fastest = max(1.0, float(np.abs(np.linalg.eigvals(slopes)).max()))
        longest = int(STABLE * SECOND / fastest)
        if longest < SHORTEST:
            what = f"the emulated machine is too stiff: it has a pole beyond {STABLE * SECOND / SHORTEST:.3g} 1/s"
            remedy = "smooth dry friction over a higher speed, make springs softer, or light bodies heavier"
            raise PlantError(f"{what} at its start ({remedy})")
        return min(step, longest)

    def restart(self) -> None:
        self._rest = self._machine.start(self._origin, self._start)
        self.actuators = [Actuator(self, self._lag, gain) for gain in self._gains]  # of each input, in their order
        self._x, self._now = self._start.copy(), 0
        self._guide = None
        self._contacts = Contacts(lambda q, v, t: self._terms(q, v, t)[:3], self.displacements, *self._friction)
        self._asleep: list[tuple[float, ...]] | None = None  # states of the actuators under which it rests
        # what it demands of drives that brake by themselves
        self.loads = Loads(lambda now: self._terms(*self.state(now), self._time(now)), self.torques)
        # [ns] time at which the state was no longer finite: the machine stands still from then on; None: never
        self.diverged: int | None = None
        self._seen: tuple[int, Array] | None = None  # a time [ns], and q and v then, shape (2n,); None: not known
        # displacements and rates of the motors at that time; None: not read yet
        self._motors: tuple[list[float], list[float]] | None = None

    def guide(self, motion: Motion, now: int) -> None:
        """Lets a hand move the machine from now on, whatever acts on it: motion(time [s]) -> q and v."""
        self._guide, self._guided_from = motion, now
        self._seen = None

    def advance(self, now: int) -> None:
        """Takes all steps that end up to now [ns], at multiples of `step`; none while a hand moves the machine."""
        if self._guide is not None:
            return
        while (then := self._now - self._now % self.step + self.step) <= now:
            self._take(then)

    def state(self, now: int) -> tuple[Array, Array]:
        """q and v now, or after the last step if that is later; do not change the arrays."""
        x, n = self._look(now), self.model.n
        return x[:n], x[n:]

    def motion(self, now: int) -> tuple[list[float], list[float]]:
        """Displacements conjugate to the actuators, and their rates."""
        q, v = self.state(now)
        if self._motors is None:
            rates = self.displacements.rates(q, v, self._time(now))
            self._motors = self.displacements.motors(q).tolist(), rates.tolist()
        return self._motors

    def brake(self, index: int, closed: bool, now: int, strength: float = inf) -> None:
        """Closes or opens a brake at the joint of an actuator at this instant [ns].

        `strength`: torque or force at which it slides [actuator unit]; it identifies the brake.
        """
        self.advance(now)
        if self._now < now:
            self._take(now)
        self._contacts.brake(index, closed, strength, self._x[: self.model.n])
        self._asleep = self._seen = None
        if self._contacts.active:  # what never slides stops at once
            self._x, _ = self._contacts(self._x, self._x, self._time(now), 0.0)

    def _time(self, now: int) -> float:
        return self._origin + now / SECOND

    def _look(self, now: int) -> Array:
        """q and v now, shape (2n,), as all who read them now share them."""
        if self._seen is None or self._seen[0] != now:
            self.advance(now)
            if self._guide is not None:
                x = np.concatenate(self._guide((now - self._guided_from) / SECOND))
            else:
                x = self._x if now <= self._now or self._asleep is not None else self._partial(now)
            self._seen, self._motors = (now, x), None
        return self._seen[1]

    def _partial(self, now: int) -> Array:
        x, _ = self._after(now, [actuator.at(now)[1] for actuator in self.actuators])
        if not _finite(x):
            return self._x
        if self._contacts.active:
            x, _ = self._contacts(self._x, x, self._time(now), (now - self._now) / SECOND, keep=False)
        return x

    def _after(self, then: int, impulses: list[float]) -> tuple[Array, Array]:
        """The machine after a step to `then` [ns] under impulses of the motors, without friction and brakes."""
        h = (then - self._now) / SECOND
        pairs = zip(self.actuators, impulses, strict=True)
        u = np.array([actuator.gain * impulse / h + actuator.pushed for actuator, impulse in pairs])
        return self._machine.after(self._time(self._now), self._x, self._rest, u, h)

    def _take(self, then: int) -> None:
        """Takes one step, to `then` [ns]."""
        elapsed = (then - self._now) / SECOND
        impulses = [actuator.end_step(then) for actuator in self.actuators]
        rests = self.diverged is not None or (self._asleep is not None and self._asleep == self._states)
        if not rests or self._machine.size:  # what else a machine remembers changes at rest too
            x, self._rest = self._after(then, impulses)
        self._now, self._seen = then, None
        if rests:
            return
        self._asleep = None
        if not _finite(x):
            self.diverged = then
            x = self._x.copy()
            x[self.model.n :] = 0.0
        elif self._contacts.active:
            x, still = self._contacts(self._x, x, self._time(then), elapsed)
            self._asleep = self._states if still else None
        if self._closing is not None and not self._contacts.pressed and self.diverged is None:
            x = self._closing(self._time(then), x)
        self._x = x

    @property
    def _states(self) -> list[tuple[float, ...]]:
        return [actuator.state for actuator in self.actuators]

    def torques(self, now: int) -> list[float]:
        """Torque or force that each motor makes at its joint now [actuator unit]."""
        self.advance(now)
        return [actuator.gain * actuator.at(now)[0] for actuator in self.actuators]

    def _terms(self, q: Array, v: Array, t: float) -> tuple[Array, Array, Array, Array]:
        """Mass matrix, rows of the motors, rows of the passive constraints, and force."""
        matrices = self.model.matrices(State(t, q, v))
        M, A = matrices.M, matrices.passive.A
        if matrices.singular:  # the motion along A is given, so this changes nothing else
            M = M + np.trace(M) / np.sum(A * A) * A.T @ A
        return M, matrices.B.T, A, matrices.Q


def _finite(x: Array) -> bool:
    return isfinite(sum(x.tolist()))
