"""A term of a law. A law is the sum of its terms and one allocation:

    T u = b - A a_c + sum of `acceleration`,   then `prescribed` rows,   then u near `preferred`

Design: each method has a default that does nothing. A term has no state: what it keeps from tick to tick stands in the
law's memory, by name. The code runs while a function is traced, so it is plain NumPy on numbers and on symbols.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servoctl.engine.parameters import Part
from servoctl.mechanics.constraint import InputRows
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import CommandMemory, Timing
from servoctl.types import Array, Command

CONTINUOUS = Timing(None)


@dataclass(frozen=True)
class TermTimings:
    """The timing of a loop as each kind of term counts on it; without a period the law acts continuously."""

    correction: Timing = CONTINUOUS  # from the state that the law gets
    robust: Timing = CONTINUOUS  # from the measurement: a predicted state is only as good as its model
    observer: Timing = CONTINUOUS  # from the state that an estimator gives, or from the measurement


@dataclass(frozen=True)
class AttachedTerm(Part):
    """A term for one plant and task."""

    # of the loop, as this kind of term counts on it; with a period its states change once a period, else they are
    # integrated
    timing: Timing = field(default=CONTINUOUS, kw_only=True)

    @property
    def memory(self) -> Mapping[str, float]:
        """Name -> initial value of each state that it keeps."""
        return {}

    @property
    def opaque(self) -> str | None:
        """Why a function of the user's runs in NumPy, because it cannot be traced; None: all of it is traced."""
        return None

    @property
    def commands(self) -> CommandMemory | None:
        """The memory of earlier commands that it reads as `at.under_way`; None: it reads none."""
        return None

    def acceleration(self, at: Terms, memory: Array) -> Any:
        """What it adds to b of the task, shape (r,) or 0.

        Args:
            at: The equations of motion at a state.
            memory: Its states.
        """
        return 0.0

    def prescribed(self, at: Terms) -> InputRows | None:
        """Rows `T u = rhs` next below the task rows of priority 1; at most one term has some."""
        return None

    def preferred(self, at: Terms) -> Array | None:
        """The inputs s that it prefers where the task leaves them free, shape (m,); at most one term has some."""
        return None

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        """Time derivative of its states; with a period they change by it times the period, once a tick."""
        return np.zeros(len(memory))
