"""The closed loop: the functions of time and state that every executor offers."""

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np

from servoctl.engine.parameters import structure
from servoctl.engine.products import largest
from servoctl.engine.symbol import where
from servoctl.estimation.attached import AttachedEstimator
from servoctl.laws.law import AttachedLaw
from servoctl.mechanics.terms import Terms
from servoctl.simulation.control_tick import Layout
from servoctl.simulation.estimated import loop_memory, shown_parts
from servoctl.simulation.runge_kutta import rk4_steps
from servoctl.simulation.system import System
from servoctl.types import Array, State, Status


def functions_key(system: System) -> tuple[Any, ...]:
    """Everything that the functions of a loop depend on, except the values of parameters."""
    parts = (system.law, system.passive, system.friction, system.estimator)
    return system.model.rows_kernel, system.model.singular, dict(system.inputs), *map(structure, parts)


class LoopStages(ABC):
    """A closed loop; x is q, v and the law's memory in one vector."""

    engine: str  # `c`, `vm` or `numpy`
    choice: str | None = None  # why `auto` took its engine; None: `auto` had no choice
    chosen = False  # whether the engine of the next run has been chosen

    def __init__(self, system: System) -> None:
        self.system = system  # plant, law and realism
        memory = loop_memory(system)
        self.memory_names, self.memory_start = list(memory), np.array(list(memory.values()), dtype=float)
        self.layout = Layout(system.model, system.law, shown_parts(system.estimator), list(memory))  # slices of a row
        self.size = 2 * system.model.n + len(memory)
        self.note: str | None = None  # remark for the user about the choice of engine; None: nothing unusual
        self.evaluations = 0  # number of evaluations so far

    def of(self, system: System) -> Self:
        """This loop with another system, without tracing again: only values of parameters may differ."""
        other = copy.copy(self)
        other.system, other.evaluations, other.choice, other.chosen = system, 0, None, False
        other.memory_start = np.array(list(loop_memory(system).values()), dtype=float)
        return other

    def simulated(self) -> Self:
        """The loop with the simulated plant's parameters; this one, if they are those that the law knows."""
        model = self.system.simulated
        return self if model is None else self.of(replace(self.system, model=model, simulated=None))

    def vector(self, state: State) -> Array:
        """Start vector of a run; with realism it also holds zero torques and commands, then the machine's own state."""
        x, machine = np.concatenate([state.q, state.v]), self.system.machine
        rest = np.zeros(0) if machine is None else machine.start(state.t, x)
        return np.concatenate([x, self.memory_start, np.zeros(self.carried - len(rest)), rest])

    @property
    def projects(self) -> bool:
        """Whether each step of a run ends on the passive constraints."""
        system = self.system
        return system.passive.projection and bool(system.model.passive_rows) and system.machine is None

    @property
    def carried(self) -> int:
        """Size of the state of realism and of a machine, after q, v and memory."""
        realism, machine = self.system.realism, self.system.machine
        return (0 if realism is None else realism.carried) + (0 if machine is None else machine.size)

    def take_law(self, law: AttachedLaw) -> None:
        """Replaces the law by one that differs in parameters alone, without tracing again."""
        self.system = replace(self.system, law=law)

    def take_estimator(self, estimator: AttachedEstimator) -> None:
        """Replaces the estimator by one that differs in parameters alone, without tracing again."""
        assert structure(estimator) == structure(self.system.estimator), "not the same estimator"
        self.system = replace(self.system, estimator=estimator)

    def end_compilation(self, finish: bool) -> dict[str, Any]:
        """Facts about the change of the engine during a run, which ends now; empty without one.

        Args:
            finish: Whether a compilation for this loop that still goes on may finish alone, for the next run.
        """
        return {}

    @abstractmethod
    def control(self, t: float, x: Array) -> Array:
        """The command part of a row."""

    @abstractmethod
    def motion(self, t: float, x: Array, command: Array) -> tuple[Array, Array]:
        """x' and the log part of a row, under a held command."""

    @abstractmethod
    def rates(self, t: float, x: Array) -> tuple[Array, Array]:
        """x' and the whole row, under a law that acts continuously."""

    def derivative(self, t: float, x: Array) -> Array:
        """Only x', for stages of a step that log nothing."""
        return self.rates(t, x)[0]

    def held_derivative(self, t: float, x: Array, command: Array) -> Array:
        """Only x', under a held command."""
        return self.motion(t, x, command)[0]

    def after_hold(self, t: float, x: Array, command: Array, h: float, substeps: int = 1) -> Array:
        """x after a command was held for h [s], by so many equal steps of rk4."""
        after: Array = rk4_steps(lambda s, y: self.held_derivative(s, y, command), t, x, h, substeps)
        return after

    def jacobian(self, t: float, x: Array, command: Array | None = None) -> Array | None:
        """Exact dx'/dx, shape (size, size); None if only differences give it."""
        return None

    @abstractmethod
    def closing(self, t: float, x: Array) -> tuple[Array, Array]:
        """Changes of q and of v that close the passive constraints to first order."""

    def projected(self, t: float, x: Array) -> Array:
        """x put back onto the passive constraints: two Newton steps in q, then one in v."""
        n = self.system.model.n
        x = x.copy()
        body = x[: self.size]
        for _ in range(2):
            body[:n] += self.closing(t, body)[0]
        body[n : 2 * n] += self.closing(t, body)[1]
        return x

    def split(self, t: Any, x: Array) -> tuple[State, Array]:
        """State and memory in a vector x."""
        n = self.system.model.n
        return State(t, x[:n], x[n : 2 * n]), x[2 * n : self.size]

    @property
    def memory_period(self) -> float | None:
        """Period in which the memory changes once [s]: it changes by this times its rate; None: it is integrated."""
        law, estimator = self.system.law, self.system.estimator
        if estimator is not None:
            return estimator.timing.h
        return None if law is None else law.memory_period

    def _control(self, terms: Terms, memory: Array, system: System) -> Array:
        command = system.command(terms, memory)
        law = system.law
        rate = np.zeros(0) if law is None else law.memory_rate(terms, memory, command)
        disturbance = np.zeros(0) if law is None else law.disturbance(terms, memory)
        low_priority_rows = () if law is None else law.low_priority_rows
        required = [x for i, x in enumerate(command.residual) if i not in low_priority_rows]
        residual = [where(command.status >= Status.NOT_POSITIVE.code, np.nan, largest(required))]
        given_up = [abs(command.residual[i]) for i in (() if law is None else law.relaxed_rows)]
        parts = [
            command.u,
            [command.rank],
            residual,
            [command.pivot_min],
            [command.status],
            given_up,
            command.binding,
            command.lack,
            [command.steps, where(command.proven, 0.0, 1.0)] if law is not None and law.searches else [],
            disturbance,
            rate,
        ]
        return np.concatenate([np.atleast_1d(np.asarray(part, dtype=object)) for part in parts])

    def _closing(self, terms: Terms, system: System) -> tuple[Array, Array]:
        passive, model = system.passive, system.model
        return passive.closing(terms, model, velocity=False), passive.closing(terms, model, velocity=True)

    def _motion(self, terms: Terms, command: Array, system: System) -> tuple[Array, Array]:
        u, rate = command[self.layout.slices["u"]], command[self.layout.slices["memory_rate"]]
        log = system.motion(terms, u)
        rates = np.concatenate([terms.state.v, log.pop("acceleration"), rate])
        return rates, np.concatenate([np.zeros(0), *log.values()])
