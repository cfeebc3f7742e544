"""The temperature of an emulated motor: one heat capacity, heated by the square of the torque."""

from dataclasses import dataclass
from math import exp, inf

from hil.loop.clock import SECOND

NEAR = 10.0  # [K] a drive that can warn does so within so many degrees of its trip


@dataclass(frozen=True)
class ThermalOptions:
    """How the motors warm up: `time load' = (torque / torque_limit)^2 - load`, temperature `ambient + rise load`."""

    ambient: float = 25.0  # [degree C] temperature without load
    rise: float = 40.0  # [K] rise of the temperature at load 1, after a long time
    time: float = 60.0  # [s] time constant
    trip: float = inf  # [degree C] temperature at which a drive switches off


class Thermal:
    """Load and temperature of a motor, at first those without load.

    Args:
        options: How it warms up.
        limit: Torque whose load is 1 [N m].

    Attributes:
        options: How it warms up.
        load: Load at the last `heat`.
    """

    def __init__(self, options: ThermalOptions, limit: float) -> None:
        self.options, self._limit = options, limit
        self.load, self._since = 0.0, 0

    def heat(self, torque: float, now: int) -> None:
        """Lets a torque [N m] act from the last call until now [ns]."""
        final = (torque / self._limit) ** 2
        self.load = final + (self.load - final) * exp((self._since - now) / SECOND / self.options.time)
        self._since = now

    @property
    def near(self) -> bool:
        """Whether the temperature is within `NEAR` of the trip."""
        return self.temperature > self.options.trip - NEAR

    @property
    def temperature(self) -> float:
        """Temperature at the last `heat` [degree C]."""
        return self.options.ambient + self.options.rise * self.load
