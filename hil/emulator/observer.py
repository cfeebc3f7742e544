"""Checks the commands of the loop on the wire: finite, within the limits, and no torque after a disable.

Design: it decodes frames from the tables of the protocols and shares no code with the drivers or the emulated drives.
Torque commands must be finite, within the torque limit, and within the rate limit when they grow.
"""

import struct
from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from hil.drives.settings import DriveSettings
from hil.emulator.ranges import ranges_of
from hil.emulator.station import KeyFamily, Station, key
from hil.emulator.wire import Wire
from hil.frame import Frame
from hil.loop.clock import SECOND
from hil.loop.virtual_time import World

JITTER = 500_000
"""Commands may come this much closer together than they were computed [ns]: the bus delays them unevenly."""

WAITING = 0.6
"""Part of a period by which the wait for samples can delay a command, compared with the next one."""

GRACE = 100_000_000
"""A torque without an enabling command within this time counts as a torque after a disable [ns]."""


class Violation(NamedTuple):
    """A command that must not be on the wire.

    Attributes:
        time: Time of the frame [ns].
        drive: Name of the drive.
        what: What is wrong, in words.
        frame: The frame.
    """

    time: int
    drive: str
    what: str
    frame: Frame


class Observer:
    """Checks the torque commands of some drives, on the wires that `watch` is called with.

    Args:
        world: Its time.
        drives: Settings of the drives.

    Attributes:
        violations: Violations so far.
        jitter: Commands may come this much closer together than they were computed [ns].
        commands: Number of torque commands that it has read.
        largest: Drive -> largest commanded torque, at the joint.
    """

    def __init__(self, world: World, drives: Sequence[DriveSettings]) -> None:
        self._world = world
        self.violations: list[Violation] = []
        self.jitter = JITTER
        self.commands = 0
        self.largest = {drive.name: 0.0 for drive in drives}
        self._readers = [_READERS[drive.protocol](self, drive) for drive in drives]

    def watch(self, wire: Wire) -> None:
        """Checks the frames on a wire."""
        readers: dict[int, list[_Reader]] = {}
        for reader in self._readers:
            for identity in reader.identities if reader.bus == wire.name else ():
                readers.setdefault(identity, []).append(reader)
        families = [(reader.family, reader) for reader in self._readers if reader.family and reader.bus == wire.name]

        def tap(frame: Frame, sender: Station) -> None:
            if not sender.host or frame.remote:
                return
            number = key(frame)
            for reader in readers.get(number, ()):
                reader.see(frame, sender)
            for family, reader in families:
                if number in family:
                    reader.see(frame, sender)

        wire.taps.append(tap)

    def report(self) -> list[Violation]:
        """All violations by time, including torques that were not enabled in time."""
        for reader in self._readers:
            reader.settle(self._world.now)
        return sorted(self.violations, key=lambda violation: violation[:3])


class _Reader:
    """Reads the commands to one drive."""

    def __init__(self, observer: Observer, drive: DriveSettings) -> None:
        self._observer, self._drive, self.bus = observer, drive, drive.bus
        self._torque, self._time, self._enabled = 0.0, 0, False
        self._disabled_once = False
        self._early: tuple[int, Frame] | None = None
        self._waiting: tuple[Frame, ...] = ()
        self.quantum = 0.0
        self.family: KeyFamily | None = None

    @property
    def identities(self) -> list[int]:
        """Keys (`station.key`) of the frames to read."""
        raise NotImplementedError

    def see(self, frame: Frame, sender: Station) -> None:
        """Reads a frame of the host, and notes which frames wait behind it."""
        self.read(frame)
        self._waiting = tuple(sender.queue)

    def _together(self) -> bool:
        """Whether this command waited already when the one before it was sent.

        Two commands that wait together were held up by the bus: the time between them says nothing about their step.
        """
        identities, family = self.identities, self.family
        return any(
            number in identities or (family is not None and number in family) for number in map(key, self._waiting)
        )

    def read(self, frame: Frame) -> None:
        """Reads a frame of the host."""
        raise NotImplementedError

    def settle(self, now: int) -> None:
        """Reports a torque before its enabling command, if that did not come in time."""
        if self._early is not None and now - self._early[0] > GRACE:
            moment, frame = self._early
            self._early = None
            self._wrong("a torque after the drive was disabled", frame, moment)

    def enable(self) -> None:
        """Called when the host enables the drive."""
        self._enabled, self._early = True, None

    def disable(self) -> None:
        """Called when the host disables the drive."""
        self._disabled_once = self._disabled_once or self._enabled
        self._enabled = False
        self._torque = 0.0

    def torque(self, motor_torque: float, frame: Frame) -> None:
        """Checks a commanded torque of the motor [N m]."""
        observer, drive = self._observer, self._drive
        observer.commands += 1
        if self._early is not None:
            self.settle(frame.time)
        if not isfinite(motor_torque):
            self._wrong("a torque that is not a finite number", frame, frame.time)
            return
        torque, quantum = drive.sign * motor_torque * drive.gear, self.quantum * drive.gear
        size, before = abs(torque), self._torque
        if size > observer.largest[drive.name]:
            observer.largest[drive.name] = size
        if size > drive.torque_limit * (1 + 1e-6) + quantum:
            self._wrong(f"a torque of {torque:.6g}, the limit is {drive.torque_limit:g}", frame, frame.time)
        elapsed = (frame.time - self._time + observer.jitter) / SECOND
        grown = size > abs(before) or torque * before < 0
        step = abs(torque - before)
        # the torque that holds the pose is sent before the drive is enabled and its brake opens
        exempt = drive.brake and not self._enabled
        too_large = grown and not exempt and step > drive.torque_rate_limit * elapsed * (1 + 1e-6) + 2 * quantum
        if too_large and not self._together():
            self._wrong(
                f"a step of torque from {before:.6g} to {torque:.6g} in {elapsed:.4g} s, "
                f"the limit is {drive.torque_rate_limit:g} per second",
                frame,
                frame.time,
            )
        if not self._enabled and self._disabled_once and size > quantum and self._early is None:
            self._early = (frame.time, frame)
        self._torque, self._time = torque, frame.time

    def _wrong(self, what: str, frame: Frame, moment: int) -> None:
        self._observer.violations.append(Violation(moment, self._drive.name, what, frame))


