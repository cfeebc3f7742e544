"""Disturbance observer of the task rows: the part of their acceleration that the model does not explain.

    beta' = w + d,   w = T u_acted - (b - A a_c),   beta = phi' (holonomic) or psi (nonholonomic)
    d <- e^(-L h) d + (1 - e^(-L h)) ((beta_k - beta_(k-1)) / h - w_(k-1))

The law subtracts d from what it asks of a row. The update is exact for a command that is held over the period h. It is
fed by the torque that acted, with its delay, lag and limits, so that saturation winds nothing up. Together with the
correction it is an integral term on beta.

How fast it may be: the largest rate at which the loop of one row stays stable,

    phi'' = (1 + E) u_acted,   u = -damping phi' - stiffness phi - d

E is the relative error of the model's task map T. The row is exact for constant T; the loop is that of a run: held
commands, whole and fractional delays, and lag.

Design: the memory changes once per period. A run integrates `memory_rate` over the hold, so the rate is the change
divided by the period. The loop of one row is linear, so its matrix is its step applied to unit vectors, and the step
calls the observer itself.

Source: ours; for the idea Ohnishi 1987 and Chen 2004.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from servoctl.errors import TaskError
from servoctl.laws.hold import last_stable
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing, UnderWay
from servoctl.tree.fields import AutoPositive
from servoctl.types import Array, Command

SHARE = 0.2  # default rate times period


@dataclass(frozen=True)
class Observer:
    """Disturbance observer of the task rows."""

    rate: Annotated[
        AutoPositive,
        Field(description="L [1/s]: how fast the estimate follows; auto, or left out: 0.2 / run.period"),
    ] = None

    def attach(self, rows: Sequence[Row], timing: Timing) -> "RowObserver":
        """The observer of these rows.

        Args:
            timing: Of the loop, which is sampled.

        Raises:
            TaskError: The law is not sampled, or a row has no speed that shows a disturbance; the message names it.
        """
        if timing.period is None:
            raise TaskError("law.observer: needs a sampled law (give run.period)")
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
        rate = SHARE / timing.h if self.rate is None else float(self.rate)
        return RowObserver(tuple(row.name for row in rows), tuple(row.has_rate for row in rows), timing, rate)


@dataclass(frozen=True)
class RowObserver(AttachedTerm):
    """The observer of an attached law."""

    rows: tuple[str, ...]  # names of the task rows
    by_rate: tuple[bool, ...]  # whether beta of a row is its violation rate; else it is the violation
    timing: Timing  # when commands act, and how the actuators follow them
    rate: float  # [1/s] L

    label = "observer"

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: d, beta and w of each row, earlier commands, lagging torques, and whether it runs."""
        names = [f"{part}.{row}" for part in ("disturbance", "beta", "expected") for row in self.rows]
        return dict.fromkeys([*names, *self.timing.memory(self.timing.late)], 0.0)

    @property
    def period(self) -> float | None:
        return self.timing.period

    def acceleration(self, at: Terms, memory: Array) -> Array:
        return -self.disturbance(at.task, memory)

    def disturbance(self, task: Rows, memory: Array) -> Array:
        """d of each row at this tick, shape (r,)."""
        before, beta, expected = self._rows(memory)
        # 0 at the first tick, which has no tick before
        gain = (1.0 - np.exp(-self.rate * self.timing.h)) * self.under_way(memory).running
        seen = (self._beta(task) - beta) / self.timing.h - expected
        found: Array = before + gain * (seen - before)
        return found

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        return (self.after(at.task, at.rhs, command.u, at.task_map, memory) - memory) / self.timing.h

    def after(self, task: Rows, explained: Array, u: Array, task_map: Array, memory: Array) -> Array:
        """The memory at the next tick.

        Args:
            task: The task rows now.
            explained: b - A a_c, shape (r,).
            u: The command of this tick, shape (m,).
            task_map: T, shape (r, m).
            memory: Now.
        """
        timing, now = self.timing, self.timing.commanded(self.under_way(memory), u)
        mean, torque = timing.torque(timing.acting(now.sent), now.torque)
        expected = task_map @ mean - explained
        d = self.disturbance(task, memory)
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


LARGEST = 8.0  # largest rate times period that is looked at


