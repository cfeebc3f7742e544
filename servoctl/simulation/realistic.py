"""One period of a realistic run: measure, command, integrate from the arrival of one command to the next.

Design: `realism` models each effect; this module applies them in order, on any engine. Integration restarts wherever a
command begins to act, so a delay does not lower the order of accuracy.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from servoctl.simulation.adaptive import Watched, hold, jacobian_of
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.realism import tick_noise
from servoctl.simulation.settings import Integrator
from servoctl.types import Array

BLOCK = 1024  # number of ticks whose random numbers are made at once


class TickNoise:
    """The random numbers of a run, tick by tick.

    Args:
        loop: A realistic loop.
        start: Time of tick 0 [s].
        seed: Seed of the run.
    """

    def __init__(self, loop: Loop, start: float, seed: int) -> None:
        assert loop.system.realism is not None
        self._realism, self._n = loop.system.realism, loop.system.model.n
        self._start, self._seed = start, seed
        self._first, self._block = 0, np.zeros((0, self._realism.width))

    def number(self, t: float) -> int:
        """Number of the tick at a time."""
        return round((t - self._start) / self._realism.timing.h)

    def several(self, first: int, count: int) -> Array:
        """Random numbers of `count` ticks from `first` on, shape (count, width)."""
        if not self._realism.random:
            return np.zeros((count, 0))
        return tick_noise(self._seed, first, count, self._n)

    def at(self, t: float) -> Array:
        """Random numbers of the tick at a time, shape (width,)."""
        k = self.number(t)
        if not self._first <= k < self._first + len(self._block):
            self._first, self._block = k, self.several(k, BLOCK)
        row: Array = self._block[k - self._first]
        return row


class Period:
    """One period of a realistic run: (t, x, h) -> x after h, row at t."""

    def __init__(self, loop: Loop, integrator: Integrator, substeps: int, ticks: TickNoise) -> None:
        """Prepares the period.

        Args:
            loop: A realistic loop, with the law's parameters; `loop.simulated()` has those of the simulated plant.
            substeps: Steps of rk4 in a period; 0: an adaptive method.
            ticks: The random numbers of the run.
        """
        assert loop.system.realism is not None
        self._loop, self._plant, self._realism = loop, loop.simulated(), loop.system.realism
        # ticks: the random numbers of the run
        self._integrator, self._substeps, self.ticks = integrator, substeps, ticks
        self._timing = self._realism.timing
        self.at: tuple[float, Array] | None = None  # time and finite state at which the rates were last not finite
        self._u, self._machine = loop.layout.slices["u"], loop.system.machine

    def __call__(self, t: float, x: Array, h: float) -> tuple[Array, Array]:
        """Returns x after h, and the row at t."""
        body, torque, sent, command = self._measured(t, x)
        rest = x[self._loop.size + self._realism.carried :]
        stretches = self._realism.stretches(sent, h)
        rates, row = self._look(t, body, torque, stretches, command)
        if not np.isfinite(rates).all():
            self.at = t, body
            return np.full(len(x), np.nan), row
        edges = [h * i / max(self._substeps, 1) for i in range(max(self._substeps, 1))] + [h]
        for left, right in pairwise(edges):
            for begin, end, u in stretches:
                begin, end = max(begin, left), min(end, right)
                if end > begin:
                    body, torque, rest = self._advance(t + begin, body, torque, rest, end - begin, u, command)
        self._count()
        return np.concatenate([body, torque, sent[: self._timing.latest].ravel(), rest]), row

    def row(self, t: float, x: Array) -> Array:
        """Only the row at t."""
        body, torque, sent, command = self._measured(t, x)
        row = self._look(t, body, torque, self._realism.stretches(sent, self._timing.h), command)[1]
        self._count()
        return row

    def _measured(self, t: float, x: Array) -> tuple[Array, Array, Array, Array]:
        """Integrated state, lagging torque, commands on their way, and the law's command at t."""
        realism, size, n = self._realism, self._loop.size, self._loop.system.model.n
        body, carried, w = x[:size], x[size : size + realism.carried], self.ticks.at(t)
        measured = np.concatenate([realism.measured(body[: 2 * n], w), body[2 * n :]])
        command = self._loop.control(t, measured)
        torque = carried[: len(self._timing.lag) * self._timing.lagging]
        return body, torque, realism.sent(carried, command[self._u], w), command

    def _look(
        self, t: float, body: Array, torque: Array, stretches: list[tuple[float, float, Array]], command: Array
    ) -> tuple[Array, Array]:
        """x' and the row at t; its u is the torque that acts then."""
        acting = [u for begin, _, u in stretches if begin <= 0.0][-1]
        if self._timing.lagging:
            acting = np.where(np.array(self._timing.lag) > 0.0, torque, acting)
        first = self._held(command, acting)
        rates, log = self._plant.motion(t, body, first)
        return rates, np.concatenate([first, log])

    def _held(self, command: Array, u: Array) -> Array:
        command = command.copy()
        command[self._u] = u
        return command

    def _advance(
        self, t: float, body: Array, torque: Array, rest: Array, h: float, u: Array, command: Array
    ) -> tuple[Array, Array, Array]:
        """State, torque and the machine's own state after h under the command u."""
        plant, lagged = self._plant, self._timing.lagging
        later = self._realism.lagging(torque, u, h) if lagged else torque
        if self._machine is not None:
            n = 2 * self._loop.system.model.n
            moved, rest = self._machine.after(t, body[:n], rest, self._realism.mean(torque, u, h) if lagged else u, h)
            return np.concatenate([moved, body[n:] + h * command[self._loop.layout.slices["memory_rate"]]]), later, rest

        def acting_rates(s: float, y: Array) -> Array:
            acting = self._realism.lagging(torque, u, s - t) if lagged else u
            return plant.held_derivative(s, y, self._held(command, acting))

        rates = Watched(acting_rates)
        body = hold(
            rates, t, body, h, self._integrator, min(1, self._substeps), self._jacobian(acting_rates, u, command)
        )
        self.at = rates.at or self.at
        return body, later, rest

    def _jacobian(
        self, rates: Callable[[float, Array], Array], u: Array, command: Array
    ) -> Callable[[float, Array], Array] | None:
        """Jacobian of x' under the command u; lagging torques depend on time alone, so they add nothing to it."""
        return jacobian_of(self._plant, rates, self._integrator, self._held(command, u))

    def _count(self) -> None:
        if self._plant is not self._loop:
            self._loop.evaluations += self._plant.evaluations
            self._plant.evaluations = 0
