"""When the commands of a loop act, and how far the actuators follow them: one value for law, analysis and simulation.

Design: it is made once, from `run` and `realism` or from `hil`. Each view says what it is for. Laws, observers and
estimators count on the mean delay; whatever judges stability does so after the shortest and after the longest delay,
because either can be the worse one. `simulation.realism` is the machine itself.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from servoctl.engine.symbol import clip
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
            time = share * self.h
            left = np.where(lag > 0.0, np.exp(-time / np.where(lag > 0.0, lag, 1.0)), 0.0)
            # the mean of u + (torque - u) exp(-s / lag) over the time
            mean = mean + (share * u + (torque - u) * lag * (1.0 - left) / self.h) / total
            torque = u + (torque - u) * left
        return mean, torque