def of_one_row(observer: RowObserver, row: int) -> RowObserver:
    """The observer of one row with one actuator, the slowest; limits do not count."""
    return RowObserver((observer.rows[row],), (observer.by_rate[row],), observer.timing.of_one, observer.rate)


def loop_matrix(
    observer: RowObserver, damping: float, stiffness: float, error: float = 0.0, acts: Timing | None = None
) -> Array:
    """The matrix of one period on (phi, phi', torque, older commands, memory), shape (size, size).

    Args:
        damping: Gain on the rate of the error; 0 for a nonholonomic row.
        stiffness: Gain on the violation.
        error: E [-].
        acts: When commands act in truth; None: as the observer knows.
    """
    acts = acts or observer.timing
    size = 3 + max(acts.late - observer.timing.late, 0) + len(observer.memory)
    columns = [_step(np.eye(size)[i], observer, acts, damping, stiffness, error) for i in range(size - 1)]
    # the last state, that the observer runs, stays 1 and is no part of the motion
    return np.array(columns).T[:-1]


def largest_rate(
    observer: RowObserver, damping: float, stiffness: float, error: float = 0.0, chosen: float = 0.0
) -> float:
    """Largest L [1/s] that is stable after the shortest and after the longest delay.

    0 if the loop is unstable without an observer, infinite above `LARGEST` per period.

    Where inputs act much less than the model says, a slow observer can be unstable and a faster one stable.

    Args:
        damping: Gain on the rate of the error; 0 for a nonholonomic row.
        stiffness: Gain on the violation.
        error: E [-].
        chosen: If this rate [1/s] is stable, the end of the stable range that holds it is returned.
    """

    def stable(rate: float) -> bool:
        tried = replace(observer, rate=rate)
        loops = (loop_matrix(tried, damping, stiffness, error, acts) for acts in observer.timing.extremes)
        return all(float(np.abs(np.linalg.eigvals(loop)).max()) < 1.0 + 1e-9 for loop in loops)

    grid = np.geomspace(1e-3, LARGEST, 60) / observer.timing.h
    low = chosen if chosen > 0.0 and stable(chosen) else 0.0
    high = float("inf") if low == chosen else chosen
    for rate in grid[(grid > low) & (grid < high)].tolist():
        if not stable(rate):
            high = rate
            break
        low = rate
    if high == float("inf"):
        return high
    return last_stable(stable, low, high, 40)[0]


def _step(x: Array, observer: RowObserver, acts: Timing, damping: float, stiffness: float, error: float) -> Array:
    """The state after one period; `acts`: when commands act in truth."""
    known = observer.timing.late
    older = max(acts.late - known, 0)
    phi, speed, torque, memory = x[0], x[1], x[2], np.append(x[3 + older : -1], 1.0)
    second_order = observer.by_rate[0]
    task = Rows(np.zeros((1, 1)), np.zeros(1), np.array([phi]), np.array([speed]))
    d = observer.disturbance(task, memory)
    u = np.array([-stiffness * phi - (damping * speed if second_order else 0.0) - d[0]])
    after = observer.after(task, np.zeros(1), u, np.eye(1), memory)
    sent = np.concatenate([observer.timing.commanded(observer.under_way(memory), u).sent, x[3 : 3 + older, None]])
    for share, command in acts.acting(sent):
        phi, speed, torque = _moved(phi, speed, torque, command[0], share * acts.h, acts.slowest, error, second_order)
    return np.concatenate([[phi, speed, torque], sent[known : known + older, 0], after])


def _moved(
    phi: float, speed: float, torque: float, u: float, h: float, lag: float, error: float, second_order: bool
) -> tuple[float, float, float]:
    """phi, phi' and the torque after a time h [s] under a command."""
    gain = 1.0 + error
    # (phi, phi', torque, u); a row of first order has phi' = gain torque
    A = np.zeros((4, 4))
    A[0, 1 if second_order else 2] = 1.0 if second_order else gain
    A[1, 2] = gain if second_order else 0.0
    if lag:
        A[2, 2], A[2, 3] = -1.0 / lag, 1.0 / lag
    else:
        torque = u
    from scipy.linalg import expm  # a fifth of a second

    moved = expm(A * h) @ np.array([phi, speed, torque, u])
    return float(moved[0]), float(moved[1]), float(moved[2])
