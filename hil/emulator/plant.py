"""The simulated machine behind the emulated drives.

    M q'' = Q + Qc + B tau

Design: fixed steps of the classical Runge-Kutta method under the mean torque of each step, computed on demand. A
reading between two steps takes a partial step, which is not kept, so readings never change the motion. Brakes are
constraints: closing one removes the velocity along it by a plastic impulse; brakes that leave no freedom stop the
integration.
"""

from collections.abc import Callable
from math import isfinite

import numpy as np

from hil.emulator.actuator import Actuator, ActuatorOptions
from hil.emulator.displacements import TrueDisplacements
from hil.emulator.held_step import TOGETHER, HeldStep, open_loop
from hil.emulator.machine_step import MachineStep
from hil.loop.clock import SECOND
from servoctl.mechanics.constraint import LARGE
from servoctl.mechanics.friction import friction_loss
from servoctl.simulation.engine_choice import make_loop
from servoctl.simulation.system import System
from servoctl.types import Array, State

FRICTION_SPEED = 0.01
"""Speed around which dry friction changes sign, as a fraction of the speed limit: it is smooth, and creeps below."""

RANK_TOLERANCE = 1e-9
"""Relative singular value below which constraints count as dependent while brakes act."""


class _Motion:
    """The motion at one time, as all who read it then share it.

    Attributes:
        now: The time [ns].
        x: q and v, shape (2n,).
        motors: Displacements and rates of the motors; None: not read yet.
        coordinates: q and v; None: not read yet.
    """

    __slots__ = ("coordinates", "motors", "now", "x")

    def __init__(self, now: int, x: Array) -> None:
        self.now, self.x = now, x
        self.motors: tuple[list[float], list[float]] | None = None
        self.coordinates: tuple[list[float], list[float]] | None = None


