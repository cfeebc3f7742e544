"""The base classes of all laws: `Law` is attached to a model, `AttachedLaw` maps a state to a command.

An open loop is the simplest law: no row of the task counts.

Design: a law implements `command(at, memory)`. The equations of motion are assembled once, for the law and for the
simulated plant. The code runs once, on symbols, so it is plain NumPy with `servoctl.where` for branches. What a law
remembers are the states of its terms.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.linalg import is_finite
from servoctl.engine.symbol import where
from servoctl.expression import Expression
from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.funnel import FunnelTerm
from servoctl.laws.observer import RowObserver
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import Constraint, equation_value
from servoctl.mechanics.model import Model
from servoctl.mechanics.terms import Terms
from servoctl.mechanics.timing import CommandMemory
from servoctl.types import Array, Command, Status


class Law(ABC):
    """A law as the user configures it."""

    def prepare(self, model: Model) -> Model:
        """The model that the law works on: this one, unless the law needs another form of the task.

        Args:
            model: Plant and task; a law may evaluate it near `model.around`, the start.

        Raises:
            TaskError: The task has no such form; the message names every row.
        """
        return model

    @property
    def bound_constraints(self) -> Mapping[str, Constraint]:
        """Name -> constraint of each bound that the model evaluates for the law; empty unless overridden."""
        return {}

    @abstractmethod
    def attach(self, model: Model) -> "AttachedLaw":
        """The law for this plant and task.

        Raises:
            TaskError: The law does not fit; the message names every row and field that is wrong.
        """


def judged(at: Terms, known: Any, status: Any) -> Any:
    """The status, or the most severe cause why there are no inputs.

    Args:
        known: Whether the inputs are finite.
        status: That of finite inputs.
    """
    status = where(known, status, Status.NON_FINITE.code)
    status = where(at.positive, status, Status.NOT_POSITIVE.code)
    return where(at.finite, status, Status.NON_FINITE.code)


T = TypeVar("T", bound=AttachedTerm)


@dataclass(frozen=True)
class AttachedLaw(ABC):
    """A law with its gains: `float` and `tuple[float, ...]` fields, its terms' too, are inputs of the compiled code."""

    passive_rank_tolerance: float  # [-] a mechanism direction counts when its pivot exceeds this times |Ahat L^-T|_F
    terms: tuple[AttachedTerm, ...] = field(default=(), kw_only=True)
    # indices of task rows: of priority 2 and below, which are reported and never a failure; those that a run may miss
    # and still end `done`; those of which it logs what they are given up
    low_priority_rows: tuple[int, ...] = field(default=(), kw_only=True)
    optional_rows: tuple[int, ...] = field(default=(), kw_only=True)
    relaxed_rows: tuple[int, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def command(self, at: Terms, memory: Array) -> Command:
        """The command at a state; pure and traceable.

        Args:
            at: The equations of motion at the state, with the commands under way if its terms read them.
            memory: The law's states, in the order of `memory`.
        """

    def term(self, kind: type[T]) -> T | None:
        """The term of a class; None: there is none."""
        return next((term for term in self.terms if isinstance(term, kind)), None)

    @property
    def memory(self) -> Mapping[str, float]:
        """Name -> initial value of each state that the law keeps: those of its terms, one after the other."""
        return {name: value for term in self.terms for name, value in term.memory.items()}

    @property
    def commands(self) -> CommandMemory | None:
        """The memory of earlier commands that its terms read; None: they read none."""
        return CommandMemory.together(*(term.commands for term in self.terms))

    def with_memory(self, memory: Array) -> Iterator[tuple[AttachedTerm, Array]]:
        """Each term with its part of the memory."""
        first = 0
        for term in self.terms:
            end = first + len(term.memory)
            yield term, memory[first:end]
            first = end

    def of(self, wanted: AttachedTerm, memory: Array) -> Array:
        """The states of a term."""
        return next(kept for term, kept in self.with_memory(memory) if term is wanted)

    @property
    def memory_period(self) -> float | None:
        """Period in which the memory changes once [s]: it changes by this times its rate; None: it is integrated."""
        return next((term.timing.period for term in self.terms if term.memory), None)

    def memory_rate(self, at: Terms, memory: Array, command: Command) -> Array:
        """Time derivative of the memory under a command, in the shape of the memory."""
        rates = [term.memory_rate(at, kept, command) for term, kept in self.with_memory(memory)]
        return np.concatenate([np.zeros(0), *rates])

    @property
    def opaque(self) -> str | None:
        """Why a function of the user's runs in NumPy, because it cannot be traced; None: all of the law is traced."""
        return next((term.opaque for term in self.terms if term.opaque is not None), None)

    @property
    def bounds(self) -> BoundsTerm | None:
        """The bounds that the law keeps."""
        return self.term(BoundsTerm)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Names of these bounds."""
        return () if self.bounds is None else self.bounds.names

    def bound_values(self, at: Terms, u: Array) -> Array:
        """h of each bound under the inputs u, shape (bounded,)."""
        return np.zeros(0) if self.bounds is None else self.bounds.reported(at, u)

    @property
    def funnel(self) -> FunnelTerm | None:
        """The funnels of rows."""
        return self.term(FunnelTerm)

    @property
    def observer(self) -> RowObserver | None:
        """The disturbance observer of the rows."""
        return self.term(RowObserver)

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of the task rows whose disturbance the law observes."""
        return () if self.observer is None else self.observer.rows

    def disturbance(self, at: Terms, memory: Array) -> Array:
        """The disturbance of each observed row [acceleration of the row], shape (observed,)."""
        observer = self.observer
        return np.zeros(0) if observer is None else observer.disturbance(at.task, self.of(observer, memory))

    @property
    def stops_on(self) -> frozenset[int]:
        """Codes of the statuses at which a run must stop, in addition to those without a command."""
        return frozenset()

    @property
    def searches(self) -> bool:
        """Whether the law searches for what limits of inputs and bounds hold."""
        return False

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """Lower and upper limit of each input; empty: it knows none."""
        return ()

    def at_limit(self, u: Array) -> list[int]:
        """Indices of the inputs at a limit of the law."""
        pairs = zip(u, self.limits, strict=False)
        return [i for i, (value, (lower, upper)) in enumerate(pairs) if value <= lower or value >= upper]


@dataclass(frozen=True)
class OpenLoop(AttachedLaw):
    """An open loop: every input follows its equation of time and state."""

    inputs: Mapping[str, Expression]  # actuator -> equation; an input without equation is zero

    def command(self, at: Terms, memory: Array) -> Command:
        """The inputs; not finite where the motion is not."""
        plant = at.matrices.plant
        values = [equation_value(self.inputs[a], plant, at.state) if a in self.inputs else 0.0 for a in plant.actuators]
        u, nothing = np.array(values), np.zeros(0)
        status = judged(at, is_finite(u), Status.OK.code)
        return Command(where(status >= Status.NOT_POSITIVE.code, np.nan, u), 0.0, nothing, 0.0, status)
