"""What a config says of a drive or of an encoder node, in the units of the joint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SensorSettings:
    """A node that measures one displacement.

    A displacement of the joint is `sign * motor / gear + offset`, in the unit of the coordinate or of what is
    conjugate to the actuator.

    Attributes:
        name: Of the actuator, or of the coordinate for an encoder node.
        bus: Name of its bus.
        protocol: `odrive`, `cia402` or `mit`.
        node: Its address.
        gear: Radians of the motor per unit of the joint: a ratio, or [rad/m] for a joint that slides.
        sign: 1, or -1 where the motor turns against the joint.
        offset: Displacement of the joint where the encoder reads zero [joint unit].
        options: What only its protocol knows: key -> value.
    """

    name: str
    bus: str
    protocol: str
    node: int
    gear: float = 1.0
    sign: int = 1
    offset: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

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
    """A drive.

    Attributes:
        rated_torque: Of the motor [N m]; the unit of torque on the wire for `cia402`.
        torque_limit: Largest |u|, at the joint [actuator unit].
        torque_rate_limit: Largest |du/dt|, at the joint [actuator unit/s].
        speed_limit: Largest |speed| of the joint [joint unit/s].
        position_limits: Of the joint [joint unit].
        watchdog: Time after which the drive must stop by itself when nothing comes [s].
        brake: Whether a brake holds the joint while the drive is not enabled.
    """

    torque_limit: float
    torque_rate_limit: float
    speed_limit: float
    position_limits: tuple[float, float]
    rated_torque: float | None = None
    watchdog: float = 0.05
    brake: bool = False

    def motor_torque(self, torque: float) -> float:
        """Torque of the motor [N m] for a torque or force at the joint [actuator unit]."""
        return self.sign * torque / self.gear

    def joint_torque(self, motor_torque: float) -> float:
        """Torque or force at the joint [actuator unit] of a torque of the motor [N m]."""
        return self.sign * motor_torque * self.gear
