"""What the loop drives: something that can be read and written once per tick."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from servoctl.types import Array


class Reading(NamedTuple):
    """What a rig knows of the machine at a tick.

    Attributes:
        q: Coordinates, shape (n,).
        v: Velocities, shape (n,).
        ages: Of each drive's sample, shape (drives,) [s]; infinite where there is none yet.
        valid: Whether q and v may be used.
        residual: How far redundant measurements disagree [joint unit].
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
        """Makes the machine ready to be read.

        Args:
            deadline: Moment on the run's clock by which it must be [ns].

        Raises:
            ServoctlError: It is not; nothing moves.
        """

    @abstractmethod
    def read(self, deadline: int) -> Reading:
        """What the machine does now; waits for samples until the deadline at most [ns]."""

    @abstractmethod
    def write(self, command: Array) -> None:
        """Hands inputs to the actuators, shape (m,) [actuator units], which hold them until the next."""

    @abstractmethod
    def stop(self) -> None:
        """Leaves the machine without torque; may be called at any time, and again."""
