"""What a torque command on the wire must be: finite, within the limits, and not to a drive that was disabled.

Torque commands must be finite, within the torque limit, and within the rate limit when they grow, from one hand-over to
the controller to the next: the bus delays frames unevenly, and a broken one holds them up.

Design: frames are decoded from the tables of the protocols; no code is shared with drivers or emulated drives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from hil.drives.settings import DriveSettings
from hil.emulator.station import Station, key
from hil.emulator.wire import EmulatedWire
from hil.frame import Frame, IdFamily
from hil.loop.clock import SECOND, World

ROUNDED = 4
"""Steps of the wire by which a change of torque may exceed the limit: two frames are each a step off, and each carries
what the one before it has left, up to a step."""

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
        rounded = ROUNDED * quantum
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


class CommandObserver:
    """Checks the torque commands of some drives, on the wires that `watch` is called with.

    `working`: returns the names of the drives that have made torque, whose readers must have read why.
    """

    def __init__(
        self,
        world: World,
        drives: Sequence[DriveSettings],
        kinds: Mapping[str, type[CommandReader]],
        working: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._world, self._working = world, working
        self.findings = CommandFindings(largest={drive.name: 0.0 for drive in drives})  # what it has found so far
        self._readers = [kinds[drive.protocol](self.findings, drive) for drive in drives]

    def watch(self, wire: EmulatedWire) -> None:
        """Checks the frames on a wire."""

        @lru_cache(4096)  # ids may hold data, so there may be any number of them
        def readers(number: int) -> list[CommandReader]:
            return [reader for reader in self._readers if reader.bus == wire.name and reader.takes(number)]

        def tap(frame: Frame, sender: Station) -> None:
            if sender.host and not frame.remote:
                for reader in readers(key(frame)):
                    reader.see(frame, sender.handed_over)

        wire.taps.append(tap)

    def report(self) -> list[Violation]:
        """All violations by time, including torques that were not enabled in time, and readers that read nothing."""
        now, working = self._world.now, self._working()
        for reader in self._readers:
            reader.settle(now)
        silent = [reader.drive.name for reader in self._readers if reader.silent and reader.drive.name in working]
        what = "nothing, though the drive was enabled: its reader reads no command"
        found = [*self.findings.violations, *(Violation(now, name, what, Frame(0)) for name in silent)]
        return sorted(found, key=lambda violation: violation[:3])
