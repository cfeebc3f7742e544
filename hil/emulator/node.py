"""What emulated nodes have in common, whatever they speak.

Design: a node is a state machine that frames and timers move. It knows its place on the wire, its encoder and, where it
is a drive, its motor and brake; faults set the attributes below and nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from hil.drives.settings import DriveSettings, SensorSettings
from hil.emulator.encoder import Encoder
from hil.emulator.motor import Motor
from hil.emulator.station import Station
from hil.emulator.timers import Timer
from hil.frame import Frame
from hil.loop.clock import SECOND, nanoseconds
from hil.loop.virtual_time import Event, World, cancel
from servoctl.expression import constant

FULL_TORQUE = 0.05
"""Share of the speed limit from which on a drive that brakes by itself does so with all its torque."""

HOLDING = 10.0
"""Stiffness of a drive that holds, per its damping [1/s]."""


class Medium(Protocol):
    """What a node can be attached to: the emulated wire, or a real bus."""

    def attach(self, name: str, receive: Callable[[Frame], None], ids: frozenset[int]) -> Station:
        """Puts a node on the bus; it takes frames of these ids."""

    def listen(self, station: Station, ids: frozenset[int]) -> None:
        """Changes what it takes."""

    def power(self, station: Station, powered: bool) -> None:
        """Switches it off or on."""


class EmulatedNode(ABC):
    """A node on a bus that measures.

    Attributes:
        settings: What the config says of it.
        encoder: What it measures with.
        station: Its controller.
        silent: Whether it sends nothing at all; this and what follows are set by faults.
        heart_stopped: Whether it sends no heartbeat.
        delay: How late it sends [ns].
        mangle: Changes the payload of a frame with an id; None: nobody does.
        drift: Of its clock [ppm].
    """

    _attached = False

    def __init__(
        self, world: World, medium: Medium, settings: SensorSettings, encoder: Encoder, quirks: Mapping[str, Any]
    ) -> None:
        """Puts the node on the bus, switched off.

        Args:
            world: Its time.
            medium: Its bus.
            settings: What the config says of it.
            encoder: What it measures with.
            quirks: What it is like beyond its options, which they override.
        """
        self.world, self.settings, self.encoder = world, settings, encoder
        self._options = {**settings.options, **quirks}
        self.silent = self.heart_stopped = False
        self.delay, self.drift = 0, 0.0
        self.mangle: Callable[[int, bytes], bytes] | None = None
        self._medium = medium
        self.station = medium.attach(settings.name, self.receive, self.listens())
        self._attached = True
        self._boot: Event | None = None

    def option(self, name: str, default: Any) -> Any:
        """An option of its protocol, or a quirk."""
        value = self._options.get(name)
        return default if value is None else value

    def number(self, name: str, default: float) -> float:
        """The same, where it is a number or a constant expression."""
        return float(constant(self.option(name, default)))

    @abstractmethod
    def listens(self) -> frozenset[int]:
        """Keys of the frames that it takes."""

    @abstractmethod
    def receive(self, frame: Frame) -> None:
        """Takes a frame."""

    @abstractmethod
    def boot(self) -> None:
        """Comes up."""

    @abstractmethod
    def halt(self) -> None:
        """Forgets everything at once, as when the supply fails: no timer runs, no torque is made."""

    def reboot(self, duration: int) -> None:
        """Loses its supply and comes back after a time [ns]."""
        cancel(self._boot)
        self.halt()
        self._medium.power(self.station, False)
        self._boot = self.world.after(duration, self._return)

    def _return(self) -> None:
        self._medium.power(self.station, True)
        self.boot()

    def relisten(self) -> None:
        """Tells the bus that other frames matter now."""
        if self._attached:
            self._medium.listen(self.station, self.listens())

    def send(self, identity: int, data: bytes) -> None:
        """Sends a frame with 11 bits of id."""
        if self.silent:
            return
        frame = Frame(identity, data if self.mangle is None else self.mangle(identity, data))
        if self.delay:
            self.world.after(self.delay, partial(self._send, frame))
        else:
            self.station.send(frame)

    def _send(self, frame: Frame) -> None:
        self.station.send(frame)

    def set_drift(self, ppm: float) -> None:
        """Lets its clock drift."""
        self.drift = ppm
        for timer in self.timers():
            timer.drift_by(ppm)

    def timers(self) -> list[Timer]:
        """Its cyclic timers."""
        return []


class EmulatedDrive(EmulatedNode):
    """A node that makes torque.

    Attributes:
        motor: Its motor and brake.
        refuses: Whether it does not let itself be enabled; this and what follows are set by faults.
        wrong_mode: Whether it stays in another mode than it is told.
        torque_table: Its own torque range, per the one that is agreed on.
    """

    settings: DriveSettings

    def __init__(
        self,
        world: World,
        medium: Medium,
        settings: DriveSettings,
        encoder: Encoder,
        motor: Motor,
        quirks: Mapping[str, Any],
    ) -> None:
        """Puts the drive on the bus, switched off; arguments as of `EmulatedNode`."""
        self.motor = motor
        self.refuses = self.wrong_mode = False
        self.torque_table = 1.0
        self._damping = settings.torque_limit / (FULL_TORQUE * settings.speed_limit) / settings.gear**2
        self._braking: Event | None = None
        super().__init__(world, medium, settings, encoder, quirks)

    @abstractmethod
    def trip(self, code: int) -> None:
        """Goes to fault with a code of its protocol."""

    @abstractmethod
    def clear_fault(self) -> None:
        """Is well again by itself, and disabled."""

    def brake_down(self, ended: Callable[[], None] | None, limit: float = 0.0) -> None:
        """Brakes by its own control, `u = -D v` within the torque limit, until it stands or for `limit` [s].

        Args:
            ended: Called then; None: it holds where it stands.
            limit: [s].
        """
        self.stop_braking()
        self.motor.told("brakes")
        end = self.world.now + nanoseconds(limit)
        still = 0.01 * self.settings.speed_limit * self.settings.gear
        largest = abs(self.settings.motor_torque(self.settings.torque_limit))
        place: float | None = None

        def go_on() -> None:
            nonlocal place
            position, speed = self.encoder.read(self.world.now)
            stands = not abs(speed) > still
            if ended is not None and (stands or self.world.now >= end):
                self._braking = None
                ended()
                return
            place = position if stands and place is None else place
            torque = -self._damping * (speed + (0.0 if place is None else HOLDING * (position - place)))
            self.motor.command(min(largest, max(-largest, torque)))
            self._braking = self.world.after(SECOND // 1000, go_on)

        go_on()

    def stop_braking(self) -> None:
        """Ends that, if it goes on."""
        cancel(self._braking)
        self._braking = None
