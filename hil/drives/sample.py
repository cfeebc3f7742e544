"""What a node has measured: one sample at the joint."""

from typing import NamedTuple


class Sample(NamedTuple):
    """A measurement of a node, in the units of the joint.

    Attributes:
        position: Displacement [joint unit].
        velocity: Speed [joint unit/s]; NaN if the node does not measure it.
        torque: Torque or force [actuator unit]; NaN if the node does not measure it.
        time: Time at which the frame was received [ns].
    """

    position: float
    velocity: float
    torque: float
    time: int
