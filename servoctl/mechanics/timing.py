"""When the commands of a loop act, and how far the actuators follow them: one value for law, analysis and simulation.

Design: a timing is made once, from `run` and `realism` or from `hil`. Each view says what it is for. Laws, observers
and estimators count on the mean delay; whatever judges stability does so after the shortest and after the longest
delay, because either can be the worse one. `simulation.realism` is the machine itself.

The commands under way are one memory for law and estimator:

    sent       u(k-1), u(k-2), ...: what was sent at earlier ticks, the newest first
    torque     of each actuator with a lag, at the last tick
    running    1 after the first tick, 0 before

Design: the memory keeps the torque of the last tick, not of this one. So a loop on drives can replace the newest
command by what the drives really got, and the torque of this tick follows from that.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.symbol import above, clip, where
from servoctl.errors import TaskError
from servoctl.types import Array

WHOLE = 1e-9  # [periods] a time this close to a whole number of periods counts as whole


def cycles(time: float, period: float) -> tuple[int, float]:
    """Whole periods in a time, and the rest of it in periods, from 0 to 1."""
    periods = time / period
    whole = math.floor(periods + WHOLE)
    rest = periods - whole
    return whole, rest if rest > WHOLE else 0.0


def periods_begun(time: float, period: float) -> int:
    """Periods in a time, one that has only begun included."""
    whole, rest = cycles(time, period)
    return whole + (rest > 0.0)


def remaining(elapsed: Any, lag: Any) -> Any:
    """Share of a step in the command that a first-order actuator has not followed yet; 0 without a lag.

    Args:
        elapsed: Time since the step [s].
        lag: Time constant [s]; 0: none.
    """
    # lag + (lag == 0) keeps the division finite without a lag
    return (lag > 0) * np.exp(-elapsed / (lag + (lag == 0)))


@dataclass(frozen=True)
class Timing:
    """Period, delay, jitter, lag and limits of a loop.

    Raises:
        TaskError: The period is not positive.
    """

    period: float | None  # [s] a command is held so long; None: the law acts continuously
    actuators: tuple[str, ...] = ()  # names
    delay: float = 0.0  # [s] shortest time from a measurement to the torque computed from it
    jitter: float = 0.0  # [s] largest random addition to the delay
    lag: tuple[float, ...] = ()  # [s] time constant per actuator; 0: none
    # lower, upper: smallest and largest torque per actuator, or -inf and inf
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    velocity_filter: float | None = None  # [s] of the filter that differentiates positions; None: speeds are measured
    # whether it is the loop on drives: they give the first command before the first tick; else nothing acts then
    on_drives: bool = False

    def __post_init__(self) -> None:
        if self.period is not None and not self.period > 0.0:
            raise TaskError(f"timing: period: expected a positive time [s], got {self.period}")

    @classmethod
    def of(
        cls,
        period: float | None,
        actuators: Iterable[str],
        delay: float = 0.0,
        jitter: float = 0.0,
        lag: float | Sequence[float] = 0.0,
        lower: float | Sequence[float] = -math.inf,
        upper: float | Sequence[float] = math.inf,
        velocity_filter: float | None = None,
        on_drives: bool = False,
    ) -> "Timing":
        """The timing of these actuators; lag and limits are one number for all, or one per actuator."""
        names = tuple(actuators)
        lags, least, most = (
            (float(x),) * len(names) if isinstance(x, int | float) else tuple(np.broadcast_to(x, len(names)).tolist())
            for x in (lag, lower, upper)
        )
        return cls(period, names, delay, jitter, lags, least, most, velocity_filter, on_drives)

    @property
    def h(self) -> float:
        """The period of a sampled law [s]."""
        assert self.period is not None, "the law acts continuously"
        return self.period

    @property
    def mean_delay(self) -> float:
        """The delay that a model of the actuators counts on [s]."""
        return self.delay + self.jitter / 2.0

    @property
    def longest_delay(self) -> float:
        """The delay that no command exceeds [s]."""
        return self.delay + self.jitter

    @property
    def slowest(self) -> float:
        """The largest lag of an actuator [s]."""
        return max(self.lag, default=0.0)

    @property
    def lateness(self) -> float:
        """Longest time from a measurement to the torque, with lag and velocity filter counted as delays [s]."""
        return self.longest_delay + self.slowest + (self.velocity_filter or 0.0)

    @property
    def worst(self) -> "Timing":
        """Each command acts after the longest delay."""
        return replace(self, delay=self.longest_delay, jitter=0.0)

    @property
    def extremes(self) -> tuple["Timing", ...]:
        """Every command acts after the shortest delay, or after the longest: a jitter is judged by both."""
        return (replace(self, delay=max(self.delay, 0.0), jitter=0.0), self.worst) if self.jitter else (self,)

    @property
    def at_action(self) -> "Timing":
        """For a law that gets the state predicted to the mean delay: only the jitter is left of the delay."""
        return replace(self, delay=0.0 - self.jitter / 2.0)

    @property
    def folded(self) -> "Timing":
        """The lag counts as a delay of its time constant, which gives the same mean torque in a steady change."""
        return replace(self, delay=self.delay + self.slowest, lag=(0.0,) * len(self.lag))

    @property
    def of_one(self) -> "Timing":
        """One actuator, the slowest; limits do not count."""
        return Timing.of(
            self.period, ("u",), self.delay, self.jitter, self.slowest, velocity_filter=self.velocity_filter
        )

    def at(self, period: float) -> "Timing":
        """The same numbers of periods at another period; `at(1.0)` has all times in periods."""
        if self.period is None:
            return self
        delay, jitter, *lag = (time * period / self.period for time in (self.delay, self.jitter, *self.lag))
        filtered = None if self.velocity_filter is None else self.velocity_filter * period / self.period
        return replace(self, period=period, delay=delay, jitter=jitter, lag=tuple(lag), velocity_filter=filtered)

    def __str__(self) -> str:
        """In words, with the longest delay."""
        if self.period is None:
            return "continuous law"
        parts, periods = [f"period {self.period:g} s"], round(self.longest_delay / self.period, 9)
        if periods:
            parts.append(f"delay {periods:.4g} cycle{'s' * (periods != 1.0)}")
        if self.lagging:
            lags = sorted(set(self.lag))
            parts.append(f"lag {lags[0]:.4g}{f' to {lags[-1]:.4g}' * (len(lags) > 1)} s")
        if self.velocity_filter is not None:
            parts.append(f"velocities from positions with a filter of {self.velocity_filter:g} s")
        return ("on drives: " if self.on_drives else "") + ", ".join(parts)

    @property
    def lagging(self) -> bool:
        """Whether any torque follows its command with a lag."""
        return any(self.lag)

    @property
    def whole(self) -> bool:
        """Whether each torque is one command for a whole period, known from tick to tick."""
        return not self.lagging and not self.jitter and not cycles(self.delay, self.h)[1]

    @property
    def earliest(self) -> int:
        """Whole periods before a command can begin to act: it begins within the period after them."""
        return cycles(self.delay, self.h)[0]

    @cached_property  # a simulated loop asks for it in each period
    def latest(self) -> int:
        """Whole periods after which a command acts in any case."""
        return periods_begun(self.longest_delay, self.h)

    @property
    def late(self) -> int:
        """Number of earlier commands that still act in a period, after the mean delay."""
        return periods_begun(self.mean_delay, self.h)

    @property
    def fresh(self) -> float:
        """Share of a period in which the newest of the acting commands acts, from 0 to 1, after the mean delay."""
        whole, rest = cycles(self.mean_delay, self.h)
        return 1.0 - rest if rest else float(not whole)

    def limited(self, u: Array) -> Array:
        """The commands within the limits, shape (m,)."""
        inside: Array = clip(u, np.array(self.lower), np.array(self.upper))
        return inside

    def acting(self, sent: Array) -> list[tuple[float, Array]]:
        """The commands that act in one period, one after the other: share of the period, command (m,).

        Args:
            sent: Commands from that of the period's tick to the oldest that still acts, shape (late + 1, m).
        """
        older, newer = sent[self.late], sent[max(self.late - 1, 0)]
        return [(share, u) for share, u in ((1.0 - self.fresh, older), (self.fresh, newer)) if share]

    def on_their_way(self, sent: Array, torque: Array) -> Iterator[tuple[float, Array, Array]]:
        """Per earlier command that acts before one of now does: how long [s], mean torque, and the torque after it.

        Args:
            sent: Earlier commands from the newest to the oldest that still acts, shape (late, m).
            torque: The lagging torque now; empty without a lag.
        """
        for age in range(self.late, 0, -1):
            share = 1.0 - self.fresh if age == self.late else 1.0
            mean, torque = self.torque([(share, sent[age - 1])], torque)
            yield share * self.h, mean, torque

    def torque(self, parts: Sequence[tuple[float, Array]], torque: Array) -> tuple[Array, Array]:
        """Mean torque over some commands, shape (m,), and the lagging torque after them.

        Args:
            parts: Share of the period, and command.
            torque: The lagging torque before; empty without a lag.
        """
        total = sum(share for share, _ in parts)
        mean: Array = np.zeros(len(self.actuators))
        if not self.lagging:
            return sum((share / total * u for share, u in parts), mean), torque
        lag = np.array(self.lag)
        for share, u in parts:
            left = remaining(share * self.h, lag)
            # the mean of u + (torque - u) exp(-s / lag) over the time
            mean = mean + (share * u + (torque - u) * lag * (1.0 - left) / self.h) / total
            torque = u + (torque - u) * left
        return mean, torque


class UnderWay(NamedTuple):
    """The commands under way at a tick, before it adds its own."""

    sent: Array  # earlier commands, the newest first, shape (kept, m)
    torque: Array  # lagging torques, shape (m,); empty without a lag
    running: Any  # 1 after the first tick, 0 before

    @property
    def values(self) -> Array:
        """All numbers in one array, in the order of the memory."""
        return np.concatenate([self.sent.ravel(), self.torque, [self.running]])


@dataclass(frozen=True)
class CommandMemory:
    """The memory of what a loop has sent."""

    timing: Timing  # when commands act, and how the actuators follow them
    kept: int  # number of earlier commands, at least 1; with a lag more than `timing.late`

    @staticmethod
    def together(*needs: "CommandMemory | None") -> "CommandMemory | None":
        """The memory that serves several readers; None: no one reads it.

        Args:
            needs: What each needs. The first one's timing counts, so that of an estimator comes first.
        """
        all_needs = [need for need in needs if need is not None]
        return CommandMemory(all_needs[0].timing, max(need.kept for need in all_needs)) if all_needs else None

    @property
    def names(self) -> list[str]:
        """Names of its values, in order; all are 0 at the start."""
        actuators = self.timing.actuators
        names = [f"sent{age}.{actuator}" for age in range(1, self.kept + 1) for actuator in actuators]
        return [*names, *(f"torque.{actuator}" for actuator in actuators if self.timing.lagging), "running"]

    def read(self, values: Array) -> UnderWay:
        """These values by name."""
        m = len(self.timing.actuators)
        sent, torque, running = np.split(values, [self.kept * m, len(values) - 1])
        return UnderWay(sent.reshape(self.kept, m), torque, running[0])

    def acted(self, values: Array) -> tuple[Array, UnderWay]:
        """The mean torque over the period before this tick, shape (m,), and what is under way now.

        Args:
            values: Of the memory, as the last tick left it. At least `timing.late` + 1 commands are kept.
        """
        last = self._last(values)
        mean, torque = self.timing.torque(self.timing.acting(last.sent), last.torque)
        return mean, last._replace(torque=torque)

    def now(self, values: Array) -> UnderWay:
        """What is under way at this tick; `values` as of `acted`."""
        return self.acted(values)[1] if self.timing.lagging else self._last(values)

    def rate(self, values: Array, now: UnderWay, u: Array) -> Array:
        """By how much the values change until the next tick, per time; arguments as of `acted` and `after`."""
        return (self.after(now, u) - values) / self.timing.h

    def after(self, now: UnderWay, u: Array) -> Array:
        """The values at the next tick.

        Args:
            now: What is under way at this tick.
            u: The command of this tick, shape (m,); one that is not finite is not sent.
        """
        given, before = self.timing.limited(u), now.sent[0]
        newest = where(above(np.inf, np.abs(given)), given, before)
        return UnderWay(np.vstack([newest, now.sent[:-1]]), now.torque, 1.0).values

    def _last(self, values: Array) -> UnderWay:
        sent, torque, running = self.read(values)
        if self.timing.on_drives:  # before the first tick the drives gave what they give now
            sent = where(running > 0.5, sent, np.tile(sent[0], (self.kept, 1)))
            torque = where(running > 0.5, torque, sent[0, : len(torque)])
        return UnderWay(sent, torque, running)
