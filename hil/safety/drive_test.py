"""The test of the drives in a run: what it finds is reported, and what a drive makes of a command is allowed for."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hil.drives.base import Drive
from hil.loop import SECOND, Reading, Tick
from hil.safety.events import EventKind
from hil.safety.ladder import Ladder
from hil.safety.limits import Limits
from hil.safety.monitor import Monitor
from hil.safety.plan import Phase
from hil.safety.pose_hold import PoseHold
from hil.safety.proof import ProofPlan, State, TorqueProof
from servoctl.types import Array


class DriveRig(Protocol):
    """A rig whose drives are enabled before the task and disabled after it."""

    drives: Sequence[Drive]  # in the order of the plant's actuators
    ladder: Ladder  # on which step from torque to off each drive is; `write` sends the frames of these steps
    testing: bool = False  # whether stage zero tests the drives: it judges the motion itself meanwhile

    @property
    def present(self) -> tuple[int, float]:
        """Present time [ns], and the time since the last reading [s], by which its samples are older now."""

    def carried(self, command: Array) -> Array:
        """The torques in the frames that send these, shape (m,): the steps of the protocols round them."""
        return np.array([drive.carried(torque) for drive, torque in zip(self.drives, command.tolist(), strict=True)])

    def begin_enable(self, torques: Sequence[float]) -> None:
        """Starts to enable every drive; each one makes its torque from the first instant on.

        Args:
            torques: One per drive, at the joint [actuator unit].
        """

    def advance(self) -> bool:
        """Continues to enable the drives; returns whether all of them are enabled.

        Raises:
            DriveError: A drive refuses, or does not answer in time.
        """

    def disable(self) -> bool:
        """Switches every drive off; returns whether all drives have confirmed it. Never raises."""

    def start_problems(self) -> list[tuple[str, str]]:
        """Name and explanation of each drive and encoder node that contradicts the start pose."""

    def watch(self, monitor: Monitor, now: int, ages: Sequence[float], working: bool) -> None:
        """Reports the condition of nodes and buses.

        Args:
            now: Beginning of the tick [ns].
            ages: Age of each node's sample [s]; 0 as long as none is expected.
            working: Whether every drive that is in the loop should be enabled.
        """

    def watch_unproved(self, numbers: Sequence[int]) -> None:
        """From now on drives that stage zero has not proved are stopped as soon as they move against their torque."""

    def let_guide(self) -> None:
        """From now on a hand moves the machine: its motion is not compared with the model any more."""


PROVING = (Phase.ENABLING, Phase.ZERO)  # phases in which a drive may turn out to contradict the model


class DriveTest:
    """The test of the drives, from the tick that begins to enable them to the end of stage zero.

    Args:
        plan: What it depends on.
        monitor: Receives what it finds.
        limits: Confined to low torque until the test is over.
    """

    def __init__(self, plan: ProofPlan, rig: DriveRig, monitor: Monitor, limits: Limits, pose: PoseHold) -> None:
        settings, period = [drive.settings for drive in rig.drives], monitor.bounds.period
        # proof: what it has shown of each drive
        # correction: torque to send for one that is to act, as a share of it, shape (m,): 1 unless a drive is misled
        self.proof, self.correction = TorqueProof(plan, settings, period), np.ones(len(settings))
        self._rig, self._monitor, self._limits, self._pose = rig, monitor, limits, pose

    @property
    def corrects(self) -> bool:
        """Whether a drive is sent less, or the opposite: off, its axis would fall until its brake is closed."""
        return bool((self.correction != 1.0).any())

    @property
    def unproved(self) -> list[int]:
        """Numbers of the drives that it has not proved."""
        return [number for number, axis in enumerate(self.proof.axes) if axis.state is not State.PROVED]

    def begin(self, reading: Reading) -> None:
        """Takes the pose at which the drives are enabled."""
        self.proof.begin(self._pose.gravity(reading.q), reading.positions)
        self._limits.confine(self.proof.limits)

    def judge(self, tick: Tick, reading: Reading) -> None:
        """Reports what the motion shows of the drives."""
        drives = self._rig.drives
        if self.proof.over:
            return
        gravity = self._pose.gravity(reading.q).u
        ages = reading.ages[: len(drives)].tolist()
        for finding in self.proof.judge(tick.elapsed / SECOND, reading.positions, reading.speeds, ages, gravity):
            self._monitor.report(tick.began, finding.kind, drives[finding.drive].settings.name, finding.detail)
            if finding.kind is EventKind.RESPONSE or (finding.kind is EventKind.REVERSED and finding.driven):
                self._correct(finding.drive)
            elif finding.kind in (EventKind.REVERSED, EventKind.UNSTEADY, EventKind.TORQUELESS):
                # its own control would drive it on, or wait for a standstill that does not come: its brake closes at
                # once, or it goes off where it has none and hardly moves, and the others stop
                self._rig.ladder.misled.add(finding.drive)
                self._rig.ladder.ramp(finding.drive, tick.began, must=True)

    def _correct(self, number: int) -> None:
        drive, response = self._rig.drives[number], self.proof.axes[number].response
        self.correction[number] = np.sign(response) / max(1.0, abs(response))
        self._rig.ladder.misled.add(number)
        self.proof.limits[number] = drive.settings.torque_limit
        self._limits.confine(self.proof.limits)

    def start(self) -> None:
        """Begins a round of the test, if none goes on and one is left: all brakes are open."""
        self.proof.start()
        self._rig.testing = self.proof.testing

    def end(self) -> None:
        """Stage zero has ended: the test judges the motion no more, and its limits hold only if it was cut short."""
        self._rig.testing = False
        if self.proof.over:
            self._limits.confine([drive.settings.torque_limit for drive in self._rig.drives])
