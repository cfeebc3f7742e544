"""The law in a loop in real time: write the state, call, read the command.

Design: arrays that stay, so that a tick allocates, copies and checks nothing. It never raises; its status says what
happened.
"""

from typing import TYPE_CHECKING

import numpy as np

from servoctl.engine.kernel import Kernel, Tick
from servoctl.types import Array

if TYPE_CHECKING:
    from servoctl.closed_loop.traced import CompiledLoop


class ControlTick:
    """One evaluation of the law; `CompiledLoop.tick` makes it.

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
        parameters: Of plant, law and stabilisation, as the loop has them; gains may be changed in place.
        command: All that the law says, in the order of the loop's layout; what follows are parts of it.
        u: Control inputs in actuator units, shape (m,).
        rank: Rank of the task, shape (1,).
        residual: What of the task is out of reach, largest row, shape (1,).
        pivot_min: Smallest pivot that counted, shape (1,).
        status: `Status.code`, shape (1,).
        memory_rate: Time derivative of the memory.
    """

    def __init__(self, loop: "CompiledLoop", control: Kernel) -> None:
        """Takes a loop, and its function (t, x, p) -> command on the engine that serves."""
        tick = Tick(control)
        given, n = tick.inputs, loop.system.model.n
        self.t, self.parameters = given["t"], given["p"]
        self.q, self.v, self.memory = given["x"][:n], given["x"][n : 2 * n], given["x"][2 * n :]
        self.memory[:], self.parameters[:] = loop.memory_start, loop.parameters
        self.command: Array = tick.outputs["command"]
        parts = {name: self.command[place] for name, place in loop.layout.slices.items() if name in loop.layout.command}
        self.u, self.rank, self.residual = parts["u"], parts["rank"], parts["residual"]
        self.pivot_min, self.status, self.memory_rate = parts["pivot_min"], parts["status"], parts["memory_rate"]
        self.command.fill(np.nan)
        self.evaluate = tick.evaluate

    def __call__(self) -> None:
        """Evaluates the law."""
        self.evaluate()
