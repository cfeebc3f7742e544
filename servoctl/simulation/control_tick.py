"""The law in a loop in real time: write the state, call, read the command.

Design: all arrays are made once, so that a tick allocates, copies and checks nothing. A tick never raises; its status
says what happened.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from servoctl.engine.ccode import BoundCall
from servoctl.engine.kernel import BufferedCall
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.model import Model
from servoctl.run_folder.trajectory import SEARCH
from servoctl.types import Array


class Layout:
    """The slices of a row: first the command, then what else is logged.

    Args:
        law: What makes the inputs.
        estimate: Parts of an estimator, each with a number per coordinate.
        memory: Names of the states in the loop's memory.
    """

    def __init__(self, model: Model, law: AttachedLaw, estimate: Sequence[str], memory: Sequence[str]) -> None:
        coordinates, actuators, one = list(model.plant.coordinates), list(model.plant.actuators), [""]
        task, passive = [row.name for row in model.task_rows], [row.name for row in model.passive_rows]
        bounds = list(law.bounded)
        command = {"u": actuators, "rank": one, "residual": one, "pivot_min": one, "status": one}
        command |= {"given_up": [task[i] for i in law.relaxed_rows]}
        command |= {"bound_active": bounds, "bound_lack": bounds}
        command |= {"search": list(SEARCH) if law.searches else []}
        command |= {"disturbance": list(law.observed)}
        command |= dict.fromkeys(estimate, coordinates) | {"memory_rate": list(memory)}
        log = {"violation": task, "violation_rate": task, "passive": passive, "passive_rank": one[: len(passive)]}
        log |= {"passive_force": coordinates, "servo_force": coordinates, "bound": bounds}
        self.names = command | log  # part of a row -> names of its members
        self.slices: dict[str, slice] = {}  # part -> slice of the row
        self.size = 0  # length of a row
        for part, names in self.names.items():
            self.slices[part] = slice(self.size, self.size + len(names))
            self.size += len(names)
        self.command_size = self.slices["violation"].start  # length of its command part


class ControlTick:
    """One evaluation of the law; made by `Loop.control_tick`.

    Every array is a view that stays the same: write and read it in place, and copy what must outlive the next call.
    Not thread-safe: one per thread.

        tick = loop.control_tick()
        while True:
            tick.t[0], tick.q[:], tick.v[:] = clock, positions, velocities
            tick()
            if tick.status[0] == Status.OK.code: drives.write(tick.u)
    """

    def __init__(self, layout: Layout, memory_start: Array, buffers: BufferedCall) -> None:
        """Names the parts of the buffers.

        Args:
            layout: Layout of the loop's rows.
            memory_start: Initial state of the law.
            buffers: Of the function (t, x, p) -> command.
        """
        # t: time [s], shape (1,)
        # parameters: parameters of plant, law and stabilisation; gains may be changed in place
        # command: the command part of a row, as `Layout` orders it; the following are parts of it
        self.t, x, self.parameters = (buffers.inputs[name] for name in ("t", "x", "p"))
        self.command = command = buffers.outputs["command"]
        self.call, self.evaluate = buffers.bound, buffers.evaluate
        n = (len(x) - len(memory_start)) // 2
        # q: generalized coordinates, shape (n,)
        # v: their time derivatives, shape (n,)
        # memory: state of the law; at first where the law starts
        self.q, self.v, self.memory = x[:n], x[n : 2 * n], x[2 * n :]
        self.memory[:] = memory_start
        # u: control inputs in actuator units, shape (m,)
        # status: `Status.code`, shape (1,)
        self.u, self.status = (command[layout.slices[part]] for part in ("u", "status"))
        self.command.fill(np.nan)

    def __call__(self) -> None:
        """Evaluates the law."""
        self.evaluate()


class LogCall(NamedTuple):
    """The log part of a row in a loop in real time, on fixed arrays."""

    evaluate: Callable[[float], None]  # [s] writes it at a time
    call: BoundCall  # the call (time, state, parameters, command) for C code, which sets its arguments itself
    parameters: int  # length of its parameters
