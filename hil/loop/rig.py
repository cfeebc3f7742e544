"""The contract between the tick loop and a machine: read once, write once per tick."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from servoctl.types import Array


class Implausibility(NamedTuple):
    """A measurement or a motion that is not plausible."""

    channel: str  # name of the drive or encoder
    reason: str  # explanation for the operator, with numbers
    # true: the machine must stop. False: the sample was rejected once
    stops: bool
    # true: the machine does not move as its model predicts. False: a sample is wrong
    motion: bool = False
    torqueless: bool = False  # true: none of the drive's torque arrives, so its own control cannot stop it either


class Reading(NamedTuple):
    """State of the machine at one tick."""

    q: Array  # coordinates, shape (n,)
    v: Array  # velocities, shape (n,)
    ages: Array  # age of each node's last accepted sample, shape (nodes,) [s]; infinite before the first
    valid: bool = True  # whether q and v may be used
    residual: float = 0.0  # [joint unit] largest disagreement of redundant measurements
    # displacement of each drive's joint, in the order of the actuators [joint unit]; NaN: not known
    positions: Sequence[float] = ()
    speeds: Sequence[float] = ()  # speed of each drive's joint [joint unit/s]; NaN: not known
    findings: Sequence[Implausibility] = ()  # implausible samples and motions at this tick
    silences: Sequence[float] = ()  # time since the last sign of life of each drive [s]; 0 before the first
    torques: Sequence[float] = ()  # torque in each drive's last sample [actuator unit]; NaN: not known
    # temperatures, supply and load of each drive, in the order of `hil.drives.quantities.GAUGES`; NaN: not known
    gauges: Sequence[Sequence[float]] = ()


class Rig(ABC):
    """A machine, simulated or real."""

    @abstractmethod
    def start(self, deadline: int) -> None:
        """Prepares the machine for reading.

        Args:
            deadline: Time on the run's clock by which it must be ready [ns].

        Raises:
            ServoctlError: It is not ready; nothing moves.
        """

    @abstractmethod
    def read(self, due: int, wait: int) -> Reading:
        """The state of the machine now.

        Args:
            due: When this tick was due [ns].
            wait: Longest time from now to wait for samples [ns].
        """

    @abstractmethod
    def write(self, command: Array) -> None:
        """Sends inputs to the actuators, shape (m,) [actuator units]; they are held until the next ones."""

    @abstractmethod
    def stop(self) -> None:
        """Takes the torque off the machine; may be called at any time and repeatedly."""
