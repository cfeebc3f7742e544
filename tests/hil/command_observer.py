"""What a torque command on the wire must be: finite, within the limits, and not to a drive that was disabled.

Torque commands must be finite, within the torque limit, and within the rate limit when they grow, from one hand-over to
the controller to the next: the bus delays frames unevenly, and a broken one holds them up.

Design: frames are decoded from the tables of the protocols, by one class per protocol; no code is shared with drivers
or emulated drives, so that an error in theirs shows.
"""

import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from math import isfinite
from typing import Any, NamedTuple

import pytest
import yaml

from hil.assembly import emulation
from hil.assembly.emulation import make_emulator
from hil.assembly.setup import RigSetup
from hil.drives.settings import DriveSettings
from hil.emulator.emulator import Emulator
from hil.emulator.station import Station, key
from hil.emulator.wire import EmulatedWire
from hil.frame import Frame, IdFamily
from hil.loop.clock import SECOND
from hil.session import start
from servoctl.expression import constant

ROUNDED = 4
"""Steps of the wire by which a change of torque may exceed the limit: two frames are each a step off, and each carries
what the one before it has left, up to a step."""

SINGLE = 2.0**-23  # largest error of the difference of two numbers of 32 bits, as a share of the larger one

GRACE = 100_000_000  # [ns] a torque without an enabling command within this time counts as a torque after a disable


class Violation(NamedTuple):
    """A command that must not be on the wire."""

    time: int  # [ns] time of the frame
    drive: str  # name of the drive
    what: str  # what is wrong, in words
    frame: Frame


@dataclass
class CommandFindings:
    """What the readers of all drives have found."""

    violations: list[Violation] = field(default_factory=list)  # violations so far
    commands: int = 0  # number of torque commands that were read
    largest: dict[str, float] = field(default_factory=dict)  # drive -> largest commanded torque, at the joint


