"""The simulated machine behind the emulated drives.

    M q'' = Q + Qc + B tau

Design: fixed steps of the classical Runge-Kutta method under the mean torque of each step, computed on demand. A
reading between two steps takes a partial step, which is not kept, so readings never change the motion. Friction and
brakes act at the end of each step: see `hil.emulator.contacts`.
"""

from collections.abc import Callable
from math import inf, isfinite

import numpy as np

from hil.emulator.contacts import Contacts, Loads, TrueDisplacements
from hil.emulator.held_step import TOGETHER, Actuator, HeldStep, MachineStep, open_loop
from hil.loop.clock import SECOND
from servoctl.config.hil import Emulation
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.system import System
from servoctl.types import Array, State


class _Motion:
    """The motion at one time, as all who read it then share it."""

    __slots__ = ("coordinates", "motors", "now", "x")

    def __init__(self, now: int, x: Array) -> None:
        self.now = now  # [ns]
        self.x = x  # q and v, shape (2n,)
        # displacements and rates of the motors; None: not read yet
        self.motors: tuple[list[float], list[float]] | None = None
        self.coordinates: tuple[list[float], list[float]] | None = None  # q and v; None: not read yet


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
        loop_system = open_loop(system, start)
        self.model = loop_system.model  # the plant
        m = self.model.m
        options = options or Emulation()
        self._lag = options.current_lag
        gains = m * [1.0] if gains is None else gains
        self._gains = np.array(gains, dtype=float)
        self._advance: HeldStep | MachineStep
        if system.machine is None:
            self._advance = HeldStep(loop_system, self._lag, gains, float(start.t), engine)
        else:
            self._advance = MachineStep(system.machine, self._lag, gains, float(start.t))
        self.engine = self._advance.engine  # engine of its steps: `c`, `vm`, `numpy` or `mujoco`
        self._pushes = np.zeros(m)
        self._guide: Callable[[float], tuple[Array, Array]] | None = None
        self._guided_from = 0
        self.displacements = TrueDisplacements(self.model, start)
        friction = np.full(m, options.coulomb_friction), np.full(m, options.viscous_friction)
        self._contacts = Contacts(lambda q, v, t: self._terms(q, v, t)[:3], self.displacements, *friction)
        # what it demands of drives that brake by themselves
        self.loads = Loads(
            lambda now: self._terms(*self.state(now), self._time(now)),
            lambda now: self._advance.gains * [actuator.torque(now) for actuator in self.actuators],
        )
        projects = system.passive.projection and system.machine is None
        self._closing = make_loop(loop_system).projected if projects else None
        self._origin = float(start.t)
        self.step = step  # [ns] step of the integration
        self._start = np.concatenate([start.q, start.v]).astype(float)
        self.restart()

    def restart(self) -> None:
        self._advance.begin(self._start)
        # one per input, in the plant's order
        self.actuators = [Actuator(self._lag, memoryview(column)) for column in self._advance.actuators.T]
        self._x, self._now = self._start.copy(), 0
        self.steps = 0  # number of steps taken
        self.factors = np.ones(self.model.m)  # true torque per torque of each motor: 1 unless a fault changes it
        self._advance.gains[:] = self._gains
        self._pushed = False
        self._pushes[:] = 0.0
        self._guide = None
        self._contacts.release()
        self._asleep: Array | None = None
        self.loads.begin()
        # [ns] time at which the state was no longer finite: the machine stands still from then on; None: never
        self.diverged: int | None = None
        self._seen: _Motion | None = None

    def command(self, index: int, torque: float, now: int) -> None:
        """Commands a torque of an actuator's motor [N m]."""
        if now >= self._now + self.step:
            self.advance(now)
        self.actuators[index].command(torque, now)

    def refresh(self, index: int, now: int) -> None:
        self.advance(now)
        self.actuators[index].refresh(now)

    def scale(self, index: int, factor: float, now: int) -> None:
        """Makes the true torque of a motor a multiple of what its drive makes of it."""
        self.advance(now)
        self.factors[index], self._asleep = factor, None
        self._advance.gains[index] = factor * self._gains[index]

    def push(self, index: int, torque: float, now: int) -> None:
        """Adds a torque or force of a hand at the joint of an actuator from now on [actuator unit]."""
        self.advance(now)
        self._pushes[index] += torque
        self._pushed, self._asleep = True, None  # from now on each step is told what acts on it

    def guide(self, motion: Callable[[float], tuple[Array, Array]], now: int) -> None:
        """Lets a hand move the machine from now on, whatever acts on it: motion(time [s]) -> q and v."""
        self._guide, self._guided_from = motion, now
        self._seen = None

    def advance(self, now: int) -> None:
        """Computes all whole steps up to now [ns]; none while a hand moves the machine."""
        if self._guide is not None or now < self._now + self.step:
            return
        while self._now + TOGETHER * self.step <= now and self._take_together():
            pass
        while (then := self._now + self.step) <= now:
            self._take(then)

    def state(self, now: int) -> tuple[Array, Array]:
        """q and v now, or after the last step if that is later; do not change the arrays."""
        x, n = self._look(now).x, self.model.n
        return x[:n], x[n:]

    def motion(self, now: int) -> tuple[list[float], list[float]]:
        """Displacements conjugate to the actuators, and their rates."""
        seen = self._look(now)
        if seen.motors is None:
            n = self.model.n
            q, v = seen.x[:n], seen.x[n:]
            displacements, rates = self.displacements.motors(q), self.displacements.rates(q, v, self._time(now))
            seen.motors = displacements.tolist(), rates.tolist()
        return seen.motors

    def coordinate_motion(self, now: int) -> tuple[list[float], list[float]]:
        """The coordinates, and their rates."""
        seen = self._look(now)
        if seen.coordinates is None:
            n, values = self.model.n, seen.x.tolist()
            seen.coordinates = values[:n], values[n:]
        return seen.coordinates

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

    @property
    def held(self) -> bool:
        return self._asleep is not None

    def _time(self, now: int) -> float:
        return self._origin + now / SECOND

    def _look(self, now: int) -> "_Motion":
        seen = self._seen
        if seen is None or seen.now != now:
            self.advance(now)
            if self._guide is not None:
                x = np.concatenate(self._guide((now - self._guided_from) / SECOND))
            else:
                x = self._x if now <= self._now or self._asleep is not None else self._partial(now)
            seen = self._seen = _Motion(now, x)
        return seen

    def _partial(self, now: int) -> Array:
        x = self._advance(self._x, now - self._now, now, self._lost())
        if not _finite(x):
            return self._x
        if self._contacts.active:
            x, _ = self._contacts(self._x, x, self._time(now), (now - self._now) / SECOND, keep=False)
        return x

    def _take_together(self) -> bool:
        """Takes `TOGETHER` steps in one call; returns False if something needs attention at each step."""
        if self._pushed or self._contacts.active or self._closing or self.diverged is not None:
            return False
        then = self._now + TOGETHER * self.step
        x = self._advance.together(self._x, self.step, then)
        if x is None or not _finite(x):  # single steps find the time at which it diverged
            return False
        self._advance.keep()
        self._x, self._now, self._seen = x, then, None
        self.steps += TOGETHER
        return True

    def _take(self, then: int) -> None:
        """Takes one step, to `then` [ns]."""
        elapsed = (then - self._now) / SECOND
        x = self._advance(self._x, then - self._now, then, self._lost())
        self._advance.keep()
        self._now, self._seen = then, None
        if self.diverged is not None or (self._asleep is not None and np.array_equal(self._torques, self._asleep)):
            return
        self.steps += 1
        self._asleep = None
        if not _finite(x):
            self.diverged = then
            x = self._x.copy()
            x[self.model.n :] = 0.0
        elif self._contacts.active:
            x, still = self._contacts(self._x, x, self._time(then), elapsed)
            self._asleep = self._torques.copy() if still else None
        if self._closing is not None and not self._contacts.pressed and self.diverged is None:
            x = self._closing(self._time(then), x)
        self._x = x

    @property
    def _torques(self) -> Array:
        """Torque and target of each motor; while they stay, what rests stays at rest."""
        torques: Array = self._advance.actuators[[0, 2]]
        return torques

    def _lost(self) -> Array | None:
        """Torque that is missing at the joints: less what a hand adds; None if it never did."""
        return -self._pushes if self._pushed else None

    def _terms(self, q: Array, v: Array, t: float) -> tuple[Array, Array, Array, Array]:
        """Mass matrix, rows of the motors, rows of the passive constraints, and force."""
        matrices = self.model.matrices(State(t, q, v))
        M, A = matrices.M, matrices.passive.A
        if matrices.singular:  # the motion along A is given, so this changes nothing else
            M = M + np.trace(M) / np.sum(A * A) * A.T @ A
        return M, matrices.B.T, A, matrices.Q


def _finite(x: Array) -> bool:
    return isfinite(sum(x.tolist()))
