"""The common part of emulated drives and encoder nodes, for all protocols.

Design: a node is a state machine, driven by frames and timers. It has a controller on the bus, an encoder and, if it is
a drive, a motor with a brake. Faults set its attributes and nothing else.

A drive that brakes by itself goes down a ramp to standstill, where it holds its position:

    w' = w_r' + K (w_r - w) + K I (p_r - p),    p_r' = w_r
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from functools import partial
from typing import Any, ClassVar

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.motor import Encoder, Motor
from hil.emulator.station import Medium
from hil.emulator.timers import Timer
from hil.frame import Frame
from hil.loop.clock import Event, cancel, nanoseconds

PERIOD = 0.001  # [s] period of a drive's own control
BANDWIDTH = 100.0  # K [1/s]: a tenth of what period and current loop allow
INTEGRAL = 25.0  # I [1/s]: a quarter of K, so that the loop has two equal poles
RAMP_TIME = 0.25  # [s] time of the ramp from the speed limit of the joint, where the drive is told no other
LONGEST_RAMP = 1.0  # [s] longest time for which a drive brakes by itself


class Ramp:
    """The set-points of one stop."""

    def __init__(self, position: float, speed: float, deceleration: float) -> None:
        self._position, self._speed = position, speed  # [rad], [rad/s] set-points of the motor
        self._deceleration = deceleration  # [rad/s^2]

    @property
    def over(self) -> bool:
        return not abs(self._speed) > 0.0

    def acceleration(self, position: float, speed: float) -> float:
        """Acceleration for the next period [rad/s^2], at this position [rad] and speed [rad/s] of the motor."""
        before = self._speed
        self._speed = max(0.0, abs(before) - self._deceleration * PERIOD) * (1.0 if before > 0.0 else -1.0)
        self._position += (before + self._speed) / 2 * PERIOD
        error = self._speed - speed + INTEGRAL * (self._position - position)
        return (self._speed - before) / PERIOD + BANDWIDTH * error

    def wait(self, position: float, speed: float) -> None:
        """Keeps the set-point with a motor that cannot follow, so that it does not run ahead."""
        self._position = position
        self._speed = speed if self._speed * speed > 0.0 else 0.0


STANDSTILL = 0.01  # a motor stands still below this share of its speed limit


class EmulatedNode(ABC):
    """A node with an encoder."""

    # kinds of fault that it can have, apart from those that every node can have
    special_faults: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, medium: Medium, settings: SensorSettings, encoder: Encoder) -> None:
        """Attaches the node, switched off."""
        self.medium, self.world = medium, medium.world  # its bus, and its time
        self.settings = settings  # its settings in the config
        self.encoder = encoder  # its encoder
        self.silent = False  # whether it sends nothing; faults set this and the following
        self.heart_stopped = False  # whether it sends no heartbeat
        # index of an object, or None for all -> abort code of every access to it
        self.aborts: dict[int | None, int] = {}
        self.delay = 0  # [ns] delay of its frames
        self.drift = 0.0  # [ppm] drift of its clock
        # (id, payload) -> payload that is sent; None: no change
        self.mangle: Callable[[int, bytes], bytes] | None = None
        self._boot: Event | None = None
        self.set_up()
        self.station = medium.attach(self.receive, self.listens())  # its CAN controller

    @abstractmethod
    def set_up(self) -> None:
        """Prepares the protocol, before the node is attached to its bus."""

    def option(self, name: str, default: Any) -> Any:
        """An option of its protocol, or one that only an emulated node has."""
        value = self.settings.options.get(name)
        return default if value is None else value

    def number(self, name: str, default: float) -> float:
        """The same as a number."""
        return float(self.option(name, default))

    @abstractmethod
    def listens(self) -> Container[int]:
        """Keys (`station.key`) of the frames that it receives."""

    @abstractmethod
    def receive(self, frame: Frame) -> None:
        """Handles a frame."""

    @abstractmethod
    def boot(self) -> None:
        """Starts up."""

    @abstractmethod
    def halt(self) -> None:
        """Loses its supply: timers and torque stop at once."""

    def reboot(self, duration: int) -> None:
        """Loses its supply and boots again after a time [ns]."""
        cancel(self._boot)
        self.halt()
        self.medium.power(self.station, False)
        self._boot = self.world.after(duration, self._return)

    def _return(self) -> None:
        self.medium.power(self.station, True)
        self.boot()

    def send(self, identity: int, data: bytes) -> None:
        if self.silent:
            return
        frame = self.settings.frame(identity, data if self.mangle is None else self.mangle(identity, data))
        if self.delay:
            self.world.after(self.delay, partial(self.station.send, frame))
        else:
            self.station.send(frame)

    def heartbeat_ids(self) -> tuple[int, int]:
        """Ids of the host's frames that prove to this node that it is alive: a value, and the mask of its bits."""
        raise NotImplementedError

    def follow_clock(self) -> None:
        for timer in self.timers():
            timer.drift_by(self.drift)

    def timers(self) -> list[Timer]:
        return []


