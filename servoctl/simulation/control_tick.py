"""The law in a loop in real time: write the state, call, read the command.

Design: arrays that stay, so that a tick allocates, copies and checks nothing. It never raises; its status says what
happened.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from servoctl.engine.kernel import BufferedCall, Kernel
from servoctl.types import Array

if TYPE_CHECKING:
    from servoctl.simulation.closed_loop import Loop
    from servoctl.simulation.traced import CompiledLoop


class ControlTick:
    """One evaluation of the law; `CompiledLoop.tick` makes it, and `Loop.control_tick` on the engine that a loop has.

    Every array is a view that stays the same: write and read it in place, and copy what must outlive the next call.
    Not thread-safe: one per thread.

        tick = loop.tick()
        while True:
            tick.t[0], tick.q[:], tick.v[:] = clock, positions, velocities
            tick()
            if tick.status[0] == Status.OK.code: drives.write(tick.u)

    Attributes:
        t: Time [s], shape (1,).
        q: Generalized coordinates, shape (n,).
        v: Their time derivatives, shape (n,).
        memory: Of the law; starts where the law starts.
        parameters: Of plant, law and stabilisation, as the loop has them; gains may be changed in place. None of an
            engine that has no vector of them.
        command: All that the law says, in the order of the loop's layout; what follows are parts of it.
        u: Control inputs in actuator units, shape (m,).
        rank: Rank of the task, shape (1,).
        residual: What of the task is out of reach, largest row, shape (1,).
        pivot_min: Smallest pivot that counted, shape (1,).
        status: `Status.code`, shape (1,).
        memory_rate: Time derivative of the memory.
    """

    def __init__(
        self, loop: "Loop", t: Array, x: Array, parameters: Array, command: Array, evaluate: Callable[[], object]
    ) -> None:
        """Takes a loop, the arrays that an evaluation reads and writes, and the evaluation; `on_kernel` makes them."""
        n = loop.system.model.n
        self.t, self.parameters, self.command, self.evaluate = t, parameters, command, evaluate
        self.q, self.v, self.memory = x[:n], x[n : 2 * n], x[2 * n :]
        self.memory[:] = loop.memory_start
        parts = {name: command[place] for name, place in loop.layout.slices.items() if name in loop.layout.command}
        self.u, self.rank, self.residual = parts["u"], parts["rank"], parts["residual"]
        self.pivot_min, self.status, self.memory_rate = parts["pivot_min"], parts["status"], parts["memory_rate"]
        self.command.fill(np.nan)

    @classmethod
    def on_kernel(cls, loop: "CompiledLoop", control: Kernel) -> "ControlTick":
        """On a compiled function (t, x, p) -> command, on the engine that it has now."""
        tick = BufferedCall(control)
        given = tick.inputs
        given["p"][:] = loop.parameters
        return cls(loop, given["t"], given["x"], given["p"], tick.outputs["command"], tick.evaluate)

    @classmethod
    def as_written(cls, loop: "Loop") -> "ControlTick":
        """By `Loop.control`, for engines that have no such function."""
        t, x, command = np.zeros(1), np.zeros(loop.size), np.zeros(loop.layout.command_size)

        def evaluate() -> None:
            command[:] = loop.control(float(t[0]), x)

        return cls(loop, t, x, np.zeros(0), command, evaluate)

    def __call__(self) -> None:
        """Evaluates the law."""
        self.evaluate()
