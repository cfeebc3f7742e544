"""The commands of a loop that are under way: one memory for its law and its estimator.

    sent       u(k-1), u(k-2), ...: what was sent at earlier ticks, the newest first
    torque     of each actuator with a lag, at the last tick
    running    1 after the first tick, 0 before

Design: the memory keeps the torque of the last tick, not of this one. So a loop on drives can replace the newest
command by what the drives really got, and the torque of this tick follows from that.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.symbol import above, where
from servoctl.mechanics.timing import Timing
from servoctl.types import Array


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