class EmulatedDrive(EmulatedNode):
    """A drive: a node with a motor."""

    settings: DriveSettings
    codes: ClassVar[tuple[int, int]] = 1, 0xFFFF  # first and last error code that its frames can hold
    usual_code: ClassVar[int]  # its error code for over-current, or of its power stage
    overheat_code: int | None = None  # its error code for over-temperature; None: it has none of its own
    overvoltage_code: int | None = None  # its error code for over-voltage; None: it has none of its own
    voltage = 48.0  # [V] voltage of its supply; a supply that it shares with others sets it

    def __init__(self, medium: Medium, settings: DriveSettings, encoder: Encoder, motor: Motor) -> None:
        self.motor = motor  # its motor and brake
        self.refuses = False  # whether it refuses to be enabled; faults set this and the following
        self.wrong_mode = False  # whether it stays in another mode than commanded
        self.torque_table = 1.0  # its torque range, relative to the agreed one
        self._control: Event | None = None
        super().__init__(medium, settings, encoder)

    @classmethod
    def error_codes(cls, settings: SensorSettings) -> tuple[int, int]:
        """First and last error code that the frames of a drive with these settings can hold."""
        return cls.codes

    def temperature(self) -> float:
        """Temperature of drive and motor now [degree C]; it switches off where that is too high."""
        thermal = self.motor.thermal
        thermal.heat(self.motor.torque(), self.world.now)  # since the last call it had the torque that it has now
        temperature = thermal.temperature
        if self.motor.enabled and temperature >= thermal.trip:
            self.fail(self.overheat_code)
        return temperature

    def fail(self, code: int | None) -> None:
        """Loses its power stage at once, before it can brake, and trips; `code` None: the usual one."""
        self.motor.disable()
        self.trip(self.usual_code if code is None else code)

    @abstractmethod
    def trip(self, code: int) -> None:
        """Goes to the fault state with a code of its protocol."""

    @abstractmethod
    def clear_fault(self) -> None:
        """Clears the fault; the drive is disabled then."""

    def brake_down(self, ended: Callable[[], None] | None, deceleration: float | None = None) -> None:
        """Brakes by its own control: see `hil.emulator.node`. It then holds its position until `stop_control`.

        `ended` is called when it stands still, or after `LONGEST_RAMP`. `deceleration` of the motor [rad/s^2]; None:
        that from the speed limit in `RAMP_TIME`.
        """
        self.stop_control()
        self.motor.told("brakes")
        end = self.world.now + nanoseconds(LONGEST_RAMP)
        fastest = abs(self.settings.motor_rate(self.settings.speed_limit))
        largest = self.settings.motor_limit
        steepest = fastest / RAMP_TIME if deceleration is None else deceleration
        ramp, waiting = Ramp(*self.encoder.read(self.world.now), steepest), ended

        def go_on() -> None:
            nonlocal waiting
            position, speed = self.encoder.read(self.world.now)
            torque = self.motor.torque_for(ramp.acceleration(position, speed))
            if abs(torque) > largest:
                torque = math.copysign(largest, torque)
                ramp.wait(position, speed)
            self.motor.command(torque)
            self.control_again(go_on)
            stands = ramp.over and not abs(speed) > STANDSTILL * fastest
            if waiting is not None and (stands or self.world.now >= end):
                over, waiting = waiting, None
                over()

        go_on()

    def control_again(self, act: Callable[[], None]) -> None:
        """Lets the drive's own control act once more, a period from now."""
        self._control = self.world.after(nanoseconds(PERIOD), act)

    def stop_control(self) -> None:
        cancel(self._control)
        self.motor.release()
