"""The law in a loop in real time: write the state, call, read the command.

Design: all arrays are made once, so that a tick allocates, copies and checks nothing. A tick never raises; its status
says what happened.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from servoctl.engine.ccode import Entry
from servoctl.simulation.layout import Layout
from servoctl.types import Array


class ControlTick:
    """One evaluation of the law; made by `Loop.tick`, or by `Loop.control_tick` on the engine of that loop.

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
        memory: State of the law; at first where the law starts.
        parameters: Parameters of plant, law and stabilisation; gains may be changed in place. Empty on an engine
            without such a vector.
        command: The command part of a row, as `Layout` orders it; the following are parts of it.
        u: Control inputs in actuator units, shape (m,).
        rank: Rank of the task, shape (1,).
        residual: Largest part of a task row that no input reaches, shape (1,).
        pivot_min: Smallest pivot that counted, shape (1,).
        status: `Status.code`, shape (1,).
        memory_rate: Time derivative of the memory.
    """

    def __init__(
        self,
        layout: Layout,
        memory_start: Array,
        t: Array,
        x: Array,
        parameters: Array,
        command: Array,
        evaluate: Callable[[], object],
    ) -> None:
        """Connects the arrays.

        Args:
            layout: Layout of the loop's rows.
            memory_start: Initial state of the law.
            t: Time, shape (1,).
            x: q, v and memory.
            parameters: Parameters of the evaluation.
            command: Output of the evaluation.
            evaluate: Computes the command from the other arrays.
        """
        n = (len(x) - len(memory_start)) // 2
        self.t, self.parameters, self.command, self.evaluate = t, parameters, command, evaluate
        self.q, self.v, self.memory = x[:n], x[n : 2 * n], x[2 * n :]
        self.memory[:] = memory_start
        parts = {name: command[layout.slices[name]] for name in layout.command}
        self.u, self.rank, self.residual = parts["u"], parts["rank"], parts["residual"]
        self.pivot_min, self.status, self.memory_rate = parts["pivot_min"], parts["status"], parts["memory_rate"]
        self.command.fill(np.nan)

    def __call__(self) -> None:
        """Evaluates the law."""
        self.evaluate()


class LogCall(NamedTuple):
    """The log part of a row in a loop in real time, on fixed arrays."""

    evaluate: Callable[[float], None]  # [s] writes it at a time
    # addresses of the call (time, state, parameters, command) for other C code, which sets its arguments itself; None:
    # it does not run in C
    entry: Entry | None = None
    parameters: int = 0  # length of its parameters
