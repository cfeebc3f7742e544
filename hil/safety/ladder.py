"""The ladder of every end: the loop's torque, the drive's own ramp, the brake closed while torque is held, off.

Design: each drive is on one step of it and only goes down. Stages decide who goes down, and when a step has ended; the
rig sends the frames of each step at every tick.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf, isnan

import numpy as np

from hil.core.compiled import Calls, Struct
from hil.drives.base import Condition, Drive, Sample
from hil.frame import Frame
from hil.loop import SECOND
from servoctl.types import Array

STILL = 0.01  # a joint stands still below this share of its speed limit
LEFT = 0.04  # it has stopped only below this share of the largest speed of any joint in the stop, unless that is noise
NOISE = 0.001  # speeds below this share of the speed limit are noise
SHOWN = 2.0  # speeds below this many steps of the measured speed are noise
STILL_TICKS = 3  # ticks in a row below `STILL` until a joint counts as standing: one slow sample may be noise

GROWTH = 0.2
"""A drive does not brake by itself if its joint is so much faster than when it began [share of speed_limit]."""

END = 0.99  # from this share of the largest speed that its frames can say on, a joint may be any faster

REPORTS = 0.1  # [s] time for a drive to report that its own braking has ended


class Rung(IntEnum):
    """Step of the ladder."""

    LOOP = 0  # it makes the torque of the loop
    RAMP = 1  # it brakes by its own control
    BRAKE = 2  # its brake closes; torque is held meanwhile where the protocol can
    OFF = 3  # it is disabled


@dataclass
class OwnBraking:
    """What the samples of a drive that brakes by itself have shown."""

    speed: float  # [joint unit/s] of the joint when it began
    judged: int  # [ns] time of the last sample
    last: float = 0.0  # [joint unit/s] in that sample
    faster: int = 0  # samples in a row that were faster than when it began


class Ladder:
    """The step of each drive.

    `response`: change of each joint's speed in a period by a torque of one, shape (m,) [joint unit/s per actuator
    unit]: no loop holds a light joint more still than a step of its torque on the wire moves it.
    """

    def __init__(self, drives: Sequence[Drive], response: Array) -> None:
        self._drives, self._response = drives, response
        self.rungs = [Rung.LOOP] * len(drives)  # step of each drive
        self._since = [0] * len(drives)
        self.distrusted: set[int] = set()  # numbers of the drives whose encoder is not trusted
        # numbers of the drives whose torque acts otherwise than they compute, or not at all: their own control would
        # drive the axis, or wait for a standstill that does not come
        self.misled: set[int] = set()
        self.doubtful: set[int] = set()  # numbers of the drives whose brake closes first
        self.begun = False  # whether the controlled stop has begun
        self._resolved = False  # whether it has the steps of the measured speeds
        self.struct = Struct("ladder", {"m": len(drives)}, Calls())  # what C computes with, and remembers
        self.struct.c.m, self.struct.c.still_ticks, self.struct.c.left = len(drives), STILL_TICKS, LEFT
        self.struct.arrays["slow"][:] = [STILL * drive.settings.speed_limit for drive in drives]
        self._braking: dict[int, OwnBraking] = {}  # of the drives that brake by themselves

    def _resolve(self) -> None:
        """Takes the speeds below which joints only show noise, which are known after the bring-up."""
        _, steps, torques = np.array([drive.quantum() for drive in self._drives]).T
        limits = np.array([drive.settings.speed_limit for drive in self._drives])
        # fmax: a step not on the wire is NaN
        noise = np.fmax(SHOWN * steps, NOISE * limits)
        moved = np.minimum(np.nan_to_num(torques) * self._response, STILL * limits)
        self.struct.arrays["noise"][:], self._resolved = np.maximum(noise, moved), True

    def brake(self, number: int, now: int, must: bool) -> None:
        """Closes the brake of a drive, if it has one; `must`: the drive goes off for it where it closes only then."""
        drive = self._drives[number]
        if drive.settings.brake and (must or drive.holds_while_braking):
            self._lower(number, Rung.BRAKE, now)

    def fail(self, number: int, now: int) -> None:
        """A drive has switched itself off for a fault: it gets no torque any more, even if its fault goes away."""
        self._lower(number, Rung.OFF, now)

    def ramp(self, number: int, now: int, must: bool) -> None:
        """Lets a drive brake by itself.

        `must`: one that cannot do it, or whose encoder is not trusted, leaves the loop too: its brake closes, or it
        coasts.
        """
        drive = self._drives[number]
        blind = drive.ramp_needs_encoder and number in self.distrusted
        if drive.ramps and not blind and number not in self.misled:
            self._lower(number, Rung.RAMP, now)
        elif must:
            self._lower(number, Rung.BRAKE if drive.settings.brake else Rung.OFF, now)

    def ramp_all(self, now: int) -> None:
        """Takes every drive off the loop: it brakes by itself, by its brake, or coasts."""
        for number in range(len(self._drives)):
            self.ramp(number, now, must=True)

    def brake_doubtful(self, now: int) -> None:
        """Closes the brakes of axes in doubt that stand, where torque is held meanwhile."""
        for number in self.doubtful:
            if self.stands(number):
                self.brake(number, now, must=False)

    def close_brakes(self, now: int) -> None:
        """Closes the brakes of all drives that are not off: when a drive goes off by itself, it closes its brake."""
        for number, drive in enumerate(self._drives):
            if not drive.confirmed_off:
                self.brake(number, now, must=True)

    def _lower(self, number: int, rung: Rung, now: int) -> None:
        if rung > self.rungs[number]:
            self.rungs[number], self._since[number] = rung, now

    def begin(self) -> None:
        """The controlled stop begins: a joint counts as standing only by samples from now on."""
        self.begun = True
        self.begin_watch()

    def begin_watch(self) -> None:
        """Forgets the speeds of the ticks before: the next one may be the first of a stop."""
        self.struct.c.fastest = self.struct.arrays["still"][:] = 0

    def watch(self, speeds: Sequence[float], sound: Sequence[bool]) -> None:
        """Takes note of the speed of each joint at a tick, and whether its measurement may be used."""
        if not self._resolved:
            self._resolve()
        x, functions, count = self.struct.arrays, self.struct.functions, len(self._drives)
        x["speeds"][:], x["sound"][:] = speeds, sound[:count]
        functions.ladder_watch(self.struct.c)
        functions.ladder_keep(self.struct.c)
        for number, rung in enumerate(self.rungs):
            if rung is Rung.RAMP and self._runs_on(number):
                self.rungs[number] = Rung.OFF

    def _runs_on(self, number: int) -> bool:
        """Whether the braking of a drive makes its joint faster: it has no torque, or a wrong encoder or polarity.

        The samples of the drive count, not what sensing trusts: after a gap it trusts none of a joint that runs on.
        """
        drive, limits = self._drives[number], self._drives[number].settings
        sample = drive.sample or Sample(0.0, 0.0, 0.0, 0)
        speed = float(self.struct.arrays["speeds"][number]) if isnan(sample.velocity) else sample.velocity
        began = self._braking.setdefault(number, OwnBraking(abs(speed), sample.time))
        if sample.time == began.judged:
            return False
        # speeds from here on look alike: a brake, where there is one, stops such a joint sooner
        end = END * abs(limits.joint_rate(drive.ends.speed)) if limits.brake else inf
        # one that a neighbour has thrown, whose brake has closed, is faster too, but slows down
        faster = abs(speed) > min(began.speed + GROWTH * limits.speed_limit, end) and abs(speed) >= min(began.last, end)
        began.judged, began.last, began.faster = sample.time, abs(speed), began.faster + 1 if faster else 0
        return began.faster >= STILL_TICKS

    def stands(self, number: int) -> bool:
        """Whether a joint stands still, by samples that are not stale."""
        return bool(self.struct.arrays["still"][number] >= STILL_TICKS) and number not in self.distrusted

    def moving(self, now: int) -> dict[str, float]:
        """Name of each drive in the loop whose joint is seen to move -> its speed [share of speed_limit]."""
        x, found = self.struct.arrays, {}
        for number, (drive, rung) in enumerate(zip(self._drives, self.rungs, strict=True)):
            seen = x["sound"][number] and number not in self.distrusted
            if rung is Rung.LOOP and seen and not self.ended(number, now):
                found[drive.settings.name] = abs(float(x["speeds"][number])) / drive.settings.speed_limit
        return found

    def ended(self, number: int, now: int) -> bool:
        """Whether a drive has ended its step, or its time is over; in the loop: its joint stands, or it is off."""
        drive, elapsed = self._drives[number], (now - self._since[number]) / SECOND
        match self.rungs[number]:
            case Rung.LOOP:
                return self.stands(number) or drive.confirmed_off
            case Rung.RAMP:
                return drive.ramp_ended(self.stands(number)) or elapsed >= longest_ramp(drive)
            case Rung.BRAKE:
                return elapsed >= drive.settings.brake_time
            case Rung.OFF:
                return True

    def all_ended(self, now: int) -> bool:
        """Whether every drive has ended its step."""
        return all([self.ended(number, now) for number in range(len(self._drives))])

    @property
    def left(self) -> bool:
        """Whether no drive makes the torque of the loop any more."""
        return Rung.LOOP not in self.rungs

    def braking(self, now: int) -> bool:
        """Whether a brake is closing."""
        return any([rung is Rung.BRAKE and not self.ended(number, now) for number, rung in enumerate(self.rungs)])

    def holds(self, number: int) -> bool:
        """Whether a drive is sent a torque: in the loop, unless it has left it, and on a step that holds the joint."""
        drive, rung = self._drives[number], self.rungs[number]
        if rung is Rung.LOOP:
            return drive.condition is Condition.ENABLED or not drive.has_worked
        holding = {Rung.RAMP: drive.holds_while_ramping, Rung.BRAKE: drive.holds_while_braking}
        return not drive.confirmed_off and holding.get(rung, False)

    def frames(self, number: int, torque: float) -> Sequence[Frame]:
        """The frames of a drive's step, below the loop; `torque` holds the joint [actuator unit]."""
        drive = self._drives[number]
        if drive.confirmed_off:
            return drive.disable_frames()
        match self.rungs[number]:
            case Rung.RAMP:
                return drive.quick_stop_frames(torque)
            case Rung.BRAKE:
                return drive.brake_frames(torque, number not in self.distrusted | self.misled)
            case Rung.OFF:
                return drive.disable_frames()
            case Rung.LOOP:
                raise ValueError("a drive in the loop is commanded, not switched off")


def longest_ramp(drive: Drive) -> float:
    """Longest time for a drive to brake by itself from its largest speed, and to close its brake then [s]."""
    settings = drive.settings
    closing = settings.brake_time if settings.brake else 0.0
    return drive.ramp_time * settings.speed_limit / settings.ramp + closing + REPORTS
