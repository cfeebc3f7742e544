"""The contract between the stages of a run and a rig with drives: enable, watch, disable."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hil.drives.base import Drive
from hil.safety.ladder import Ladder
from hil.safety.monitor import Monitor
from servoctl.types import Array


class DriveRig(Protocol):
    """A rig whose drives are enabled before the task and disabled after it."""

    ladder: Ladder  # on which step from torque to off each drive is; `write` sends the frames of these steps
    testing: bool = False  # whether stage zero tests the drives: it judges the motion itself meanwhile

    @property
    def drives(self) -> Sequence[Drive]:
        """Drives in the order of the plant's actuators."""

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
        """Drive and explanation for each encoder that contradicts the start pose."""

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
