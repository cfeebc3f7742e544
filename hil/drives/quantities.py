"""What the frames of nodes bring: motion, and what drives show of their own state, with its limits.

Design: one table of gauges. A protocol names those that its frames bring (`Drive.shows`), writes them into
`Drive.gauges`, and describes their place in `Drive.wire` for the tick in C. Columns, warnings and the pre-flight list
follow from the table.
"""

from dataclasses import dataclass
from enum import IntEnum
from math import inf, isfinite
from typing import NamedTuple


class Quantity(IntEnum):
    """What a number in a frame is: motion and torque at the joint, then the gauges."""

    POSITION = 0
    VELOCITY = 1
    TORQUE = 2
    TEMPERATURE = 3
    MOTOR_TEMPERATURE = 4
    SUPPLY = 5
    LOAD = 6
    WARNING = 7


FIRST_GAUGE = Quantity.TEMPERATURE
"""The first quantity that is a gauge: `quantity - FIRST_GAUGE` is its place in `Drive.gauges`."""

SAG, RISE = 0.85, 1.1  # usual limits of a supply [its first voltage]: braking raises it, a weak battery sags


class Gauge(NamedTuple):
    """A quantity that drives show."""

    quantity: Quantity
    name: str  # its column, with the name of the drive: `temperature.u1`
    unit: str
    meaning: str  # what it is, in words

    @property
    def place(self) -> int:
        """Its place in `Drive.gauges`."""
        return self.quantity - FIRST_GAUGE


GAUGES = (
    Gauge(Quantity.TEMPERATURE, "temperature", "degC", "temperature of the drive"),
    Gauge(Quantity.MOTOR_TEMPERATURE, "motor_temperature", "degC", "temperature of the motor"),
    Gauge(Quantity.SUPPLY, "supply", "V", "bus voltage"),
    Gauge(Quantity.LOAD, "load", "", "load (I2t)"),
    Gauge(Quantity.WARNING, "warning", "", "own warning (1: it warns)"),
)
"""In the order of `Drive.gauges`."""


@dataclass(frozen=True)
class GaugeLimits:
    """From where on a drive is reported: below its own limits, so that there is time to stop."""

    temperature: float = 70.0  # [degree C] temperature of the drive
    motor_temperature: float = 90.0  # [degree C] temperature of the motor
    # lowest and highest bus voltage [V]; None: `SAG` and `RISE` of the first one seen
    supply: tuple[float, float] | None = None
    load: float = 0.9  # load of the motor; 1 is what the drive allows for long

    def limits(self, gauge: Gauge, first: float) -> tuple[float, float]:
        """Lower and upper limit of a gauge whose first value was this one; infinite: none."""
        if gauge.quantity is Quantity.WARNING:
            return -inf, 0.0
        if gauge.quantity is not Quantity.SUPPLY:
            return -inf, float(getattr(self, gauge.name))
        if self.supply is None and isfinite(first):
            return SAG * first, RISE * first
        return self.supply or (-inf, inf)
