"""The law in a loop in real time: write the state, call, read the command.

Design: all arrays are made once, so that a tick allocates, copies and checks nothing. A tick never raises; its status
says what happened.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from servoctl.engine.ccode import Entry
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.model import Model
from servoctl.types import Array


class Layout:
    """The slices of a row: first the command, then what else is logged.

    Args:
        law: The law; None: an open loop.
        estimate: Part -> size, of an estimator; None: there is none.
        size: Length of the loop's memory; None: that of the law.
    """

    def __init__(
        self, model: Model, law: AttachedLaw | None, estimate: Mapping[str, int] | None = None, size: int | None = None
    ) -> None:
        n, m, r, p = model.n, model.m, len(model.task_rows), len(model.passive_rows)
        command = {"u": m, "rank": 1, "residual": 1, "pivot_min": 1, "status": 1}
        relaxed_rows, observed, memory = ((), (), {}) if law is None else (law.relaxed_rows, law.observed, law.memory)
        bounds = 0 if law is None else len(law.bounded)
        command |= {"given_up": len(relaxed_rows), "bound_active": bounds, "bound_lack": bounds}
        command |= {"search": 2 if law is not None and law.searches else 0, "disturbance": len(observed)}
        command |= dict(estimate or {}) | {"memory_rate": len(memory) if size is None else size}
        log = {
            "violation": r,
            "violation_rate": r,
            "passive": p,
            "passive_rank": min(p, 1),
            "passive_force": n,
            "servo_force": n,
            "bound": bounds,
        }
        self._place(command, log)

    def _place(self, command: dict[str, int], log: dict[str, int]) -> None:
        """Puts the parts one after the other: name -> size."""
        # command: name -> size, of the command part
        # log: name -> size, of the rest
        self.command, self.log = command, log
        self.slices: dict[str, slice] = {}  # name -> slice of the row
        position = 0
        for name, size in {**command, **log}.items():
            self.slices[name] = slice(position, position + size)
            position += size
        self.size = position  # length of a row
        self.command_size = sum(command.values())  # length of its command part


class ControlTick:
    """One evaluation of the law; made by `Loop.tick`, or by `Loop.control_tick` on the engine of that loop.

    Every array is a view that stays the same: write and read it in place, and copy what must outlive the next call.
    Not thread-safe: one per thread.

        tick = loop.tick()
        while True:
            tick.t[0], tick.q[:], tick.v[:] = clock, positions, velocities
            tick()
            if tick.status[0] == Status.OK.code: drives.write(tick.u)
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
            parameters: Parameters of the evaluation.
            command: Output of the evaluation.
            evaluate: Computes the command from the other arrays.
        """
        n = (len(x) - len(memory_start)) // 2
        # t: time [s], shape (1,)
        # parameters: parameters of plant, law and stabilisation; gains may be changed in place. Empty on an engine
        # without such a vector.
        # command: the command part of a row, as `Layout` orders it; the following are parts of it
        self.t, self.parameters, self.command, self.evaluate = t, parameters, command, evaluate
        # q: generalized coordinates, shape (n,)
        # v: their time derivatives, shape (n,)
        # memory: state of the law; at first where the law starts
        self.q, self.v, self.memory = x[:n], x[n : 2 * n], x[2 * n :]
        self.memory[:] = memory_start
        parts = {name: command[layout.slices[name]] for name in layout.command}
        # u: control inputs in actuator units, shape (m,)
        # rank: rank of the task, shape (1,)
        # residual: largest part of a task row that no input reaches, shape (1,)
        self.u, self.rank, self.residual = parts["u"], parts["rank"], parts["residual"]
        # pivot_min: smallest pivot that counted, shape (1,)
        # status: `Status.code`, shape (1,)
        # memory_rate: time derivative of the memory
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
