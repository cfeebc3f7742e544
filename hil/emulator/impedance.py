"""The controller of drives that follow position and velocity with commanded gains; ranges of MIT frames."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any, NamedTuple

import yaml

from hil.codecs.field import Field
from hil.drives.linear_ranges import linear
from hil.drives.wire import chained
from hil.emulator.encoder import Encoder
from hil.emulator.motor import Motor
from hil.loop.clock import SECOND
from hil.loop.virtual_time import Event, World, cancel
from servoctl.expression import constant


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


def number_in(field: Field, data: bytes, largest: float) -> float:
    """The number in a field that spans the range from -largest to largest."""
    return chained(linear(largest, field), field.read(data))


def written(field: Field, data: bytes, number: float, largest: float) -> bytes:
    """The payload with a number in such a field, rounded down and cut off at the ends of the range."""
    return field.written(data, min(field.mask, max(0, int((number + largest) * field.mask / (2 * largest)))))


MINI_CHEETAH = {"position": 12.5, "velocity": 45.0, "torque": 18.0, "kp": 500.0, "kd": 5.0}
"""Default ranges: those of the Mini Cheetah's drive."""


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(
        (resources.files("hil") / "drives/mit_ranges.yaml").read_text()
    )
    return table


def ranges_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Largest position [rad], velocity [rad/s], torque [N m], kp [N m/rad] and kd [N m s/rad].

    Args:
        options: Options of a drive: `ranges`, a mapping of these, or `motor`, a name in the table.

    Raises:
        KeyError: The table has no such motor.
    """
    given = options.get("ranges") or (_table()[options["motor"]] if options.get("motor") else MINI_CHEETAH)
    return {name: float(constant(given[name])) for name in MINI_CHEETAH}
