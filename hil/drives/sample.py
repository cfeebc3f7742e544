"""What a node has measured."""

from typing import Final


class Sample:
    """What a node has measured, at the joint; it does not change.

    Attributes:
        position: [joint unit].
        velocity: [joint unit/s]; NaN where the node does not measure it.
        torque: [actuator unit]; NaN where the node does not measure it.
        time: When the frame was received [ns].
    """

    __slots__ = ("position", "time", "torque", "velocity")

    def __init__(self, position: float, velocity: float, torque: float, time: int) -> None:
        """Takes the attributes."""
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
