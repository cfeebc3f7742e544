"""What a node has measured: one sample at the joint."""

from typing import Final


class Sample:
    """An immutable measurement of a node, in the units of the joint.

    Attributes:
        position: Displacement [joint unit].
        velocity: Speed [joint unit/s]; NaN if the node does not measure it.
        torque: Torque or force [actuator unit]; NaN if the node does not measure it.
        time: Time at which the frame was received [ns].
    """

    __slots__ = ("position", "time", "torque", "velocity")

    def __init__(self, position: float, velocity: float, torque: float, time: int) -> None:
        self.position: Final = position
        self.velocity: Final = velocity
        self.torque: Final = torque
        self.time: Final = time

    def __reduce__(self) -> tuple[type["Sample"], tuple[float, float, float, int]]:
        return Sample, self._values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Sample{self._values()!r}"

    def _values(self) -> tuple[float, float, float, int]:
        return self.position, self.velocity, self.torque, self.time
