"""Faults of the loop itself: the loop asks for them at each tick and applies them."""

from collections.abc import Callable

import numpy as np

from servoctl.types import Array


class HostFaults:
    """The faults of the loop that act now."""

    def __init__(self) -> None:
        self._stall = 0
        self._outputs: list[tuple[str, float]] = []

    def stall(self) -> int:
        """Time for which the loop must stall now [ns], usually 0; the stall is over afterwards."""
        stall, self._stall = self._stall, 0
        return stall

    @property
    def tampers(self) -> bool:
        """Whether it changes commands now."""
        return bool(self._outputs)

    def tamper(self, u: Array) -> Array:
        """Returns the tampered command."""
        for value, step in self._outputs:
            u = u + step if value == "step" else np.full_like(u, float(value))
        return u

    def begin_stall(self, duration: int) -> None:
        """Makes the loop stall at its next tick [ns]."""
        self._stall = duration

    def begin_output(self, value: str, step: float) -> Callable[[], None]:
        """Tampers with commands until the returned function is called.

        Args:
            value: `nan`, `inf`, or `step`: adds a step.
            step: The step [actuator units].
        """
        entry = (value, step)
        self._outputs.append(entry)
        return lambda: self._outputs.remove(entry)
