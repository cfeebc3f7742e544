"""One step of a run in Python: a Runge-Kutta step, or the hold of a sampled law, ideal or with realism.

Design: `realism` models each effect; a `Period` applies them in order, on any engine: measure, command, integrate from
the arrival of one command to the next. Integration restarts wherever a command begins to act, so a delay does not lower
the order of accuracy.
"""

from itertools import pairwise

import numpy as np

from servoctl.engine.step import rk4_steps
from servoctl.simulation.adaptive import Watched, hold, jacobian_of
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.realism import tick_noise
from servoctl.simulation.settings import Integrator, Settings
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


def step_of(loop: Loop, settings: Settings, start: float) -> "Step":
    """The step of a run that starts at a time [s]."""
    substeps = settings.substeps
    if substeps is None:
        return Step(loop, None)
    if loop.system.realism is not None:
        return Period(loop, settings.integrator, substeps, TickNoise(loop, start, settings.seed))
    return Step(loop, substeps) if substeps else AdaptiveHold(loop, settings.integrator)


class Step:
    """The step by the classical Runge-Kutta method: (t, x, h) -> x after h, row at t.

    Args:
        substeps: None: the law acts continuously; else h is one hold of so many steps, 0 for an adaptive method.
    """

    ticks: TickNoise | None = None  # the random numbers of a realistic run

    def __init__(self, loop: Loop, substeps: int | None) -> None:
        self._loop, self.substeps = loop, substeps
        self.evaluations = 4 if substeps is None else 4 * substeps + 2  # of plant and law in a step

    def __call__(self, t: float, x: Array, h: float) -> tuple[Array, Array]:
        """Returns x after h, and the row at t."""
        self._loop.evaluations += self.evaluations
        following, row = self._loop.stepper(self.substeps)(x, t, h, self._loop.parameters)
        return following, row

    def row(self, t: float, x: Array) -> Array:
        """Only the row at t."""
        return self._loop.rates(t, x)[1]

    def culprit(self, t: float, x: Array, h: float) -> tuple[float, Array] | None:
        """Time and state inside a step at which the rates are not finite; None if they are finite at every stage."""
        loop, substeps = self._loop, self.substeps
        command = None if substeps is None else loop.control(t, x)
        rates = Watched(lambda s, y: loop.rates(s, y)[0] if command is None else loop.motion(s, y, command)[0])
        rk4_steps(rates, t, x, h, 1 if substeps is None else substeps or 10)
        return rates.at


class AdaptiveHold(Step):
    """A hold of a sampled law by an adaptive method."""

    def __init__(self, loop: Loop, integrator: Integrator) -> None:
        super().__init__(loop, 0)
        self._integrator = integrator

    def __call__(self, t: float, x: Array, h: float) -> tuple[Array, Array]:
        loop = self._loop
        command = loop.control(t, x)
        first, log = loop.motion(t, x, command)
        row = np.concatenate([command, log])
        if not np.isfinite(first).all():
            return np.full(len(x), np.nan), row

        def rates(s: float, y: Array) -> Array:
            # not `derivative`: in C its rounding differs, and results stay as they were
            return loop.motion(s, y, command)[0]

        return hold(rates, t, x, h, self._integrator, 0, jacobian_of(loop, rates, self._integrator, command)), row


class Period(Step):
    """One period of a realistic run."""

    def __init__(self, loop: Loop, integrator: Integrator, substeps: int, ticks: TickNoise) -> None:
        """Prepares the period.

        Args:
            loop: A realistic loop, with the law's parameters; `loop.simulated()` has those of the simulated plant.
        """
        super().__init__(loop, substeps)
        assert loop.system.realism is not None
        self._plant, self._realism = loop.simulated(), loop.system.realism
        self._integrator, self._timing = integrator, self._realism.timing
        self.ticks = self._ticks = ticks
        self._at: tuple[float, Array] | None = None  # time and finite state at which the rates were last not finite
        self._u, self._machine = loop.layout.slices["u"], loop.system.machine

    def __call__(self, t: float, x: Array, h: float) -> tuple[Array, Array]:
        body, torque, sent, command = self._measured(t, x)
        rest = x[self._loop.size + self._realism.carried :]
        stretches = self._realism.stretches(sent, h)
        rates, row = self._look(t, body, torque, stretches, command)
        if not np.isfinite(rates).all():
            self._at = t, body
            return np.full(len(x), np.nan), row
        count = self.substeps or 1
        edges = [h * i / count for i in range(count)] + [h]
        for left, right in pairwise(edges):
            for begin, end, u in stretches:
                begin, end = max(begin, left), min(end, right)
                if end > begin:
                    body, torque, rest = self._advance(t + begin, body, torque, rest, end - begin, u, command)
        self._count()
        return np.concatenate([body, torque, sent[: self._timing.latest].ravel(), rest]), row

    def row(self, t: float, x: Array) -> Array:
        body, torque, sent, command = self._measured(t, x)
        row = self._look(t, body, torque, self._realism.stretches(sent, self._timing.h), command)[1]
        self._count()
        return row

    def culprit(self, t: float, x: Array, h: float) -> tuple[float, Array] | None:
        return self._at

    def _measured(self, t: float, x: Array) -> tuple[Array, Array, Array, Array]:
        """Integrated state, lagging torque, commands on their way, and the law's command at t."""
        realism, size, n = self._realism, self._loop.size, self._loop.system.model.n
        body, carried, w = x[:size], x[size : size + realism.carried], self._ticks.at(t)
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
            if lagged and self.substeps and abs(s - t - h / 2) < h / 4:  # so that the rule of Simpson gives the mean
                acting = (6 * self._realism.mean(torque, u, h) - self._realism.lagging(torque, u, 0.0) - later) / 4
            return plant.derivative(s, y, self._held(command, acting))

        rates = Watched(acting_rates)
        # lagging torques depend on time alone, so they add nothing to the Jacobian
        jacobian = jacobian_of(plant, acting_rates, self._integrator, self._held(command, u))
        body = hold(rates, t, body, h, self._integrator, min(1, self.substeps or 0), jacobian)
        self._at = rates.at or self._at
        return body, later, rest

    def _count(self) -> None:
        if self._plant is not self._loop:
            self._loop.evaluations += self._plant.evaluations
            self._plant.evaluations = 0
