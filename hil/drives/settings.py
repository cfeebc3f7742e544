"""What a config says about a drive or an encoder node, in the units of the joint, and what their frames bring.

Design: one table of gauges. A protocol names the messages that bring them (`hil.drives.table`), for Python and the
tick in C. Columns, warnings and the pre-flight list follow from the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf, isfinite
from typing import Any, NamedTuple

from hil.frame import Frame
from servoctl.config.hil import WarnAt


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
    quantity: Quantity
    name: str  # its column, with the name of the drive: `temperature.u1`
    unit: str
    meaning: str  # what it is, in words

    @property
    def place(self) -> int:
        return self.quantity - FIRST_GAUGE


GAUGES = (  # in the order of `Drive.gauges`
    Gauge(Quantity.TEMPERATURE, "temperature", "degC", "temperature of the drive"),
    Gauge(Quantity.MOTOR_TEMPERATURE, "motor_temperature", "degC", "temperature of the motor"),
    Gauge(Quantity.SUPPLY, "supply", "V", "bus voltage"),
    Gauge(Quantity.LOAD, "load", "", "load (I2t)"),
    Gauge(Quantity.WARNING, "warning", "", "own warning (1: it warns)"),
)


def gauge_limits(warn_at: WarnAt, gauge: Gauge, first: float) -> tuple[float, float]:
    """Lower and upper limit of a gauge whose first value was this one; infinite: none."""
    if gauge.quantity is Quantity.WARNING:
        return -inf, 0.0
    if gauge.quantity is not Quantity.SUPPLY:
        return -inf, float(getattr(warn_at, gauge.name))
    if warn_at.supply is None and isfinite(first):
        return SAG * first, RISE * first
    lower, upper = warn_at.supply or (-inf, inf)
    return lower, upper


RUNAWAY = 1.2  # share of the speed limit beyond which the drives are disabled without a controlled stop

RAMP = 0.25
"""Time from `speed_limit` to standstill where a drive brakes by itself and nothing is known of its machine [s]."""


@dataclass(frozen=True)
class SensorSettings:
    """Settings of a node that measures one displacement.

    The displacement of the joint is `sign * motor / gear + offset`. Its unit is that of the coordinate, or for an
    actuator the one whose product with the actuator unit is an energy.
    """

    name: str  # name of the actuator, or of the coordinate for an encoder node
    bus: str  # name of its bus
    protocol: str  # name of its protocol, one of `hil.protocols.registry.entries`
    node: int  # its address
    gear: float = 1.0  # radians of the motor per unit of the joint: a ratio, or [rad/m] for a sliding joint
    sign: int = 1  # 1, or -1 if the motor turns against the joint
    offset: float = 0.0  # [joint unit] displacement of the joint at which the encoder reads zero
    options: Mapping[str, Any] = field(default_factory=dict)  # options of its protocol: key -> value
    fd: bool = False  # whether its bus carries CAN FD: its frames are FD frames then
    brs: bool = False  # whether they carry their data at the data bit rate of the bus
    start_tolerance: float = inf  # [joint unit] largest difference from the start pose

    def frame(self, identity: int, data: bytes) -> Frame:
        """A data frame to or from it, FD where its bus is, with an id of 29 bits where 11 do not hold it."""
        return Frame(identity, data, extended=identity > 0x7FF, fd=self.fd, brs=self.brs)

    def joint(self, motor: float) -> float:
        """Displacement of the joint at a motor angle [rad]."""
        return self.sign * motor / self.gear + self.offset

    def joint_rate(self, motor_rate: float) -> float:
        """Speed of the joint at a motor speed [rad/s]."""
        return self.sign * motor_rate / self.gear

    def motor(self, joint: float) -> float:
        """Motor angle [rad] at a displacement of the joint."""
        return self.sign * (joint - self.offset) * self.gear

    def motor_rate(self, joint_rate: float) -> float:
        """Motor speed [rad/s] at a speed of the joint."""
        return self.sign * joint_rate * self.gear


@dataclass(frozen=True, kw_only=True)
class DriveSettings(SensorSettings):
    torque_limit: float  # [actuator unit] largest |u|, at the joint
    torque_rate_limit: float  # [actuator unit/s] largest |du/dt|, at the joint
    speed_limit: float  # [joint unit/s] largest |speed| of the joint
    position_limits: tuple[float, float]  # [joint unit] lower and upper limit of the joint
    rated_torque: float | None = None  # rated torque of the motor [N m]; `cia402` sends torques as fractions of it
    watchdog: float = 0.05  # [s] time without commands after which the drive must stop by itself
    brake: bool = False  # whether a brake holds the joint while the drive is not enabled
    brake_time: float = 0.1  # [s] time that this brake takes to close
    # deceleration with which it brakes by its own control [joint unit/s^2]; None: `speed_limit` within `RAMP`
    deceleration: float | None = None
    # displacement at the lower and at the upper mechanical stop [joint unit]; infinite: not known
    stops: tuple[float, float] = (-inf, inf)
    # from where on temperatures, supply and load are reported
    warn_at: WarnAt = field(default_factory=WarnAt)

    @property
    def ramp(self) -> float:
        """Deceleration with which it brakes by its own control [joint unit/s^2]."""
        return self.speed_limit / RAMP if self.deceleration is None else self.deceleration

    @property
    def has_stops(self) -> bool:
        return any(map(isfinite, self.stops))

    @property
    def motor_limit(self) -> float:
        """Largest torque of the motor [N m]."""
        return self.torque_limit / self.gear

    def motor_torque(self, torque: float) -> float:
        """Torque of the motor [N m] for a torque or force at the joint [actuator unit]."""
        return self.sign * torque / self.gear
