"""A period of a realistic run: measure, command, and integrate from one arrival of a command to the next.

Design: the meaning of every part stands in `closed_loop.realism`; here they are put in order, on any engine that
evaluates the loop. Integration restarts wherever a command begins to act, so a delay costs no order of accuracy.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from servoctl.simulation.adaptive import Watched
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.hold import hold
from servoctl.simulation.implicit import jacobian_of
from servoctl.simulation.noise import tick_noise
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

BLOCK = 1024
"""Ticks whose random numbers are made at once."""


class Ticks:
    """The random numbers of a run, tick by tick."""

    def __init__(self, loop: Loop, start: float, seed: int) -> None:
        """Takes a realistic loop, the time of tick 0 [s] and the seed of the run."""
        assert loop.system.realism is not None
        self._realism, self._n = loop.system.realism, loop.system.model.n
        self._start, self._seed = start, seed
        self._first, self._block = 0, np.zeros((0, self._realism.width))

    def number(self, t: float) -> int:
        """The tick at a time."""
        return round((t - self._start) / self._realism.period)

    def several(self, first: int, count: int) -> Array:
        """Of ticks from `first` on, shape (count, width)."""
        if not self._realism.random:
            return np.zeros((count, 0))
        return tick_noise(self._seed, first, count, self._n)

    def at(self, t: float) -> Array:
        """Of the tick at a time, shape (width,)."""
        k = self.number(t)
        if not self._first <= k < self._first + len(self._block):
            self._first, self._block = k, self.several(k, BLOCK)
        row: Array = self._block[k - self._first]
        return row


class Period:
    """One period of a realistic run: (t, x, h) -> x after h, row at t.

    Attributes:
        ticks: The random numbers of the run.
        at: Time and finite state at which the rates were last not finite.
    """

    def __init__(self, loop: Loop, integrator: Integrator, substeps: int, ticks: Ticks) -> None:
        """Takes a realistic loop.

        Args:
            loop: The law's; its `simulated` one is the plant's.
            integrator: How to step.
            substeps: Steps of rk4 in a period; 0: an adaptive method.
            ticks: The random numbers of the run.
        """
        assert loop.system.realism is not None
        self._loop, self._plant, self._realism = loop, loop.simulated(), loop.system.realism
        self._integrator, self._substeps, self.ticks = integrator, substeps, ticks
        self.at: tuple[float, Array] | None = None
        self._u = loop.layout.slices["u"]

    def __call__(self, t: float, x: Array, h: float) -> tuple[Array, Array]:
        """x after h, and the row at t."""
        body, torque, sent, command = self._measured(t, x)
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
                    body, torque = self._advance(t + begin, body, torque, end - begin, u, command)
        self._count()
        return np.concatenate([body, torque, sent[: self._realism.latest].ravel()]), row

    def row(self, t: float, x: Array) -> Array:
        """The row at t alone."""
        body, torque, sent, command = self._measured(t, x)
        row = self._look(t, body, torque, self._realism.stretches(sent, self._realism.period), command)[1]
        self._count()
        return row

    def _measured(self, t: float, x: Array) -> tuple[Array, Array, Array, Array]:
        """What is integrated, the torque that lags, the commands on their way, and what the law commands at t."""
        realism, size, n = self._realism, self._loop.size, self._loop.system.model.n
        body, carried, w = x[:size], x[size:], self.ticks.at(t)
        seen = np.concatenate([realism.measured(body[: 2 * n], w), body[2 * n :]])
        command = self._loop.control(t, seen)
        return body, carried[: len(realism.lag) * realism.lagged], realism.sent(carried, command[self._u], w), command

    def _look(
        self, t: float, body: Array, torque: Array, stretches: list[tuple[float, float, Array]], command: Array
    ) -> tuple[Array, Array]:
        """x' and the row at t, where u is what acts then."""
        acting = torque if self._realism.lagged else [u for begin, _, u in stretches if begin <= 0.0][-1]
        first = self._held(command, acting)
        rates, log = self._plant.motion(t, body, first)
        return rates, np.concatenate([first, log])

    def _held(self, command: Array, u: Array) -> Array:
        command = command.copy()
        command[self._u] = u
        return command

    def _advance(self, t: float, body: Array, torque: Array, h: float, u: Array, command: Array) -> tuple[Array, Array]:
        """State and torque after h, while the command u stands."""
        plant, lagged = self._plant, self._realism.lagged

        def given(s: float, y: Array) -> Array:
            acting = self._realism.lagging(torque, u, s - t) if lagged else u
            return plant.held_derivative(s, y, self._held(command, acting))

        rates = Watched(given)
        body = hold(rates, t, body, h, self._integrator, min(1, self._substeps), self._jacobian(given, u, command))
        self.at = rates.at or self.at
        return body, self._realism.lagging(torque, u, h) if lagged else torque

    def _jacobian(
        self, rates: Callable[[float, Array], Array], u: Array, command: Array
    ) -> Callable[[float, Array], Array] | None:
        """Of x' under the command u; torques that lag change with time alone, so it stands for what they become."""
        return jacobian_of(self._plant, rates, self._integrator, self._held(command, u))

    def _count(self) -> None:
        if self._plant is not self._loop:
            self._loop.evaluations += self._plant.evaluations
            self._plant.evaluations = 0
