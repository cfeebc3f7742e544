"""A rig that is computed: the plant answers the held inputs, step by step."""

import numpy as np

from hil.loop.clock import SECOND, Clock
from hil.loop.rig import Reading, Rig
from servoctl.simulation.closed_loop import Loop
from servoctl.types import Array, State


class SimulatedRig(Rig):
    """A plant under held inputs, by the classical Runge-Kutta method.

    Attributes:
        x: q, v and the law's memory, which the law itself integrates.
    """

    def __init__(self, loop: Loop, start: State, clock: Clock, step: float) -> None:
        """Takes a plant.

        Args:
            loop: Whose plant it is.
            start: Where it is at the clock's time.
            clock: The run's; the plant is computed up to its time whenever it is read.
            step: Of integration [s]; the time between two reads is divided into whole steps no longer than this.
        """
        self._loop, self._clock, self._step, self._now = loop, clock, step, clock.now()
        self.x = np.concatenate([start.q, start.v, loop.memory_start])
        self._command = np.zeros(loop.layout.command_size)

    def start(self, deadline: int) -> None:
        pass

    def read(self, deadline: int) -> Reading:
        n, then, now = self._loop.system.model.n, self._now, self._clock.now()
        if now > then:
            h = (now - then) / SECOND
            substeps = max(1, round(h / self._step))
            self.x = self._loop.after_hold(then / SECOND, self.x, self._command, h, substeps)
            self._now = now
        return Reading(self.x[:n], self.x[n : 2 * n], np.zeros(0))

    def write(self, command: Array) -> None:
        self._command = self._command.copy()
        self._command[self._loop.layout.slices["u"]] = command

    def stop(self) -> None:
        self.write(np.zeros(len(self._loop.system.model.plant.actuators)))
