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
divided by the period. The loop of one row is that of `laws.hold`, with the observer itself as a linear controller.

Source: ours; for the idea Ohnishi 1987 and Chen 2004.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from servoctl.errors import TaskError
from servoctl.laws.corrections import sliding_error
from servoctl.laws.hold import EstimateFilter, RowFeedback, close, decays, hold, linear_controller, stable_range
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Rows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import CommandMemory, Timing, UnderWay
from servoctl.tree.fields import AutoPositive, described, wrong_numbers
from servoctl.types import Array, Command

SHARE = 0.2  # default rate times period


@dataclass(frozen=True)
class Observer:
    """Disturbance observer of the task rows."""

    rate: AutoPositive = described(None, "L [1/s]: how fast the estimate follows; auto, or left out: 0.2 / run.period")

    def attach(self, rows: Sequence[Row], timing: Timing) -> "RowObserver":
        """The observer of these rows.

        Args:
            timing: Of the loop, which is sampled.

        Raises:
            TaskError: The law is not sampled, or a row has no speed that shows a disturbance; the message names it.
        """
        if timing.period is None:
            raise TaskError("law.observer: needs a sampled law (give run.period)")
        for sentence in wrong_numbers(self):
            raise TaskError(f"law.observer.{sentence}")
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
        return RowObserver(tuple(row.name for row in rows), tuple(row.has_rate for row in rows), rate, timing=timing)


@dataclass(frozen=True)
class RowObserver(AttachedTerm):
    """The observer of an attached law."""

    rows: tuple[str, ...]  # names of the task rows
    by_rate: tuple[bool, ...]  # whether beta of a row is its violation rate; else it is the violation
    rate: float  # [1/s] L

    label = "observer"

    @property
    def memory(self) -> dict[str, float]:
        """Name -> initial value: d, beta and w of each row, and whether they are those of a tick before."""
        names = [f"{part}.{row}" for part in ("disturbance", "beta", "expected") for row in self.rows]
        return dict.fromkeys([*names, "observing"], 0.0)

    @property
    def commands(self) -> CommandMemory | None:
        kept = self.timing.late + self.timing.lagging
        return CommandMemory(self.timing, kept) if kept else None

    def acceleration(self, at: Terms, memory: Array) -> Array:
        return -self.disturbance(at.task, memory)

    def disturbance(self, task: Rows, memory: Array) -> Array:
        """d of each row at this tick, shape (r,)."""
        before, beta, expected = self._rows(memory)
        # 0 at the first tick, which has no tick before
        gain = (1.0 - np.exp(-self.rate * self.timing.h)) * memory[-1]
        seen = (self._beta(task) - beta) / self.timing.h - expected
        found: Array = before + gain * (seen - before)
        return found

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        after = self.after(at.task, at.rhs, command.u, at.task_map, memory, at.under_way)
        return (after - memory) / self.timing.h

    def after(
        self, task: Rows, explained: Array, u: Array, task_map: Array, memory: Array, under_way: UnderWay | None
    ) -> Array:
        """The memory at the next tick.

        Args:
            task: The task rows now.
            explained: b - A a_c, shape (r,).
            u: The command of this tick, shape (m,).
            task_map: T, shape (r, m).
            memory: Now.
            under_way: Earlier commands; None: none acts any more.
        """
        timing, given = self.timing, self.timing.limited(u)[None]
        sent = given if under_way is None else np.vstack([given, under_way.sent])
        torque = np.zeros(0) if under_way is None or not timing.lagging else under_way.torque
        mean, _ = timing.torque(timing.acting(sent), torque)
        d = self.disturbance(task, memory)
        return np.concatenate([d, self._beta(task), task_map @ mean - explained, [1.0]])

    def _beta(self, task: Rows) -> Array:
        return np.array([sliding_error(task, i, by_rate, 0.0) for i, by_rate in enumerate(self.by_rate)])

    def _rows(self, memory: Array) -> tuple[Array, Array, Array]:
        r = len(self.rows)
        return memory[:r], memory[r : 2 * r], memory[2 * r : 3 * r]


LARGEST = 8.0  # largest rate times period that is looked at


def of_one_row(observer: RowObserver, row: int) -> RowObserver:
    """The observer of one row with one actuator, the slowest; limits do not count."""
    rows, by_rate = (observer.rows[row],), (observer.by_rate[row],)
    return replace(observer, rows=rows, by_rate=by_rate, timing=observer.timing.of_one)


def loop_matrix(observer: RowObserver, feedback: RowFeedback, error: float, acts: Timing) -> Array:
    """The matrix of one period of the loop of one row, as of `hold.close`.

    Args:
        observer: Of one row.
        feedback: Of the row.
        error: E [-].
        acts: When commands act in truth.
    """
    degree = 2 if observer.by_rate[0] else 1
    chain, push = np.eye(degree, k=1), (1.0 + error) * np.eye(degree)[:, -1:]
    gains = np.array([feedback.stiffness, feedback.damping][:degree])
    return close(hold(chain, push, acts), np.eye(1), _controller(observer, gains)).A


def _controller(observer: RowObserver, gains: Array) -> EstimateFilter:
    """The command from the violation, and its rate if it has one; f: the memories of observer and commands."""
    commands = observer.commands or CommandMemory(observer.timing, 1)

    def step(f: Array, x: Array) -> tuple[Array, Array]:
        # the last of each memory, that it runs, stays 1 and is no part of the motion
        memory, past = np.append(f[:3], 1.0), np.append(f[3:], 1.0)
        task, now = Rows(np.zeros((1, 1)), np.zeros(1), x[:1], x[-1:]), commands.now(past)
        u = -gains @ x - observer.disturbance(task, memory)
        after = observer.after(task, np.zeros(1), u, np.eye(1), memory, now)
        return np.concatenate([after[:-1], commands.after(now, u)[:-1]]), u

    return linear_controller(step, 3 + len(commands.names) - 1, len(gains))


def largest_rate(observer: RowObserver, feedback: RowFeedback, error: float = 0.0, chosen: float = 0.0) -> float:
    """Largest L [1/s] that is stable after the shortest and after the longest delay.

    0 if the loop is unstable without an observer, infinite above `LARGEST` per period.

    Where inputs act much less than the model says, a slow observer can be unstable and a faster one stable.

    Args:
        feedback: Of the row.
        error: E [-].
        chosen: If this rate [1/s] is stable, the end of the stable range that holds it is returned.
    """

    def stable(rate: float) -> bool:
        tried = replace(observer, rate=rate)
        return decays(loop_matrix(tried, feedback, error, acts) for acts in observer.timing.extremes)

    grid = np.geomspace(1e-3, LARGEST, 60) / observer.timing.h
    low = chosen if chosen > 0.0 and stable(chosen) else 0.0
    end = [] if low == chosen else [chosen]
    points = grid[(grid > low) & (grid < chosen)] if end else grid[grid > low]
    last, beyond = stable_range(stable, [low, *points.tolist(), *end], 40)
    return beyond if beyond == float("inf") else last