class CommandReader(ABC):
    """Reads the commands of the loop to one drive, and writes into the findings what is wrong with them."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        self._findings = findings
        self.drive = drive  # settings of the drive
        self.bus = drive.bus  # name of its bus
        self._torque, self._time = 0.0, 0  # last torque at the joint, and when it was handed over [ns]
        self._handed_over = 0
        self.enabled = False  # whether the host has enabled the drive
        self._disabled_once = False
        self._early: tuple[int, Frame] | None = None
        self._gear = drive.sign * drive.gear  # not by the driver's own conversion, which this judges
        self.quantum = 0.0  # [N m] smallest step of the torque on the wire, at the motor
        # further frames to read, of 29 bits, which hold data in their ids; None: none
        self.family: IdFamily | None = None

    @property
    @abstractmethod
    def identities(self) -> Collection[int]:
        """Keys (`station.key`) of the frames to read."""

    @property
    def silent(self) -> bool:
        """Whether it has read no command that enables the drive, and no torque."""
        return not (self._time or self.enabled or self._disabled_once)

    def takes(self, number: int) -> bool:
        """Whether frames with this key are read."""
        return number in self.identities or (self.family is not None and number in self.family)

    def see(self, frame: Frame, handed_over: int) -> None:
        """Reads a frame that the host handed over to its controller at a time [ns]."""
        self._handed_over = handed_over
        self.read(frame)

    @abstractmethod
    def read(self, frame: Frame) -> None:
        """Reads a frame of the host: calls `enable`, `disable`, `torque` or `wrong`."""

    def settle(self, now: int) -> None:
        """Reports a torque before its enabling command, if that did not come in time."""
        if self._early is not None and now - self._early[0] > GRACE:
            moment, frame = self._early
            self._early = None
            self.wrong("a torque after the drive was disabled", frame, moment)

    def enable(self) -> None:
        self.enabled, self._early = True, None

    def disable(self) -> None:
        """Called when the host disables the drive."""
        self._disabled_once = self._disabled_once or self.enabled
        self.enabled = False
        self._torque = 0.0

    def torque(self, motor_torque: float, frame: Frame) -> None:
        """Checks a commanded torque of the motor [N m]."""
        findings, drive = self._findings, self.drive
        findings.commands += 1
        if self._early is not None:
            self.settle(frame.time)
        if not isfinite(motor_torque):
            self.wrong("a torque that is not a finite number", frame)
            return
        torque, quantum = self._gear * motor_torque, self.quantum * drive.gear
        size, before = abs(torque), self._torque
        if size > findings.largest[drive.name]:
            findings.largest[drive.name] = size
        if size > drive.torque_limit * (1 + 1e-6) + quantum:
            self.wrong(f"a torque of {torque:.6g}, the limit is {drive.torque_limit:g}", frame)
        step = abs(torque - before)
        turns = torque * before < 0 and size > quantum  # a frame may have no zero, but a step to either side of it
        # the torque that holds the pose is sent before the drive is enabled and its brake opens
        exempt = drive.brake and not self.enabled
        rounded = ROUNDED * quantum + size * SINGLE
        if step > rounded and (size > abs(before) or turns) and not exempt:
            self._check_rate(torque, step - rounded, frame)
        if not self.enabled and self._disabled_once and size > quantum and self._early is None:
            self._early = (frame.time, frame)
        self._torque, self._time = torque, self._handed_over

    def _check_rate(self, torque: float, step: float, frame: Frame) -> None:
        """Checks a torque that grew by a step, at the joint, against the rate limit."""
        elapsed = (self._handed_over - self._time) / SECOND
        limit = self.drive.torque_rate_limit
        if step > limit * elapsed * (1 + 1e-6):
            self.wrong(
                f"a step of torque from {self._torque:.6g} to {torque:.6g} in {elapsed:.4g} s, "
                f"the limit is {limit:g} per second",
                frame,
            )

    def wrong(self, what: str, frame: Frame, moment: int | None = None) -> None:
        """Reports a violation in a frame; `moment` is its time [ns], None that of the frame."""
        self._findings.violations.append(
            Violation(frame.time if moment is None else moment, self.drive.name, what, frame)
        )


class ODriveReader(CommandReader):
    """Set_Input_Torque 0x0E, Set_Axis_State 0x07, Estop 0x02; torque of the motor as a float."""

    @property
    def identities(self) -> Collection[int]:
        return [self.drive.node * 32 + command for command in (0x02, 0x07, 0x0C, 0x0D, 0x0E)]

    def read(self, frame: Frame) -> None:
        command = frame.id % 32
        if command == 0x0E and len(frame.data) >= 4:
            self.torque(struct.unpack("<f", frame.data[:4])[0], frame)
        elif command == 0x07 and frame.data[:4] == b"\x08\0\0\0":
            self.enable()
        elif command in (0x07, 0x02):
            self.disable()
        else:
            self.wrong("a setpoint that is no torque", frame)


_RPDO1 = struct.Struct("<Hh")


class CiA402Reader(CommandReader):
    """RPDO1 at 0x200 + node: controlword, target torque in thousandths of the rated torque."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._rated = 1.0 if drive.rated_torque is None else round(drive.rated_torque * 1000) / 1000
        self.quantum = self._rated / 1000

    @property
    def identities(self) -> Collection[int]:
        return [0x200 + self.drive.node, 0]

    def read(self, frame: Frame) -> None:
        if frame.id == 0:
            if len(frame.data) == 2 and frame.data[1] in (0, self.drive.node) and frame.data[0] != 1:
                self.disable()
            return
        if len(frame.data) != 4:
            self.wrong(f"an RPDO1 of {len(frame.data)} bytes, expected 4", frame)
            return
        word, thousandths = _RPDO1.unpack(frame.data)
        if word & 0x8F == 0x0F:
            self.enable()
        elif not word & 0x02 and self.enabled:  # quick stop, 0x06 and 0x07 may hold torque until a brake is closed
            self.disable()
        motor_torque = thousandths * self._rated / 1000
        if self.enabled and word & 0x8E == 0x06:  # it is held after a quick stop too, whose frames have none
            self._torque = self._gear * motor_torque
        self.torque(motor_torque, frame)


_RANGES = yaml.safe_load((resources.files("hil") / "drives/mit_ranges.yaml").read_text())
MINI_CHEETAH = {"torque": 18.0}


def torque_range(options: Mapping[str, Any]) -> float:
    """Largest torque that a frame can say [N m]: by `ranges`, or by `motor`, a name in the table."""
    ranges = options.get("ranges") or (_RANGES[options["motor"]] if options.get("motor") else MINI_CHEETAH)
    return float(constant(ranges["torque"]))


