"""The controller of drives that follow position and velocity with commanded gains."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any, ClassVar, NamedTuple

import yaml

from hil.codecs.field import Field, LinearFields, bits_in
from hil.emulator.node import EmulatedDrive
from hil.emulator.timers import Watchdog
from hil.frame import Frame
from servoctl.expression import constant

NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0)


class Ranges(NamedTuple):
    """Largest numbers in frames; by default those of the Mini Cheetah's drive."""

    position: float = 12.5  # [rad]
    velocity: float = 45.0  # [rad/s]
    torque: float = 18.0  # [N m]
    kp: float = 500.0  # [N m/rad]
    kd: float = 5.0  # [N m s/rad]


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(
        (resources.files("hil") / "drives/mit_ranges.yaml").read_text()
    )
    return table


def ranges_of(options: Mapping[str, Any]) -> Ranges:
    """By the options of a drive: `ranges`, a mapping of them, or `motor`, a name in the table."""
    given = options.get("ranges") or (_table()[options["motor"]] if options.get("motor") else Ranges()._asdict())
    return Ranges(*(float(constant(given[name])) for name in Ranges._fields))


class ImpedanceDrive(EmulatedDrive):
    """A drive whose torque is `kp (position - p) + kd (velocity - v) + torque`, with these five in each command.

    All numbers are linear over ranges; the position counts from a zero. Options: `ranges` or `motor`.
    """

    fields: ClassVar[LinearFields]

    def set_up(self) -> None:
        self._ranges = ranges_of(self.settings.options)
        self._watchdog = Watchdog(self.world, self._starved)

    def boot(self) -> None:
        self.fault, self._zero = 0, 0.0
        self._wanted = NOTHING  # position [rad], velocity [rad/s], kp [N m/rad], kd [N m s/rad], torque [N m]

    def halt(self) -> None:
        self._off()

    def trip(self, code: int) -> None:
        self.fault = code
        self._off()

    def clear_fault(self) -> None:
        self.fault = 0

    def ignores(self, frame: Frame) -> bool:
        return not self.station.powered or frame.remote or len(frame.data) != 8

    def _follow(self, frame: Frame) -> None:
        """Follows a command from now on, as far as the motor is enabled."""
        fields, ranges = self.fields, self._ranges
        stiffness, damping = fields.command_stiffness, fields.command_damping
        self._wanted = (
            _number_in(fields.command_position, frame, ranges.position),
            _number_in(fields.command_velocity, frame, ranges.velocity),
            ranges.kp * bits_in(frame, stiffness) / stiffness.mask,
            ranges.kd * bits_in(frame, damping) / damping.mask,
            _number_in(fields.command_torque, frame, ranges.torque * self.torque_table),
        )
        if self.motor.enabled:
            self._regulate()

    def _regulate(self) -> None:
        """Commands the torque, now and every millisecond where it depends on the motion, within that of the motor."""
        self.stop_control()
        most = self.largest
        position, velocity, kp, kd, torque = self._wanted
        if kp or kd:
            p, v = self.encoder.read(self.world.now)
            torque += kp * (position - p + self._zero) + kd * (velocity - v)
            self.control_again(self._regulate)
        self.motor.command(max(-most, min(torque, most)))

    @property
    def largest(self) -> float:
        """Largest torque that the motor makes [N m]."""
        return self._ranges.torque * self.torque_table

    def _off(self) -> None:
        self.stop_control()
        self._watchdog.stop()
        self.motor.disable()

    def _starved(self) -> None:
        self._off()

    def _set_zero(self) -> None:
        position, _ = self.encoder.read(self.world.now)
        self._zero = position if isfinite(position) else self._zero

    def _motion(self) -> tuple[float, float]:
        """Position [rad] and velocity [rad/s] to report; these frames have no NaN, but zero."""
        position, velocity = self.encoder.read(self.world.now)
        if not isfinite(position):
            position, velocity = 0.0, 0.0
        return position - self._zero, velocity

    def _with_motion(self, data: bytes) -> bytes:
        """A reply with position, velocity and torque; the position goes on at the other end of its range."""
        ranges, (position, velocity) = self._ranges, self._motion()
        end = ranges.position
        position = (position + end) % (2 * end) - end
        torque = self.motor.torque() if self.motor.enabled else 0.0
        data = written(self.fields.position, data, position, end)
        data = written(self.fields.velocity, data, velocity, ranges.velocity)
        return written(self.fields.torque, data, torque, ranges.torque * self.torque_table)


def _number_in(field: Field, frame: Frame, largest: float) -> float:
    """The number in a field that spans the range from -largest to largest."""
    return bits_in(frame, field) * 2 * largest / field.mask - largest


def written(field: Field, data: bytes, number: float, largest: float) -> bytes:
    """The payload with a number in such a field, rounded down and cut off at the ends of the range."""
    return field.written(data, min(field.mask, max(0, int((number + largest) * field.mask / (2 * largest)))))
