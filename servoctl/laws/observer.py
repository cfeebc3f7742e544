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

from servoctl.engine.symbol import clip, where
from servoctl.errors import TaskError
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.model import Row
from servoctl.types import Array

SHARE = 0.2
"""Default rate times period."""

WHOLE = 1e-9
"""A delay this close to a whole number of periods counts as whole [periods]."""


@dataclass(frozen=True)
class Observer:
    """A disturbance observer as the user configures it.

    Attributes:
        period: Period of the law [s].
        rate: L [1/s]; None: 0.2 / period.
        delay: From the measurement to the torque [s].
        lag: Time constant of each actuator [s]; one number for all.
        lower: Smallest torque that each actuator gives; one number for all.
        upper: Largest torque.
        engaged: Whether the actuators give the first command before the first tick, as drives that hold a pose; else
            they give nothing.

    Raises:
        TaskError: A number is out of its range.
    """

    period: float
    rate: float | None = None
    delay: float = 0.0
    lag: float | Sequence[float] = 0.0
    lower: float | Sequence[float] = -math.inf
    upper: float | Sequence[float] = math.inf
    engaged: bool = False

    def __post_init__(self) -> None:
        if not self.period > 0.0:
            raise TaskError(f"observer: period: expected a positive time [s], got {self.period}")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise TaskError(f"observer: rate: expected a positive number [1/s], got {self.rate}")
        if not 0.0 <= self.delay < math.inf:
            raise TaskError(f"observer: delay: expected a time of at least 0 [s], got {self.delay}")

    def bind(self, rows: Sequence[Row], actuators: Sequence[str]) -> "RowObserver":
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
        m = len(actuators)
        lag, lower, upper = (tuple(np.broadcast_to(x, m).tolist()) for x in (self.lag, self.lower, self.upper))
        periods = self.delay / self.period
        late = math.ceil(periods - WHOLE)
        return RowObserver(
            tuple(row.name for row in rows),
            tuple(row.has_rate for row in rows),
            tuple(actuators),
            self.period,
            late,
            max(late - periods, 0.0) if late else 1.0,
            lag if any(lag) else (),
            lower,
            upper,
            self.engaged,
        )

    @property
    def bound_rate(self) -> float:
        """L [1/s]."""
        return SHARE / self.period if self.rate is None else float(self.rate)


@dataclass(frozen=True)
class RowObserver:
    """The observer of a bound law; all of it is structure, its rate L is a parameter of the law.

    Attributes:
        rows: Names of the task rows.
        by_rate: Whether beta of a row is its violation rate; else it is the violation.
        actuators: Names of the actuators.
        period: h [s].
        late: Number of earlier commands that still act in a period.
        fresh: Share of a period in which the newest of the acting commands acts, from 0 to 1.
        lag: Time constant per actuator [s]; empty: none lags.
        lower, upper: Limits of each actuator.
        engaged: Whether the first command acted before the first tick.
    """

    rows: tuple[str, ...]
    by_rate: tuple[bool, ...]
    actuators: tuple[str, ...]
    period: float
    late: int
    fresh: float
    lag: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    engaged: bool = False

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: d, beta and w of each row, earlier commands, lagging torques, and whether it runs."""
        names = [f"{part}.{row}" for part in ("disturbance", "beta", "expected") for row in self.rows]
        names += [f"sent{age}.{actuator}" for age in range(1, self.late + 1) for actuator in self.actuators]
        names += [f"torque.{actuator}" for actuator in self.actuators if self.lag]
        return dict.fromkeys([*names, "running"], 0.0)

    def disturbance(self, task: Rows, memory: Array, rate: Any) -> Array:
        """d of each row at this tick, shape (r,)."""
        before, beta, expected = self._rows(memory)
        gain = (1.0 - np.exp(-rate * self.period)) * memory[-1]  # 0 at the first tick, which has no tick before
        seen = (self._beta(task) - beta) / self.period - expected
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
        torque = memory[len(memory) - 1 - len(self.lag) : len(memory) - 1]
        mean, torque = self._acting(self.acting_commands(u, memory), torque)
        expected = task_map @ mean - explained
        kept = self._sent(u, memory)[: self.late].ravel()
        return np.concatenate([d, self._beta(task), expected, kept, torque, [1.0]])

    def _beta(self, task: Rows) -> Array:
        return np.array(
            [task.violation_rate[i] if by_rate else task.violation[i] for i, by_rate in enumerate(self.by_rate)]
        )

    def _rows(self, memory: Array) -> tuple[Array, Array, Array]:
        r = len(self.rows)
        return memory[:r], memory[r : 2 * r], memory[2 * r : 3 * r]

    def acting_commands(self, u: Array, memory: Array) -> list[tuple[float, Array]]:
        """The commands that act in this period, one after the other: share of the period, command (m,)."""
        sent = self._sent(u, memory)
        older, newer = sent[-1], sent[max(self.late - 1, 0)]
        return [(share, each) for share, each in ((1.0 - self.fresh, older), (self.fresh, newer)) if share]

    def _sent(self, u: Array, memory: Array) -> Array:
        """Commands within the limits, from the newest to the oldest that still acts, shape (late + 1, m)."""
        start, m = 3 * len(self.rows), len(self.actuators)
        given = clip(u, np.array(self.lower), np.array(self.upper))
        earlier = memory[start : start + self.late * m].reshape(self.late, m)
        if self.engaged:
            earlier = where(memory[-1] > 0.5, earlier, np.tile(given, (self.late, 1)))
        return np.vstack([given, earlier])

    def _acting(self, parts: list[tuple[float, Array]], torque: Array) -> tuple[Array, Array]:
        """Mean torque of this period, and the lagging torque at its end."""
        mean: Array = np.zeros(len(self.actuators))
        if not self.lag:
            return sum((share * u for share, u in parts), mean), torque
        lag = np.array(self.lag)
        for share, u in parts:
            time = share * self.period
            left = np.where(lag > 0.0, np.exp(-time / np.where(lag > 0.0, lag, 1.0)), 0.0)
            # the mean of u + (torque - u) exp(-s / lag) over the time
            mean = mean + share * u + (torque - u) * lag * (1.0 - left) / self.period
            torque = u + (torque - u) * left
        return mean, torque
