"""Secondary aims of the inputs: they act in the null space of the task and do not change its motion.

s = centre + preload - damping B^T v,   u = T^+ bbar + (I - T^+ T) s
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.expression.suggest import remedy


@dataclass(frozen=True)
class Secondary:
    """What the inputs should do where the task leaves them free.

    Attributes:
        centre: Whether each input seeks the middle of its limits; an input without two finite limits seeks zero.
        preload: Actuator -> the input that it seeks [actuator unit], such as an internal force against backlash.
        damping: D of `-D B^T v` [actuator unit per its speed], which damps the motion that the task leaves free.
    """

    centre: bool = False
    preload: Mapping[str, float] | None = None
    damping: float = 0.0

    def problems(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> list[str]:
        """One sentence for each field that does not fit these actuators and limits."""
        sentences = [
            f"law.secondary.preload.{name}: there is no actuator '{name}' ({remedy(name, actuators)})"
            for name in self.preload or {}
            if name not in actuators
        ]
        if self.centre and not any(np.isfinite(limit).all() for limit in limits.values()):
            sentences.append("law.secondary.centre: there are no limits to be in the middle of (give law.limits)")
        if not (self.damping >= 0.0 and np.isfinite(self.damping)):
            sentences.append(f"law.secondary.damping: expected a number >= 0, got {self.damping}")
        return sentences

    def aim(self, actuators: list[str], limits: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        """The constant part of s, per actuator."""
        aims = []
        for name in actuators:
            lower, upper = limits.get(name, (-np.inf, np.inf))
            middle = (lower + upper) / 2 if self.centre and np.isfinite([lower, upper]).all() else 0.0
            aims.append(float(middle + (self.preload or {}).get(name, 0.0)))
        return tuple(aims)
