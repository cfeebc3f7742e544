"""Disturbance observer of the task rows: the part of their acceleration that the model does not explain.

    beta' = w + d,   w = T u_acted - (b - A a_c),   beta = phi' (holonomic) or psi (nonholonomic)
    d <- e^(-L h) d + (1 - e^(-L h)) ((beta_k - beta_(k-1)) / h - w_(k-1))

The law subtracts d from what it asks of a row. The update is exact for a command that is held over the period h. It is
fed by the torque that acted, with its delay, lag and limits, so that saturation winds nothing up. Together with the
correction it is an integral term on beta.

Design: the memory changes once per period. A run integrates `memory_rate` over the hold, so the rate is the change
divided by the period.

Source: ours; for the idea Ohnishi 1987 and Chen 2004.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.errors import TaskError
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.timing import Timing, UnderWay
from servoctl.types import Array

SHARE = 0.2  # default rate times period


@dataclass(frozen=True)
class Observer:
    """A disturbance observer as the user configures it.

    Raises:
        TaskError: A number is out of its range.
    """

    timing: Timing  # of the loop, which is sampled
    rate: float | None = None  # L [1/s]; None: 0.2 / period

    def __post_init__(self) -> None:
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise TaskError(f"observer: rate: expected a positive number [1/s], got {self.rate}")

    def attach(self, rows: Sequence[Row]) -> "RowObserver":
        """The observer of these rows.

        Raises:
            TaskError: A row has no speed that shows a disturbance; the message names it.
        """
        for row in rows:
            if row.degree > 2:
                raise TaskError(
                    f"law.observer: task.{row.name}: relative degree {row.degree}: its derivatives come from the "
                    "model, which would hide the disturbance (leave the observer out, or the task)"
                )
            if row.degree < 1:
                raise TaskError(
                    f"law.observer: task.{row.name}: has no violation, so no disturbance shows (leave the observer "
                    "out, or give the row a violation)"
                )
        return RowObserver(tuple(row.name for row in rows), tuple(row.has_rate for row in rows), self.timing)

    @property
    def bound_rate(self) -> float:
        """L [1/s]."""
        return SHARE / self.timing.h if self.rate is None else float(self.rate)


@dataclass(frozen=True)
class RowObserver:
    """The observer of an attached law; all of it is structure, its rate L is a parameter of the law."""

    rows: tuple[str, ...]  # names of the task rows
    by_rate: tuple[bool, ...]  # whether beta of a row is its violation rate; else it is the violation
    timing: Timing  # when commands act, and how the actuators follow them

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: d, beta and w of each row, earlier commands, lagging torques, and whether it runs."""
        names = [f"{part}.{row}" for part in ("disturbance", "beta", "expected") for row in self.rows]
        return dict.fromkeys([*names, *self.timing.memory(self.timing.late)], 0.0)

    def disturbance(self, task: Rows, memory: Array, rate: Any) -> Array:
        """d of each row at this tick, shape (r,)."""
        before, beta, expected = self._rows(memory)
        # 0 at the first tick, which has no tick before
        gain = (1.0 - np.exp(-rate * self.timing.h)) * self.under_way(memory).running
        seen = (self._beta(task) - beta) / self.timing.h - expected
        found: Array = before + gain * (seen - before)
        return found

    def after(self, task: Rows, explained: Array, u: Array, task_map: Array, memory: Array, d: Array) -> Array:
        """The memory at the next tick.

        Args:
            task: The task rows now.
            explained: b - A a_c, shape (r,).
            u: The command of this tick, shape (m,).
            task_map: T, shape (r, m).
            memory: Now.
            d: `disturbance` now.
        """
        timing, now = self.timing, self.timing.commanded(self.under_way(memory), u)
        mean, torque = timing.torque(timing.acting(now.sent), now.torque)
        expected = task_map @ mean - explained
        return np.concatenate([d, self._beta(task), expected, now.after(timing.late, torque)])

    def _beta(self, task: Rows) -> Array:
        return np.array(
            [task.violation_rate[i] if by_rate else task.violation[i] for i, by_rate in enumerate(self.by_rate)]
        )

    def _rows(self, memory: Array) -> tuple[Array, Array, Array]:
        r = len(self.rows)
        return memory[:r], memory[r : 2 * r], memory[2 * r : 3 * r]

    def under_way(self, memory: Array) -> UnderWay:
        """The commands under way before this tick."""
        return self.timing.under_way(memory[3 * len(self.rows) :], self.timing.late)
