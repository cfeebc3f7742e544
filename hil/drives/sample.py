"""What a node has measured: one sample at the joint."""

from typing import NamedTuple


class Sample(NamedTuple):
    """A measurement of a node, in the units of the joint."""

    position: float  # [joint unit] displacement
    velocity: float  # speed [joint unit/s]; NaN if the node does not measure it
    torque: float  # torque or force [actuator unit]; NaN if the node does not measure it
    time: int  # [ns] time at which the frame was received