class SimulatedPlant:
    """A machine with actuators and brakes.

    Attributes:
        model: The plant.
        engine: Engine of its steps: `c`, `vm`, `numpy` or `mujoco`.
        actuators: One per input, in the plant's order.
        step: Step of the integration [ns].
        diverged: Time at which the state was no longer finite [ns]; the machine stands still from then on; None: never.
        steps: Number of steps taken.
    """

    def __init__(
        self,
        system: System,
        start: State,
        step: int,
        engine: str = "auto",
        options: list[ActuatorOptions] | None = None,
        gains: list[float] | None = None,
        friction_speed: list[float] | None = None,
    ) -> None:
        """Starts at the given state.

        Args:
            system: System with the plant, or a machine in its place; task and law are not used.
            start: Initial state, at the world's time 0.
            step: Step of the integration [ns].
            engine: As for `HeldStep`.
            options: Properties of each actuator; None: the usual ones.
            gains: Torque or force at each joint per torque of the motor: sign * gear; None: 1.
            friction_speed: Speed of each joint at which dry friction is tanh(1) of its size; None: 0.01.
        """
        loop_system = open_loop(system, start)
        self.model = loop_system.model
        m = self.model.m
        options = self._options = options or m * [ActuatorOptions()]
        gains = m * [1.0] if gains is None else gains
        self._advance: HeldStep | MachineStep
        if system.machine is None:
            self._advance = HeldStep(loop_system, options, gains, float(start.t), engine)
        else:
            self._advance = MachineStep(system.machine, options, gains, float(start.t))
        self.engine = self._advance.engine
        self._coulomb = np.array([each.coulomb for each in options])
        self._viscous = np.array([each.viscous for each in options])
        self._friction_speed = np.full(m, 0.01) if friction_speed is None else np.array(friction_speed, dtype=float)
        self._pushes = np.zeros(m)
        self._guide: Callable[[float], tuple[Array, Array]] | None = None
        self._guided_from = 0
        self.displacements = TrueDisplacements(self.model, start)
        projects = system.passive.projection and system.machine is None
        self._closing = make_loop(loop_system).projected if projects else None
        self._origin, self.step = float(start.t), step
        self._start = np.concatenate([start.q, start.v]).astype(float)
        self.restart()

    def restart(self) -> None:
        """Returns to the start, as at power-on."""
        self._advance.begin(self._start)
        columns = self._advance.actuators.T
        self.actuators = [
            Actuator(each, memoryview(column)) for each, column in zip(self._options, columns, strict=True)
        ]
        self._x, self._now, self.steps = self._start.copy(), 0, 0
        self._rubs = bool(self._coulomb.any() or self._viscous.any())
        self._pushes[:] = 0.0
        self._guide = None
        self._brakes: dict[int, float] = {}
        self._still = False
        self.diverged: int | None = None
        self._seen: _Motion | None = None

    def command(self, index: int, torque: float, now: int) -> None:
        """Commands a torque of an actuator's motor [N m]."""
        if now >= self._now + self.step:
            self.advance(now)
        self.actuators[index].command(torque, now)

    def refresh(self, index: int, now: int) -> None:
        """Applies a change of an actuator's properties."""
        self.advance(now)
        self.actuators[index].refresh(now)

    def push(self, index: int, torque: float, now: int) -> None:
        """Adds a torque or force of a hand at the joint of an actuator from now on [actuator unit]."""
        self.advance(now)
        self._pushes[index] += torque
        self._rubs = True  # from now on each step is told what acts on it

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
        seen = self._seen
        if seen is None or seen.now != now:
            seen = self._look(now)
        if seen.motors is None:
            n = self.model.n
            q, v = seen.x[:n], seen.x[n:]
            displacements, rates = self.displacements.motors(q), self.displacements.rates(q, v, self._time(now))
            seen.motors = displacements.tolist(), rates.tolist()
        return seen.motors

    def coordinate_motion(self, now: int) -> tuple[list[float], list[float]]:
        """The coordinates, and their rates."""
        seen = self._seen
        if seen is None or seen.now != now:
            seen = self._look(now)
        if seen.coordinates is None:
            n, values = self.model.n, seen.x.tolist()
            seen.coordinates = values[:n], values[n:]
        return seen.coordinates

    def brake(self, index: int, closed: bool, now: int) -> None:
        """Closes or opens the brake of an actuator at this instant."""
        if closed == (index in self._brakes):
            return
        self.advance(now)
        if self._now < now:
            self._take(now)
        q, v, t = self._x[: self.model.n], self._x[self.model.n :], self._time(now)
        if not closed:
            del self._brakes[index]
        else:
            self._brakes[index] = float(self.displacements.motors(q)[index])
            rows, M = self._rows(q, v, t)
            self._x[self.model.n :] = v - _impulse(rows, M, rows[: len(self._brakes)] @ v)
        self._still = self._nothing_moves()
        if self._still:
            self._x[self.model.n :] = 0.0
        self._seen = None

    @property
    def held(self) -> bool:
        """Whether the closed brakes leave no freedom."""
        return self._still

    def _time(self, now: int) -> float:
        return self._origin + now / SECOND

    def _look(self, now: int) -> "_Motion":
        """q and v now."""
        seen = self._seen
        if seen is None or seen.now != now:
            self.advance(now)
            if self._guide is not None:
                x = np.concatenate(self._guide((now - self._guided_from) / SECOND))
            else:
                x = self._x if now <= self._now or self._still else self._partial(now)
            seen = self._seen = _Motion(now, x)
        return seen

    def _partial(self, now: int) -> Array:
        x = self._advance(self._x, now - self._now, now, self._friction())
        return x if _finite(x) else self._x

    def _take_together(self) -> bool:
        """Takes `TOGETHER` steps in one call; returns False if something needs attention at each step."""
        if self._rubs or self._brakes or self._still or self._closing or self.diverged is not None:
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
        x = self._advance(self._x, then - self._now, then, self._friction())
        self._advance.keep()
        self._now, self._seen = then, None
        if self._still or self.diverged is not None:
            return
        self.steps += 1
        if not _finite(x):
            self.diverged = then
            x = self._x.copy()
            x[self.model.n :] = 0.0
        elif self._brakes:
            x = self._braked(x, self._time(then))
        elif self._closing is not None:
            x = self._closing(self._time(then), x)
        self._x = x

    def _friction(self) -> Array | None:
        """Friction torque at the joints, less what a hand adds; None if there was never any of them."""
        if not self._rubs:
            return None
        n = self.model.n
        rates = self.displacements.rates(self._x[:n], self._x[n:], self._time(self._now))
        lost: Array = friction_loss(rates, self._coulomb, self._viscous, self._friction_speed) - self._pushes
        return lost

    def _rows(self, q: Array, v: Array, t: float) -> tuple[Array, Array]:
        """Rows of closed brakes and of the passive constraints, and the mass matrix."""
        model, state = self.model, State(t, q, v)
        opaque = model.plant_kernel is None or model.n > LARGE
        matrices = model.matrices(state) if opaque else model.compiled_matrices(state)  # NumPy takes six times as long
        return np.vstack([matrices.B.T[list(self._brakes)], matrices.passive.A]), matrices.M

    def _nothing_moves(self) -> bool:
        if not self._brakes:
            return False
        n = self.model.n
        rows, _ = self._rows(self._x[:n], self._x[n:], self._time(self._now))
        return int(np.linalg.matrix_rank(rows, tol=RANK_TOLERANCE * np.linalg.norm(rows))) == n

    def _braked(self, x: Array, t: float) -> Array:
        """x with the closed brakes at rest where they closed; their reaction acts as an impulse of this step.

        Both corrections use the rows at the slipped position; the slip is of the order of the step squared.
        """
        n = self.model.n
        q, v = x[:n], x[n:]
        rows, M = self._rows(q, v, t)
        slip = self.displacements.motors(q)[list(self._brakes)] - list(self._brakes.values())
        change = _impulse(rows, M, np.column_stack([slip, rows[: len(slip)] @ v]))
        return np.concatenate([q - change[:, 0], v - change[:, 1]])


def _finite(x: Array) -> bool:
    return isfinite(sum(x.tolist()))


def _impulse(rows: Array, M: Array, motion: Array) -> Array:
    """Smallest mass-weighted change that gives the first rows the values `motion` and the other rows zero."""
    target = np.zeros((len(rows), *motion.shape[1:]))
    target[: len(motion)] = motion
    L = np.linalg.cholesky(M)
    weighted = np.linalg.solve(L, rows.T).T
    change: Array = np.linalg.solve(L.T, np.linalg.pinv(weighted, rcond=RANK_TOLERANCE) @ target)
    return change
