"""How a law is evaluated tick by tick, with the memory that it integrates in between.

Design: evaluations reuse the same arrays, which C shares; results equal those of `Loop.control` to the bit.
"""

from typing import Any

import numpy as np

from hil.core.compiled import Calls, Struct
from servoctl.laws.law import AttachedLaw
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.estimated import COMMANDS, ELAPSED
from servoctl.types import Array, Status


class Controller:
    """The law of a closed loop, evaluated tick by tick."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop  # the closed loop
        self._slices = loop.layout.slices
        # tick: the law with its arrays
        tick = self.tick = loop.control_tick()
        # looked up once: each attribute or slice of an array costs a tick a tenth of the law's time
        self._time: Any = tick.t.data
        self._q, self._v, self._inputs = tick.q, tick.v, tick.u.copy
        self._evaluate, self._remembers = tick.evaluate, len(loop.memory_start) > 0
        self.commands = 0  # number of commands so far; adding to the loop's own number costs a third of the law's time
        # estimating: whether a part of the memory belongs to an estimator
        law, self.estimating = loop.system.acting, loop.system.estimator is not None
        names, period = loop.memory_names, loop.memory_period
        # [s] time since the last tick, for the estimator, and where the memory has it
        self.elapsed = 0.0 if period is None else period
        self.elapsed_at = names.index(ELAPSED) if self.estimating else 0
        self.row = tick.command  # command part of the last evaluation, in the order of `loop.layout`
        # state that the law integrates (`hil/core/c/tick.c`), shape (memory,)
        self.struct = Struct("law_memory", {"memory": len(loop.memory_start)}, Calls())
        self.memory, self.struct.arrays["start"][:] = self.struct.arrays["values"], loop.memory_start
        self.memory[:], c = loop.memory_start, self.struct.c
        c.count, c.own, c.period = len(self.memory), len(law.memory), np.nan if period is None else period
        c.rate = self.struct.pointer("double", self.row[self._slices["memory_rate"]])
        if loop.system.commands is not None:
            actuators = list(loop.system.model.plant.actuators)
            c.sent_at, c.inputs = names.index(f"{COMMANDS}.sent1.{actuators[0]}"), len(actuators)

    def command(self, task_time: float, q: Array, v: Array) -> Array:
        """Control inputs, shape (m,) [actuator units]; NaN if the law has none, which its status then says.

        Args:
            task_time: Time since the start of the task [s].
            q: Coordinates, shape (n,).
            v: Velocities, shape (n,).
        """
        if self._remembers:
            self.tick.memory[:] = self.memory
            if self.estimating:
                self.tick.memory[self.elapsed_at] = self.elapsed
        self._time[0] = task_time
        self._q[...] = q
        self._v[...] = v
        self._evaluate()
        self.commands += 1
        return self._inputs()

    @property
    def direct(self) -> bool:
        """Whether the law's torques are the command, so that the tick in C may evaluate the law."""
        return True

    def evaluated(self, count: int = 1) -> Array:
        """Takes note of commands that were evaluated on these arrays, by the tick in C too; returns the last inputs."""
        self.commands += count
        return self._inputs()

    def take_law(self, law: AttachedLaw) -> None:
        """Continues with another law that differs in its parameters only; the memory stays."""
        self.loop.take_law(law)
        self.tick.parameters[:] = self.loop.parameters

    def nothing(self, q: Array, v: Array) -> Array:
        """The command if the state is unknown: NaN, with the status NON_FINITE; arguments as of `command`."""
        self._q[...] = q
        self._v[...] = v
        self.row.fill(np.nan)
        self.row[self._slices["status"]] = Status.NON_FINITE.code
        self.row[self._slices["rank"]] = 0
        return self._inputs()

    def remember(self, elapsed: float) -> None:
        """Integrates the law's memory over the time that has really passed [s], with the rate of the last command.

        A memory that changes once per period does so, however much time has passed.
        """
        self.struct.functions.memory_integrate(self.struct.c, elapsed)

    def sent(self, torques: Array, moves: bool = True) -> None:
        """Takes the commands under way, and an estimator, to the next tick.

        Args:
            torques: What the drives got, shape (m,) [actuator units].
            moves: Whether torques move the machine; if not, both start again at the next tick.
        """
        sent = np.ascontiguousarray(torques, dtype=float)
        self.struct.functions.memory_take(self.struct.c, self.struct.ffi.from_buffer("double[]", sent), moves)

    @property
    def status(self) -> int:
        """`Status.code` of the last command."""
        return int(self.row[self._slices["status"]][0])

    def reason(self, task_time: float) -> str:
        """Why the last command, at this task time [s], has its status."""
        return "; ".join(self.loop.system.beyond(task_time)) or Status.from_code(self.status).value
