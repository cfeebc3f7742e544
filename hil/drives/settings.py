"""What a config says about a drive or an encoder node, in the units of the joint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from hil.drives.quantities import GaugeLimits

RUNAWAY = 1.2
"""Share of the speed limit beyond which the drives are disabled without a controlled stop."""

RAMP = 0.25
"""Time from `speed_limit` to standstill where a drive brakes by itself and nothing is known of its machine [s]."""


@dataclass(frozen=True)
class SensorSettings:
    """Settings of a node that measures one displacement.

    The displacement of the joint is `sign * motor / gear + offset`. Its unit is that of the coordinate, or for an
    actuator the one whose product with the actuator unit is an energy.

    Attributes:
        name: Name of the actuator, or of the coordinate for an encoder node.
        bus: Name of its bus.
        protocol: Name of its protocol, one of `hil.protocols.registry.entries`.
        node: Its address.
        gear: Radians of the motor per unit of the joint: a ratio, or [rad/m] for a sliding joint.
        sign: 1, or -1 if the motor turns against the joint.
        offset: Displacement of the joint at which the encoder reads zero [joint unit].
        options: Options of its protocol: key -> value.
        fd: Whether its bus carries CAN FD: its frames are FD frames then.
        brs: Whether they carry their data at the data bit rate of the bus.
        start_tolerance: Largest difference from the start pose [joint unit].
    """

    name: str
    bus: str
    protocol: str
    node: int
    gear: float = 1.0
    sign: int = 1
    offset: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    fd: bool = False
    brs: bool = False
    start_tolerance: float = inf

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
    """Settings of a drive.

    Attributes:
        rated_torque: Rated torque of the motor [N m]; `cia402` sends torques as fractions of it.
        torque_limit: Largest |u|, at the joint [actuator unit].
        torque_rate_limit: Largest |du/dt|, at the joint [actuator unit/s].
        speed_limit: Largest |speed| of the joint [joint unit/s].
        position_limits: Lower and upper limit of the joint [joint unit].
        watchdog: Time without commands after which the drive must stop by itself [s].
        brake: Whether a brake holds the joint while the drive is not enabled.
        brake_time: Time that this brake takes to close [s].
        deceleration: Deceleration with which it brakes by its own control [joint unit/s^2]; None: `speed_limit` within
            `RAMP`.
        stops: Displacement at the lower and at the upper mechanical stop [joint unit]; infinite: not known.
        warn_at: From where on temperatures, supply and load are reported.
    """

    torque_limit: float
    torque_rate_limit: float
    speed_limit: float
    position_limits: tuple[float, float]
    rated_torque: float | None = None
    watchdog: float = 0.05
    brake: bool = False
    brake_time: float = 0.1
    deceleration: float | None = None
    stops: tuple[float, float] = (-inf, inf)
    warn_at: GaugeLimits = field(default_factory=GaugeLimits)

    @property
    def ramp(self) -> float:
        """Deceleration with which it brakes by its own control [joint unit/s^2]."""
        return self.speed_limit / RAMP if self.deceleration is None else self.deceleration

    @property
    def has_stops(self) -> bool:
        """Whether a mechanical stop is at a known displacement."""
        return any(map(isfinite, self.stops))

    def motor_torque(self, torque: float) -> float:
        """Torque of the motor [N m] for a torque or force at the joint [actuator unit]."""
        return self.sign * torque / self.gear

    def joint_torque(self, motor_torque: float) -> float:
        """Torque or force at the joint [actuator unit] for a torque of the motor [N m]."""
        return self.sign * motor_torque * self.gear
