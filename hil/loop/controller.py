"""A law on ticks: what it remembers between them, and the time of its task.

Design: it evaluates on arrays that stay, so that a tick on drives takes the quickest way there is to the law; the
result is that of `Loop.control`, to the bit.
"""

import numpy as np

from servoctl.laws.law import BoundLaw
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array, Status


class Controller:
    """A closed loop's law, evaluated tick by tick.

    Attributes:
        loop: Whose law it is.
        memory: What the law integrates, shape (memory,).
        row: The command part of the last evaluation, laid out as `loop.layout` says; overwritten by the next.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._slices = loop.layout.slices
        self._tick = loop.control_tick()
        self._remembers = len(loop.memory_start) > 0
        self._uncounted = 1 if isinstance(loop, CompiledLoop) else 0  # any other loop counts its evaluations itself
        self.memory = loop.memory_start.copy()
        self.row = np.full(loop.layout.command_size, np.nan)

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        """The law's inputs, shape (m,) [actuator units]; NaN where its status says that there are none.

        Args:
            task_time: Time of the task [s].
            q: Coordinates, shape (n,).
            v: Velocities, shape (n,).
        """
        tick = self._tick
        tick.t[0], tick.q[:], tick.v[:] = task_time, q, v
        if self._remembers:
            tick.memory[:] = self.memory
        tick.evaluate()
        self.loop.evaluations += self._uncounted
        self.row = tick.command
        return tick.u.copy()

    def take_law(self, law: BoundLaw) -> None:
        """Goes on with this law, which differs in parameters alone; the memory stays."""
        self.loop.take_law(law)
        if isinstance(self.loop, CompiledLoop):
            self._tick.parameters[:] = self.loop.parameters

    def nothing(self) -> Array:
        """The command where there is no state to command from: NaN, with the status that says so."""
        self.row = np.full(self.loop.layout.command_size, np.nan)
        self.row[self._slices["status"]] = Status.NON_FINITE.code
        self.row[self._slices["rank"]] = 0
        inputs: Array = self.row[self._slices["u"]]
        return inputs

    @property
    def recalled(self) -> Array:
        """The memory that the last command was made of, shape (memory,)."""
        return self._tick.memory

    def remember(self, elapsed: float) -> None:
        """Moves the memory on by the time that has really gone by [s], at the last command's rate."""
        if len(self.memory):
            self.memory = self.memory + elapsed * self.row[self._slices["memory_rate"]]

    @property
    def status(self) -> int:
        """`Status.code` of the last command."""
        return int(self.row[self._slices["status"]][0])