class _ODriveReader(_Reader):
    """Set_Input_Torque 0x0E, Set_Axis_State 0x07, Estop 0x02; torque of the motor as a float."""

    @property
    def identities(self) -> list[int]:
        return [self._drive.node * 32 + command for command in (0x02, 0x07, 0x0C, 0x0D, 0x0E)]

    def read(self, frame: Frame) -> None:
        command = frame.id % 32
        if command == 0x0E and len(frame.data) >= 4:
            self.torque(struct.unpack("<f", frame.data[:4])[0], frame)
        elif command == 0x07 and frame.data[:4] == b"\x08\0\0\0":
            self.enable()
        elif command in (0x07, 0x02):
            self.disable()
        else:
            self._wrong("a setpoint that is no torque", frame, frame.time)


_RPDO1 = struct.Struct("<Hh")


class _CiA402Reader(_Reader):
    """RPDO1 at 0x200 + node: controlword, target torque in thousandths of the rated torque."""

    def __init__(self, observer: Observer, drive: DriveSettings) -> None:
        super().__init__(observer, drive)
        self._rated = 1.0 if drive.rated_torque is None else round(drive.rated_torque * 1000) / 1000
        self.quantum = self._rated / 1000

    @property
    def identities(self) -> list[int]:
        return [0x200 + self._drive.node, 0]

    def read(self, frame: Frame) -> None:
        if frame.id == 0:
            if len(frame.data) == 2 and frame.data[1] in (0, self._drive.node) and frame.data[0] != 1:
                self.disable()
            return
        if len(frame.data) != 4:
            self._wrong(f"an RPDO1 of {len(frame.data)} bytes, expected 4", frame, frame.time)
            return
        word, thousandths = _RPDO1.unpack(frame.data)
        if word & 0x8F == 0x0F:
            self.enable()
        elif self._enabled:
            self.disable()
        self.torque(thousandths * self._rated / 1000, frame)


class _MitReader(_Reader):
    """Eight bytes, most significant bit first: position 16, velocity 12, kp 12, kd 12, torque 12."""

    def __init__(self, observer: Observer, drive: DriveSettings) -> None:
        super().__init__(observer, drive)
        self._largest = ranges_of(drive.options)["torque"]
        self.quantum = 2 * self._largest / 4095

    @property
    def identities(self) -> list[int]:
        return [self._drive.node]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if len(data) != 8:
            self._wrong(f"a command of {len(data)} bytes, expected 8", frame, frame.time)
        elif data[:6] == b"\xff" * 6 and data[7] >= 0xFA:
            if data[7] == 0xFC:
                self.enable()
            elif data[7] == 0xFD:
                self.disable()
        else:
            if (data[3] & 0x0F) << 8 | data[4] or data[5] << 4 | data[6] >> 4:
                self._wrong("gains that are not zero", frame, frame.time)
            number = (data[6] & 0x0F) << 8 | data[7]
            self.torque(-self._largest + number * 2 * self._largest / 4095, frame)


class _MoteusReader(_Reader):
    """Mode (register 0) first; torque as a float in register 0x22, position NaN, gains 0."""

    @property
    def identities(self) -> list[int]:
        return [1 << 29 | 0x8000 | self._drive.node, self._drive.node]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if data[:2] != b"\x01\x00":
            if data[:1] < b"\x10":
                self._wrong("registers without a mode before them", frame, frame.time)
        elif data[2] == 10:
            if data[3:8] != b"\x01\x20\x80\x0d\x22" or data[12:16] != b"\x02\x23\x00\x00":
                self._wrong("a setpoint that is no torque", frame, frame.time)
            else:
                self.torque(struct.unpack("<f", data[8:12])[0], frame)
            self.enable()
        else:
            self.disable()


class _RobstrideReader(_Reader):
    """Id of 29 bits: kind in bits 24 to 28, torque of kind 1 in bits 8 to 23, the motor below; kp and kd last."""

    def __init__(self, observer: Observer, drive: DriveSettings) -> None:
        super().__init__(observer, drive)
        self._largest = ranges_of(drive.options)["torque"]
        self.quantum = 2 * self._largest / 65535
        self.family = KeyFamily(1 << 29 | 0xFF, 1 << 29 | drive.node)

    @property
    def identities(self) -> list[int]:
        return []

    def read(self, frame: Frame) -> None:
        kind = frame.id // 0x100_0000
        if kind == 3:
            self.enable()
        elif kind == 4:
            self.disable()
        elif kind == 1:
            if len(frame.data) != 8 or any(frame.data[4:]):
                self._wrong("gains that are not zero", frame, frame.time)
            number = frame.id // 0x100 % 0x10000
            self.torque(-self._largest + number * 2 * self._largest / 65535, frame)


_READERS: dict[str, type[_Reader]] = {
    "odrive": _ODriveReader, "cia402": _CiA402Reader, "mit": _MitReader, "moteus": _MoteusReader,
    "robstride": _RobstrideReader,
}  # fmt: skip
