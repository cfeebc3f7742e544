"""The test of the drives in a run: what it finds is reported, and what a drive makes of a command is allowed for."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from hil.drives.base import Drive
from hil.drives.settings import RUNAWAY
from hil.loop import SECOND, Reading, Tick
from hil.safety.events import EventKind
from hil.safety.ladder import GROWTH, Ladder
from hil.safety.monitor import Monitor
from hil.safety.plan import Phase
from hil.safety.proof import LARGEST, SMALLEST, ProofPlan, State, TorqueProof
from hil.safety.torques import PoseHold, TorqueSource
from servoctl.types import Array

PROVING = (Phase.ENABLING, Phase.ZERO)  # phases in which a drive may turn out to contradict the model
RECONSIDERED = range(3, 30)  # ticks after a finding in which another way to act is looked for
CLEARER = 2.0  # how much less of the motion it must leave unexplained
DISTINCT = 0.3  # share of the torque from which on its sign is certain


MOST = 2.0
"""Largest torque for a weak motor, as a share of that which is to act: a hand that pushes the axis looks the same, and
when it lets go the axis must not move faster than it would fall."""


class Acting(NamedTuple):
    """How a drive acts, by its own samples: W y'' = torque u - gravity g."""

    torque: float = 1.0  # torque that acts, as a share of that sent
    gravity: float = 1.0  # that acts, as a share of the model's; -1: its positions count backwards

    @property
    def correction(self) -> float:
        """Torque to send for one that is to act, as a share of it; against the sign of the config at most 1."""
        if self.torque < 0.0:
            return -1.0 / max(1.0, -self.torque)
        return min(MOST, 1.0 / self.torque)


BACKWARDS = {
    1.0: "its torque acts the wrong way too: sign is wrong, or its load pulls the other way",
    -1.0: "its torque acts the right way: its encoder is wrong",
}
"""What is wrong where positions count the wrong way, and so much of the torque acts by them."""


class DriveRig(Protocol):
    """A rig whose drives are enabled before the task and disabled after it."""

    drives: Sequence[Drive]  # in the order of the plant's actuators
    ladder: Ladder  # on which step from torque to off each drive is; `write` sends the frames of these steps

    @property
    def present(self) -> tuple[int, float]:
        """Present time [ns], and the time since the last reading [s], by which its samples are older now."""

    def carried(self, command: Array) -> Array:
        """The torques in the frames that send these, shape (m,): the steps of the protocols round them."""
        return np.array([drive.carried(torque) for drive, torque in zip(self.drives, command.tolist(), strict=True)])

    def begin_enable(self, torques: Sequence[float]) -> None:
        """Starts to enable every drive; each makes its torque [actuator unit], at the joint, from the first moment."""

    def advance(self) -> bool:
        """Continues to enable the drives; returns whether all of them are enabled.

        Raises DriveError if a drive refuses, or does not answer in time.
        """

    def disable(self) -> bool:
        """Switches every drive off; returns whether all drives have confirmed it. Never raises."""

    def start_problems(self) -> list[tuple[str, str]]:
        """Name and explanation of each drive and encoder node that contradicts the start pose."""

    def watch(self, monitor: Monitor, now: int, ages: Sequence[float], working: bool) -> None:
        """Reports the condition of nodes and buses in the tick that began now [ns].

        `ages`: of each node's sample [s]; 0 as long as none is expected. `working`: whether every drive that is in the
        loop should be enabled.
        """

    def watch_unproved(self, numbers: Sequence[int]) -> None:
        """From now on drives that stage zero has not proved are stopped as soon as they move against their torque."""

    def let_guide(self) -> None:
        """From now on a hand moves the machine: its motion is not compared with the model any more."""


class DriveTest:
    """The test of the drives, from the tick that begins to enable them to the end of stage zero.

    The limits are confined to low torque until it is over.
    """

    def __init__(self, plan: ProofPlan, rig: DriveRig, monitor: Monitor, torques: TorqueSource, pose: PoseHold) -> None:
        settings, period = [drive.settings for drive in rig.drives], monitor.bounds.period
        self.proof = TorqueProof(plan, settings, period)  # what it has shown of each drive
        self._rig, self._monitor, self._torques, self._pose = rig, monitor, torques, pose
        torques.test(self.proof)
        self._acting: dict[int, Acting] = {}  # number of each drive that does not act by the model
        self._found: dict[int, int] = {}  # number of each drive that is sent other torques -> row of its finding

    @property
    def corrects(self) -> bool:
        """Whether a drive is sent less, or the opposite: off, its axis would fall until its brake is closed."""
        return bool(self._found)

    def correct(self, torques: Array) -> Array:
        """The torques to send for those that are to act, shape (m,)."""
        if not self._acting:
            return torques
        sent = torques.copy()
        for number, acting in self._acting.items():
            wanted = torques[number] - (1.0 - acting.gravity) * self._held[number]
            most = self._rig.drives[number].settings.torque_limit
            sent[number] = np.clip(acting.correction * wanted, -most, most)
        if self._found:
            self.proof.motion.sends(sent)
        return sent

    @property
    def unproved(self) -> list[int]:
        """Numbers of the drives that it has not proved."""
        return [number for number, axis in enumerate(self.proof.axes) if axis.state is not State.PROVED]

    def begin(self, reading: Reading) -> None:
        """Takes the pose at which the drives are enabled."""
        self.proof.begin(self._pose.gravity(reading.q), reading.positions)
        self._torques.confine(self.proof.limits)

    def judge(self, tick: Tick, reading: Reading) -> None:
        """Reports what the motion shows of the drives."""
        drives, proof = self._rig.drives, self.proof
        if (self._found and not reading.valid) or (proof.over and not self._found):
            return
        self._held = self._pose.gravity(reading.q).u
        samples = reading.positions, reading.speeds, reading.ages[: len(drives)].tolist(), self._held
        if self._found:
            if proof.motion.add(tick.elapsed / SECOND, *samples):
                self._reconsider(tick.began)
            return
        for finding in proof.judge(tick.elapsed / SECOND, *samples):
            self._monitor.report(tick.began, finding.kind, drives[finding.drive].settings.name, finding.detail)
            if finding.kind is EventKind.RESPONSE or (finding.kind is EventKind.REVERSED and finding.driven):
                self._correct(finding.drive)
            elif finding.kind in (EventKind.REVERSED, EventKind.UNSTEADY, EventKind.TORQUELESS):
                # its own control may drive it on, or wait for a standstill that does not come: its brake closes at
                # once, or it goes off where it has none and hardly moves, and the others stop
                if not finding.obeys:
                    self._rig.ladder.misled.add(finding.drive)
                if finding.share < 1.0:  # while its brake closes, a part of the torque that holds it would let it fall
                    self._acting[finding.drive] = Acting(finding.share)
                self._rig.ladder.ramp(finding.drive, tick.began, must=True)

    def _correct(self, number: int) -> None:
        drive = self._rig.drives[number]
        self._acting[number] = Acting(self.proof.axes[number].response)
        self._found[number] = len(self.proof.motion.v) - 1
        self._rig.ladder.misled.add(number)
        self.proof.limits[number] = drive.settings.torque_limit
        self._torques.confine(self.proof.limits)

    def _reconsider(self, now: int) -> None:
        """Finds out whether a drive that contradicts the model acts in another way than it seemed to at first.

        As long as its torque is the one that holds the pose, positions that count the wrong way look like too much
        torque, and a load heavier than the machine like the wrong polarity.
        """
        for number, row in self._found.items():
            ticks, speeds = len(self.proof.motion.v) - row, np.abs(self.proof.motion.v[row:, number])
            settings, ladder = self._rig.drives[number].settings, self._rig.ladder
            if ticks in RECONSIDERED and self._acting[number].gravity == 1.0:
                acting = self._other(number, row)
                if acting is not None:
                    backwards = acting.gravity < 0.0
                    kind = EventKind.BACKWARDS if backwards else EventKind.UNSTEADY
                    detail = BACKWARDS[acting.torque] if backwards else f"{acting.gravity:.2g} times its load pulls it"
                    self._monitor.report(now, kind, settings.name, detail)
                    self._acting[number] = acting
            if self._acting[number].torque < 0.0 and speeds[-1] > RUNAWAY * settings.speed_limit:
                ladder.fail(number, now)  # what has thrown it may not be its own torque, which must not go on then
            too_fast = speeds[-1] > max(speeds[ticks // 2], GROWTH * settings.speed_limit)
            if ticks == RECONSIDERED.stop and too_fast:  # what it is sent does not stop it
                ladder.ramp(number, now, must=True)

    def _other(self, number: int, row: int) -> Acting | None:
        """How a drive acts if that of its finding leaves much more of its motion unexplained; None: it does not."""
        motion = self.proof.motion
        if motion.together:
            return None
        momentum, turned, weight, impulses = motion.balance(number, row, int(self.proof.struct.c.late))
        least, _ = min(_fit(momentum + weight, [impulse]) for impulse in impulses)
        rest, (torque, gravity) = min(_fit(momentum, [impulse, -weight]) for impulse in impulses)
        if gravity < 0.0 and abs(torque) > DISTINCT:
            other = Acting(math.copysign(1.0, torque), -1.0)
            rest = min(float(np.linalg.norm(turned - weight - other.torque * impulse)) for impulse in impulses)
        elif gravity > 1.0 and SMALLEST < torque < LARGEST and self._acting[number].torque < 0.0:
            other = Acting(1.0, gravity)
        else:
            return None
        return other if CLEARER * rest < least else None

    def end(self) -> None:
        """Phase zero has ended: the limits of the test hold only if it was cut short."""
        if self.proof.over:
            self._torques.confine([drive.settings.torque_limit for drive in self._rig.drives])


def _fit(values: Array, columns: list[Array]) -> tuple[float, list[float]]:
    """What multiples of the columns leave of the values, in the least squares, and these multiples."""
    A = np.stack(columns, axis=1)
    multiples, *_ = np.linalg.lstsq(A, values, rcond=None)
    return float(np.linalg.norm(values - A @ multiples)), multiples.tolist()
