"""The torque that acts while commands are held, late, limited, and followed with a lag.

Design: observers and estimators share this model of the actuators, so that both know what the machine really got.
`simulation.realism` is the machine itself; this is what the control assumes about it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from servoctl.engine.symbol import clip
from servoctl.types import Array

WHOLE = 1e-9  # [periods] a delay this close to a whole number of periods counts as whole


@dataclass(frozen=True)
class HeldCommands:
    """How late and how far the actuators follow the commands."""

    actuators: tuple[str, ...]  # names of the actuators
    period: float  # [s] h: a command is held so long
    late: int  # number of earlier commands that still act in a period
    fresh: float  # share of a period in which the newest of the acting commands acts, from 0 to 1
    lag: tuple[float, ...]  # time constant per actuator [s]; empty: none lags
    # lower, upper: limits of each actuator
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    # whether the first command acted before the first tick, as drives that hold a pose; else nothing did
    engaged: bool = False

    @classmethod
    def of(
        cls,
        actuators: Sequence[str],
        period: float,
        delay: float = 0.0,
        lag: float | Sequence[float] = 0.0,
        lower: float | Sequence[float] = -math.inf,
        upper: float | Sequence[float] = math.inf,
        engaged: bool = False,
    ) -> "HeldCommands":
        """The model from a delay [s]; lag and limits are one number for all, or one per actuator."""
        m = len(actuators)
        lags, least, most = (tuple(np.broadcast_to(x, m).tolist()) for x in (lag, lower, upper))
        periods = delay / period
        late = math.ceil(periods - WHOLE)
        fresh = max(late - periods, 0.0) if late else 1.0
        fresh = 0.0 if fresh < WHOLE else fresh
        return cls(tuple(actuators), period, late, fresh, lags if any(lags) else (), least, most, engaged)

    @property
    def delay(self) -> float:
        """From the measurement to the torque [s]."""
        return (self.late - (self.fresh if self.late else 0.0)) * self.period

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
        return [(share, each) for share, each in ((1.0 - self.fresh, older), (self.fresh, newer)) if share]

    def on_their_way(self, sent: Array, torque: Array) -> Iterator[tuple[float, Array, Array]]:
        """Per earlier command that acts before one of now does: how long [s], mean torque, and the torque after it.

        Args:
            sent: Earlier commands from the newest to the oldest that still acts, shape (late, m).
            torque: The lagging torque now; empty without a lag.
        """
        for age in range(self.late, 0, -1):
            share = 1.0 - self.fresh if age == self.late else 1.0
            mean, torque = self.torque([(share, sent[age - 1])], torque)
            yield share * self.period, mean, torque

    def torque(self, parts: Sequence[tuple[float, Array]], torque: Array) -> tuple[Array, Array]:
        """Mean torque over some commands, shape (m,), and the lagging torque after them.

        Args:
            parts: Share of the period, and command.
            torque: The lagging torque before; empty without a lag.
        """
        total = sum(share for share, _ in parts)
        mean: Array = np.zeros(len(self.actuators))
        if not self.lag:
            return sum((share / total * u for share, u in parts), mean), torque
        lag = np.array(self.lag)
        for share, u in parts:
            time = share * self.period
            left = np.where(lag > 0.0, np.exp(-time / np.where(lag > 0.0, lag, 1.0)), 0.0)
            # the mean of u + (torque - u) exp(-s / lag) over the time
            mean = mean + (share * u + (torque - u) * lag * (1.0 - left) / self.period) / total
            torque = u + (torque - u) * left
        return mean, torque
