"""A term of your own: what a class adds to b of the task, with states of its own where it needs them.

Design: as of `laws.feedback`: the methods are traced like a plant, and what symbols cannot follow is called in NumPy.
Its `float` fields are inputs of the compiled code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servoctl.engine.parameters import SameStructure, makes_values, parameter_names, parameter_values
from servoctl.errors import TaskError, in_one_line
from servoctl.laws.feedback import At, arrays_of, user_method
from servoctl.laws.law import UserFunction
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import Timing
from servoctl.types import Array, Command


@dataclass(frozen=True)
class Term(ABC):
    """A term of your own: derive a frozen dataclass from it; its `float` fields are gains.

    Example:

        @dataclass(frozen=True)
        class Integral(sc.Term):
            k: float = 100.0  # [1/s^3]

            def memory(self, rows):
                return dict.fromkeys(rows, 0.0)

            def acceleration(self, at, memory):
                return -self.k * memory

            def memory_rate(self, at, memory, u):
                return at.task.violation
    """

    @property
    def has_made_values(self) -> bool:
        """Whether its fields are no gains: see `makes_values`."""
        return makes_values(self)

    def memory(self, rows: Sequence[str]) -> Mapping[str, float]:
        """Name -> initial value of each state that the term keeps; none unless overridden.

        Args:
            rows: Names of the task rows.
        """
        return {}

    @abstractmethod
    def acceleration(self, at: At, memory: Array) -> Any:
        """What it adds to b of the task, shape (r,); plain NumPy, with `servoctl.where` for branches.

        Args:
            at: The machine and the task at an instant.
            memory: Its states, in the order of `memory`.
        """

    def memory_rate(self, at: At, memory: Array, u: Array) -> Any:
        """Time derivative of its states under the inputs u; a law with a period adds it times the period, once a tick.

        Zero unless overridden.
        """
        return np.zeros(len(memory))

    def attach(self, name: str, model: Model, timing: Timing) -> "AttachedOwnTerm":
        """The term for a plant and task.

        Args:
            name: Under which a config names it.
            timing: Of the loop.

        Raises:
            TaskError: A method fails, or returns another shape.
        """
        try:
            memory = self.memory([row.name for row in model.task_rows])
            memory = {key: float(value) for key, value in dict(memory).items()}
        except Exception as error:  # user code may raise anything
            problem = f"law.terms.{name}: memory: expected a mapping of names to numbers"
            raise TaskError(f"{problem}: {in_one_line(error)}") from error
        wrong = [key for key, value in memory.items() if not np.isfinite(value)]
        if wrong:
            raise TaskError(f"law.terms.{name}: memory: {wrong[0]}: expected a finite number, got {memory[wrong[0]]}")
        start = tuple((f"terms.{name}.{key}", value) for key, value in memory.items())
        acceleration, rate = model.once(
            f"term {name}", SameStructure(self), lambda: _called(self, name, model, len(memory))
        )
        gains, names = tuple(parameter_values(self).tolist()), tuple(parameter_names(self))
        return AttachedOwnTerm(name, start, gains, names, acceleration, rate, timing=timing)


@dataclass(frozen=True)
class AttachedOwnTerm(AttachedTerm):
    """A term of one's own for a plant and task."""

    name: str  # its key in `law.terms`
    start: tuple[tuple[str, float], ...]  # name and initial value of each state
    gains: tuple[float, ...]  # the parameters of the user's class
    gain_names: tuple[str, ...]
    acceleration_of: UserFunction  # (t, q, v, M, Q, B, the task's A, b, violation and its rate, gains, memory)
    rate_of: UserFunction  # the same and u

    @property
    def label(self) -> str:  # type: ignore[override]
        return f"terms.{self.name}"

    @property
    def memory(self) -> Mapping[str, float]:
        return dict(self.start)

    @property
    def opaque(self) -> str | None:
        return self.acceleration_of.opaque or self.rate_of.opaque

    def acceleration(self, at: Terms, memory: Array) -> Array:
        return self.acceleration_of(*arrays_of(at), np.array(self.gains), memory)

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        return self.rate_of(*arrays_of(at), np.array(self.gains), memory, command.u)


def _called(term: Term, name: str, model: Model, states: int) -> tuple[UserFunction, UserFunction]:
    def called(method: str, more: Sequence[tuple[int, ...]], length: int, what: str) -> UserFunction:
        where = f"law.terms.{name}: {type(term).__name__}.{method}"
        return user_method(term, method, where, model, [(states,), *more], length, what)

    acceleration = called("acceleration", [], len(model.task_rows), "the task has {} rows")
    return acceleration, called("memory_rate", [(model.m,)], states, "it has {} states")
