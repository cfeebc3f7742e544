"""What the loop needs of a machine: reading and writing once per tick."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from servoctl.types import Array


class Reading(NamedTuple):
    """Measured state of the machine at a tick.

    Attributes:
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        ages: Age of each drive's sample, shape (drives,) [s]; infinite if there is none yet.
        valid: Whether q and v may be used.
        residual: Largest difference between redundant measurements [joint unit].
    """

    q: Array
    v: Array
    ages: Array
    valid: bool = True
    residual: float = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
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
    def read(self, deadline: int) -> Reading:
        """The state of the machine now; waits for samples until the deadline at most [ns]."""

    @abstractmethod
    def write(self, command: Array) -> None:
        """Sends inputs to the actuators, shape (m,) [actuator units]; they are held until the next ones."""

    @abstractmethod
    def stop(self) -> None:
        """Takes the torque off the machine; may be called at any time and repeatedly."""
