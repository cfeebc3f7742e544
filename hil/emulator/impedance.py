"""The controller of drives that follow a position and a velocity with commanded gains: MIT frames, RobStride."""

from math import isfinite
from typing import NamedTuple

from hil.emulator.encoder import Encoder
from hil.emulator.motor import Motor
from hil.loop.clock import SECOND
from hil.loop.virtual_time import Event, World, cancel


class ImpedanceCommand(NamedTuple):
    """What the motor follows; its torque is `kp (position - p) + kd (velocity - v) + torque`."""

    position: float = 0.0  # [rad] position
    velocity: float = 0.0  # [rad/s] velocity
    kp: float = 0.0  # [N m/rad] stiffness
    kd: float = 0.0  # [N m s/rad] damping
    torque: float = 0.0  # [N m] feedforward torque


class Impedance:
    """The controller of one drive, whose position counts from a zero that can be set.

    Attributes:
        zero: Angle of the encoder at position zero [rad].
        wanted: Its command.
    """

    def __init__(self, world: World, encoder: Encoder, motor: Motor) -> None:
        """Prepares the controller of a motor with this encoder."""
        self._world, self._encoder, self._motor = world, encoder, motor
        self._next: Event | None = None
        self.restart()

    def restart(self) -> None:
        """Sets zero and command as at power-on."""
        self.zero, self.wanted = 0.0, ImpedanceCommand()

    def regulate(self) -> None:
        """Commands the torque, now and every millisecond where it depends on the motion."""
        if self._next is not None:
            cancel(self._next)
            self._next = None
        position, velocity, kp, kd, torque = self.wanted
        if kp or kd:
            p, v = self._encoder.read(self._world.now)
            torque += kp * (position - p + self.zero) + kd * (velocity - v)
            self._next = self._world.after(SECOND // 1000, self.regulate)
        self._motor.command(torque)

    def stop(self) -> None:
        """Stops commanding."""
        cancel(self._next)
        self._next = None

    def set_zero(self) -> None:
        """Makes the present position zero."""
        position, _ = self._encoder.read(self._world.now)
        self.zero = position if isfinite(position) else self.zero

    def motion(self) -> tuple[float, float, float]:
        """Position [rad], velocity [rad/s] and torque [N m] to report; these frames have no NaN, but zero."""
        position, velocity = self._encoder.read(self._world.now)
        if not isfinite(position):
            position, velocity = 0.0, 0.0
        return position - self.zero, velocity, self._motor.torque() if self._motor.enabled else 0.0
