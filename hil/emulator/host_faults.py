"""Faults of the loop itself: it asks for them at each tick and does them to itself."""

from collections.abc import Callable

import numpy as np

from servoctl.types import Array


class HostFaults:
    """What the loop shall do wrong at present."""

    def __init__(self) -> None:
        self._stall = 0
        self._outputs: list[tuple[str, float]] = []

    def stall(self) -> int:
        """How long the loop shall do nothing now [ns]; 0 as a rule."""
        stall, self._stall = self._stall, 0
        return stall

    def tamper(self, u: Array) -> Array:
        """What the law shall seem to have said."""
        for value, step in self._outputs:
            u = u + step if value == "step" else np.full_like(u, float(value))
        return u

    def begin_stall(self, duration: int) -> None:
        """Lets the loop stall at its next tick."""
        self._stall = duration

    def begin_output(self, value: str, step: float) -> Callable[[], None]:
        """Changes what the law says, until it is ended."""
        entry = (value, step)
        self._outputs.append(entry)
        return lambda: self._outputs.remove(entry)
