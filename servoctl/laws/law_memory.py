"""Where each part of a law keeps its states in the law's memory."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from servoctl.laws.attached_bounds import AttachedBounds
from servoctl.laws.observer import RowObserver
from servoctl.laws.robust import RobustTerm
from servoctl.types import Array


class LawMemory(NamedTuple):
    """The parts of a law that have memory, in its order."""

    observer: RowObserver | None  # disturbance observer of the rows; None: none
    bounds: AttachedBounds | None  # bounds; None: none
    # robust or adaptive term; None: none. An adaptive one has one state, the last of the memory
    robust: RobustTerm | None

    @property
    def start(self) -> Mapping[str, float]:
        """Name -> initial value of each state."""
        adaptive = {} if self.robust is None else self.robust.memory
        return {**self._observer, **self._bounds, **self._active, **adaptive}

    @property
    def period(self) -> float | None:
        """Period in which the memory changes once [s]; None: it is integrated, or empty."""
        if self.observer is not None:
            return self.observer.timing.period
        if self.bounds is not None and self.bounds.memory:
            return self.bounds.timing.period
        return self.robust.period if self.robust is not None and self.robust.adaptive else None

    def of_observer(self, memory: Array) -> Array:
        """The states of the observer."""
        return memory[: len(self._observer)]

    def of_bounds(self, memory: Array) -> Array:
        """The states of the bounds."""
        first = len(self._observer)
        return memory[first : first + len(self._bounds)]

    def of_search(self, memory: Array) -> Array:
        """What was active in the last answer, as in `Command.active`; empty if it is not kept."""
        first = len(self._observer) + len(self._bounds)
        return memory[first : first + len(self._active)]

    def of_robust(self, memory: Array) -> Any:
        """The estimate of the adaptive term; 0 without one."""
        return memory[len(self.start) - 1] if self.robust is not None and self.robust.adaptive else 0.0

    @property
    def _observer(self) -> Mapping[str, float]:
        return {} if self.observer is None else self.observer.memory

    @property
    def _bounds(self) -> Mapping[str, float]:
        return {} if self.bounds is None else self.bounds.memory

    @property
    def _active(self) -> Mapping[str, float]:
        return {} if self.bounds is None else self.bounds.active
