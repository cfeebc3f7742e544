"""The contract between the tick loop and a machine: read once, write once per tick."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from servoctl.types import Array


class Implausibility(NamedTuple):
    """A measurement or a motion that is not plausible.

    Attributes:
        channel: Name of the drive or encoder.
        reason: Explanation for the operator, with numbers.
        stops: True: the machine must stop. False: the sample was rejected once.
        motion: True: the machine does not move as its model predicts. False: a sample is wrong.
        torqueless: True: none of the drive's torque arrives, so its own control cannot stop it either.
    """

    channel: str
    reason: str
    stops: bool
    motion: bool = False
    torqueless: bool = False


class Reading(NamedTuple):
    """State of the machine at one tick.

    Attributes:
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        ages: Age of each node's last accepted sample, shape (nodes,) [s]; infinite before the first.
        valid: Whether q and v may be used.
        residual: Largest disagreement of redundant measurements [joint unit].
        positions: Displacement of each drive's joint, in the order of the actuators [joint unit]; NaN: not known.
        speeds: Speed of each drive's joint [joint unit/s]; NaN: not known.
        findings: Implausible samples and motions at this tick.
        silences: Time since the last sign of life of each drive [s]; 0 before the first.
        torques: Torque in each drive's last sample [actuator unit]; NaN: not known.
        gauges: Temperatures, supply and load of each drive, in the order of `hil.drives.quantities.GAUGES`; NaN: not
            known.
    """

    q: Array
    v: Array
    ages: Array
    valid: bool = True
    residual: float = 0.0
    positions: Sequence[float] = ()
    speeds: Sequence[float] = ()
    findings: Sequence[Implausibility] = ()
    silences: Sequence[float] = ()
    torques: Sequence[float] = ()
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