class MitReader(CommandReader):
    """Eight bytes, most significant bit first: position 16, velocity 12, kp 12, kd 12, torque 12."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._largest = torque_range(drive.options)
        self.quantum = 2 * self._largest / 4095

    @property
    def identities(self) -> Collection[int]:
        return [self.drive.node]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if len(data) != 8:
            self.wrong(f"a command of {len(data)} bytes, expected 8", frame)
        elif data[:6] == b"\xff" * 6 and data[7] >= 0xFA:
            if data[7] == 0xFC:
                self.enable()
            elif data[7] == 0xFD:
                self.disable()
        else:
            if (data[3] & 0x0F) << 8 | data[4]:
                self.wrong("a stiffness that is not zero", frame)
            if (data[5] or data[6] >> 4) and data[2:4] not in (b"\x7f\xf0", b"\x80\x00"):
                self.wrong("a damping around a velocity that is not zero", frame)
            number = (data[6] & 0x0F) << 8 | data[7]
            self.torque(-self._largest + number * 2 * self._largest / 4095, frame)


class MoteusReader(CommandReader):
    """Mode (register 0) first; torque as a float in register 0x22, position NaN, gains 0."""

    @property
    def identities(self) -> Collection[int]:
        number = int(constant(self.drive.options.get("source") or 0)) << 8 | self.drive.node
        return [each | (each > 0x7FF) << 29 for each in (0x8000 | number, number)]

    def read(self, frame: Frame) -> None:
        data = frame.data
        if data[:2] != b"\x01\x00":
            if data[:1] < b"\x10":
                self.wrong("registers without a mode before them", frame)
        elif data[2] == 10:
            if data[3:8] != b"\x01\x20\x80\x0d\x22" or data[12:16] != b"\x02\x23\x00\x00":
                self.wrong("a setpoint that is no torque", frame)
            else:
                self.torque(struct.unpack("<f", data[8:12])[0], frame)
            self.enable()
        else:
            self.disable()


class RobStrideReader(CommandReader):
    """Id of 29 bits: kind in bits 24 to 28, torque of kind 1 in bits 8 to 23, the motor below; kp and kd last."""

    def __init__(self, findings: CommandFindings, drive: DriveSettings) -> None:
        super().__init__(findings, drive)
        self._largest = torque_range(drive.options)
        self.quantum = 2 * self._largest / 65535
        self.family = IdFamily(1 << 29 | 0xFF, 1 << 29 | drive.node)

    @property
    def identities(self) -> Collection[int]:
        return []

    def read(self, frame: Frame) -> None:
        kind = frame.id // 0x100_0000
        if kind == 3:
            self.enable()
        elif kind == 4:
            self.disable()
        elif kind == 1:
            if len(frame.data) != 8 or any(frame.data[4:6]):
                self.wrong("a stiffness that is not zero", frame)
            elif any(frame.data[6:]) and frame.data[2:4] not in (b"\x7f\xff", b"\x80\x00"):
                self.wrong("a damping around a velocity that is not zero", frame)
            number = frame.id // 0x100 % 0x10000
            self.torque(-self._largest + number * 2 * self._largest / 65535, frame)


READERS: dict[str, type[CommandReader]] = {
    "cia402": CiA402Reader,
    "mit": MitReader,
    "moteus": MoteusReader,
    "odrive": ODriveReader,
    "robstride": RobStrideReader,
}


class CommandObserver:
    """Checks the torque commands on the wires of emulated drives, from the time at which it is made.

    Args:
        emulator: The drives and their wires.
        drives: Their settings as the loop knows them, in whose terms commands are checked.
    """

    def __init__(self, emulator: Emulator, drives: Sequence[DriveSettings]) -> None:
        self.emulator = emulator
        self.findings = CommandFindings(largest={drive.name: 0.0 for drive in drives})  # what it has found so far
        self._readers = [READERS[drive.protocol](self.findings, drive) for drive in drives]
        for wire in emulator.wires.values():
            self._watch(wire)

    def _watch(self, wire: EmulatedWire) -> None:
        @lru_cache(4096)  # ids may hold data, so there may be any number of them
        def readers(number: int) -> list[CommandReader]:
            return [reader for reader in self._readers if reader.bus == wire.name and reader.takes(number)]

        bus = self.emulator.buses[wire.name]
        queue, send = bus.station.queue, bus.send
        handed_over = deque([0] * len(queue))  # [ns] when the host did, for what is in its queue

        def timed(frame: Frame) -> None:
            now = wire.world.now  # it may wait for room
            send(frame)
            handed_over.append(now)

        def tap(frame: Frame, sender: Station) -> None:
            if not sender.host:
                return
            while len(handed_over) > len(queue) + 1:  # its queue was cleared meanwhile
                handed_over.popleft()
            when = handed_over.popleft()
            for reader in [] if frame.remote else readers(key(frame)):
                reader.see(frame, when)

        bus.send = timed  # type: ignore[method-assign]
        wire.taps.append(tap)

    def report(self) -> list[Violation]:
        """All violations by time, including torques that were not enabled in time, and readers that read nothing."""
        now = self.emulator.world.now
        for reader in self._readers:
            reader.settle(now)
        # a drive that has made torque was told to by a command, which its reader must have read
        silent = [reader.drive.name for reader in self._readers if reader.silent and self._has_worked(reader)]
        what = "nothing, though the drive was enabled: its reader reads no command"
        found = [*self.findings.violations, *(Violation(now, name, what, Frame(0)) for name in silent)]
        return sorted(found, key=lambda violation: violation[:3])

    def _has_worked(self, reader: CommandReader) -> bool:
        return self.emulator.drives[reader.drive.name].motor.has_worked


@contextmanager
def observed() -> Iterator[list[CommandObserver]]:
    """The observers of the emulated drives of all runs that are started meanwhile."""
    observers: list[CommandObserver] = []

    def make(setup: RigSetup, *options: Any) -> Emulator:
        emulator = make_emulator(setup, *options)
        observers.append(CommandObserver(emulator, setup.settings.drives))
        return emulator

    with pytest.MonkeyPatch.context() as patch:
        for user in (emulation, start):
            patch.setattr(user, "make_emulator", make)
        yield observers
