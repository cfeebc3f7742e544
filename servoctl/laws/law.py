"""What every law is: bound to a model, then a pure function from a state to a command.

Design: a law says `command(terms, memory)`, where the terms of motion were assembled once for the law and for the
plant that answers it; `control(state, memory)` and `step` follow. The same code runs on numbers (the tick loop) and
on symbols (the compiled closed loop), so it is plain NumPy with `servoctl.where` for branches.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import Array, Command, State


class Law(ABC):
    """A law as a person states it."""

    def prepare(self, model: Model, around: State) -> Model:
        """The model that the law works on; the same unless a law must change the task's form.

        Raises:
            TaskError: The task cannot be brought into that form; names every row.
        """
        return model

    @abstractmethod
    def bind(self, model: Model) -> "BoundLaw":
        """The law for this plant and task.

        Raises:
            TaskError: It does not fit; names every row and field that is wrong.
        """


@dataclass(frozen=True)
class BoundLaw(ABC):
    """A law with its gains in place; `float` and `tuple[float, ...]` fields stay inputs of what is compiled.

    Attributes:
        passive_rank_tolerance: For the passive constraints inside the law.
    """

    passive_rank_tolerance: float

    @abstractmethod
    def command(self, terms: Terms, memory: Array) -> Command:
        """What the actuators should do; pure, and traceable."""

    @property
    def memory(self) -> Mapping[str, float]:
        """Name -> initial value of what the law integrates; nothing unless overridden."""
        return {}

    @property
    def wishes(self) -> tuple[int, ...]:
        """Indices of the task rows of priority 2 and below: what they miss is a figure, never a failure."""
        return ()

    @property
    def excused(self) -> tuple[int, ...]:
        """Indices of the task rows that a run may miss and still be done: wishes, and what is not required."""
        return self.wishes

    @property
    def stops_on(self) -> frozenset[int]:
        """Codes of the statuses at which a run must stop, beside those that leave no command."""
        return frozenset()

    def at_limit(self, u: Array) -> list[int]:
        """Which inputs are at a limit of the law; none unless overridden."""
        return []

    def memory_rate(self, terms: Terms, memory: Array) -> Array:
        """Time derivative of the memory, shape of the memory."""
        return np.zeros(len(memory))

    def control(self, model: Model, state: State, memory: Array | None = None) -> Command:
        """The command at a state, on numbers. Never raises on what it is given: its status says."""
        terms = assemble(state, model.matrices(state), self.passive_rank_tolerance)
        return self.command(terms, np.zeros(0) if memory is None else memory)

    def step(self, model: Model, state: State, memory: Array, elapsed: float) -> tuple[Command, Array]:
        """The command, and the memory after the time that really elapsed [s]; changes nothing by itself."""
        terms = assemble(state, model.matrices(state), self.passive_rank_tolerance)
        return self.command(terms, memory), memory + elapsed * self.memory_rate(terms, memory)
