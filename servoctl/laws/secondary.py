"""Secondary aims by name: what the task leaves free is used for them, and the task does not notice.

s = centre + preload - damping B^T v,   u = T^+ bbar + (I - T^+ T) s
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Secondary:
    """What inputs should do besides the task.

    Attributes:
        centre: Whether they seek the middle of their limits; an input without two finite limits seeks zero.
        preload: Actuator -> input it seeks [actuator unit], such as an internal force that takes up play.
        damping: D of `-D B^T v` [actuator unit per its speed]: damps the motion that the task leaves free.
    """

    centre: bool = False
    preload: Mapping[str, float] | None = None
    damping: float = 0.0

    def problems(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """What is wrong with it for these actuators and limits, one sentence each."""
        found = [
            f"law.secondary.preload: there is no actuator '{name}' (actuators: {', '.join(actuators) or 'none'})"
            for name in self.preload or {}
            if name not in actuators
        ]
        if self.centre and not any(np.isfinite(limit).all() for limit in limits.values()):
            found.append("law.secondary.centre: there are no limits to be in the middle of (give law.limits)")
        if not (self.damping >= 0.0 and np.isfinite(self.damping)):
            found.append(f"law.secondary.damping: expected a number >= 0, got {self.damping}")
        return found

    def aim(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """The constant part of s, per actuator."""
        aims = []
        for name in actuators:
            lower, upper = limits.get(name, (-np.inf, np.inf))
            middle = (lower + upper) / 2 if self.centre and np.isfinite([lower, upper]).all() else 0.0
            aims.append(float(middle + (self.preload or {}).get(name, 0.0)))
        return tuple(aims)
