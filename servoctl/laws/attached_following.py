"""Constraint following on one plant and task: state -> command.

    T = A Phi B,  bbar = b - A a_c + correction,  u = T^+ bbar + (I - T^+ T) s

Source: as of `laws.constraint_following`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.linalg import product
from servoctl.engine.products import is_finite, largest
from servoctl.engine.symbol import where
from servoctl.expression import Expression
from servoctl.laws import preload as preloads
from servoctl.laws.active_set import ROUNDING
from servoctl.laws.allocation import Allocator
from servoctl.laws.attached_bounds import AttachedBounds, BoundNumbers
from servoctl.laws.funnel import FunnelTerm
from servoctl.laws.law import Acceleration, AttachedLaw
from servoctl.laws.limiting import Limiting, limiting
from servoctl.laws.limits import Start
from servoctl.laws.observer import RowObserver
from servoctl.laws.preload import ReactionComponent
from servoctl.laws.robust import RobustNumbers, RobustTerm
from servoctl.laws.user_function import UserFunction
from servoctl.mechanics.constraint import equation_value
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, State, Status


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


Equations = Mapping[str, str | Expression]  # actuator -> equation


@dataclass(frozen=True)
class AttachedConstraintFollowing(AttachedLaw):
    """The law for one plant and task: gains per row, weights and limits per actuator.

    The other fields are those of `ConstraintFollowing`, in order of actuators.
    """

    rows: tuple[Row, ...]  # the task rows
    # indices of the rows of each priority, the highest first; rows of reactions follow those of the task
    levels: tuple[tuple[int, ...], ...]
    reactions: tuple[ReactionComponent, ...]  # components of loop reactions that are prescribed
    preload: tuple[float, ...]  # [N, N m] their values
    low_priority: tuple[int, ...]  # indices of the rows of priority 2 and below
    optional: tuple[int, ...]  # indices of the rows that a run may miss and still end `done`
    # damping, stiffness: gains of each row on its violation rate and its violation
    damping: tuple[float, ...]
    stiffness: tuple[float, ...]
    # gains on the second and higher derivatives, the same number for each row, one row after the other
    higher: tuple[float, ...]
    allocation: str
    weights: tuple[float, ...]
    feedback_allocation: str
    null_space: Equations | UserFunction | None
    has_secondary: bool
    aim: tuple[float, ...]  # the constant part of s, per actuator
    free_damping: float  # damping of the free motion; see `constraint_following.Secondary`
    limited: bool  # whether any input has a limit
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    rank_tolerance: float
    residual_tolerance: float
    on_infeasible: str
    input_damping: float
    observer: RowObserver | None = None  # disturbance observer of the rows; None: none
    observer_rate: float = 0.0  # [1/s] its rate L
    robust: RobustTerm | None = None  # robust or adaptive term; None: none
    sliding: tuple[float, ...] = ()  # lambda of each row [1/s]; empty without such a term
    scale: tuple[float, ...] = ()  # size by which the violation of each row is divided; empty without such a term
    robust_numbers: tuple[float, ...] = ()  # the term's `Numbers`; empty without one
    funnel: FunnelTerm | None = None  # funnels of rows; None: none
    funnel_numbers: tuple[float, ...] = ()  # the numbers of each, one after the other
    bounds: AttachedBounds | None = None  # bounds that come before every task; None: none
    # bound_rates, bound_braking, bound_margins, bound_reactions: their `Numbers`
    bound_rates: tuple[float, ...] = ()
    bound_braking: tuple[float, ...] = ()
    bound_margins: tuple[float, ...] = ()
    bound_reactions: tuple[float, ...] = ()
    rounding: float = ROUNDING  # sums below this, relative to their terms, are rounding, where limits or bounds hold

    def gains(self, row: int) -> tuple[float, float, tuple[float, ...]]:
        """Damping, stiffness and the gains of the higher derivatives of a row."""
        width = len(self.higher) // len(self.rows)
        count = max(0, self.rows[row].degree - 2)
        return self.damping[row], self.stiffness[row], self.higher[row * width : row * width + count]

    @property
    def steepest_gains(self) -> list[tuple[int, float, float]]:
        """(row, damping, stiffness) of each row with a funnel, at its edge."""
        return [] if self.funnel is None else self.funnel.steepest_gains(self.funnel_numbers)

    @property
    def has_aim(self) -> bool:
        """Whether there is an s."""
        return self.null_space is not None or self.has_secondary

    @property
    def opaque(self) -> str | None:
        return self.null_space.opaque if isinstance(self.null_space, UserFunction) else None

    @property
    def low_priority_rows(self) -> tuple[int, ...]:
        return self.low_priority

    @property
    def bounded(self) -> tuple[str, ...]:
        return () if self.bounds is None else self.bounds.names

    @property
    def bound_numbers(self) -> BoundNumbers:
        """What the bounds compare with."""
        return BoundNumbers(self.bound_rates, self.bound_braking, self.bound_margins, self.bound_reactions)

    def bound_values(self, terms: Terms, u: Array) -> Array:
        return np.zeros(0) if self.bounds is None else self.bounds.values(terms, u, self.bound_numbers)

    @property
    def relaxed_rows(self) -> tuple[int, ...]:
        return self.low_priority if self.bounds is None else tuple(range(len(self.rows)))

    @property
    def optional_rows(self) -> tuple[int, ...]:
        return tuple(sorted({*self.low_priority, *self.optional}))

    @property
    def required(self) -> list[int]:
        """Indices of the rows of priority 1, which decide the status."""
        return [i for i in range(len(self.rows)) if i not in self.low_priority]

    @property
    def _parts(self) -> LawMemory:
        return LawMemory(self.observer, self.bounds, self.robust)

    @property
    def memory(self) -> Mapping[str, float]:
        """States of observer and bounds, what was active in the last answer, and the estimate of an adaptive term."""
        return self._parts.start

    @property
    def memory_period(self) -> float | None:
        return self._parts.period

    @property
    def funnels(self) -> Mapping[str, Mapping[str, float]]:
        return {} if self.funnel is None else self.funnel.facts(self.funnel_numbers)

    @property
    def observed(self) -> tuple[str, ...]:
        return () if self.observer is None else self.observer.rows

    def disturbance(self, terms: Terms, memory: Array) -> Array:
        if self.observer is None:
            return np.zeros(0)
        return self.observer.disturbance(terms.matrices.task, self._parts.of_observer(memory), self.observer_rate)

    @property
    def searches(self) -> bool:
        return self.limited or self.bounds is not None

    @property
    def predicts(self) -> bool:
        return self.bounds is not None and self.bounds.sampled

    @property
    def _bounds(self) -> AttachedBounds:
        assert self.bounds is not None
        return self.bounds

    def predicted(self, terms: Terms, memory: Array, acceleration: Acceleration) -> tuple[State, State]:
        return self._bounds.predicted(terms, self._parts.of_bounds(memory), acceleration)

    def last_sent(self, memory: Array) -> Array:
        return self._bounds.last_sent(self._parts.of_bounds(memory))

    def bound_rows(self, terms: Terms) -> tuple[Array, Array, Any]:
        return self._bounds.rows_of(terms)

    def bound_least(self, of: Rows | None) -> Array:
        return self._bounds.least(of, self.bound_numbers)

    def mean_bounds(self, change: Array, memory: Array) -> Array:
        return self._bounds.mean_change(change, self._parts.of_bounds(memory), self.bound_numbers)

    def memory_rate(self, terms: Terms, memory: Array, command: Command) -> Array:
        task, rates = terms.matrices.task, []
        if self.observer is not None:
            d, own = self.disturbance(terms, memory), self._parts.of_observer(memory)
            after = self.observer.after(task, terms.rhs, command.u, terms.task_map, own, d)
            rates.append((after - own) / self.observer.timing.h)
        if self.bounds is not None and self.bounds.sampled:
            own = self._parts.of_bounds(memory)
            rates.append((self.bounds.after(command.u, own) - own) / self.bounds.timing.h)
            rates.append((command.active - self._parts.of_search(memory)) / self.bounds.timing.h)
        if self.robust is not None and self.robust.adaptive:
            beta = self.robust.beta(task, self.sliding, self.scale)
            rates.append(
                np.array([self.robust.rate(beta, RobustNumbers(*self.robust_numbers), self._parts.of_robust(memory))])
            )
        return np.concatenate(rates) if rates else np.zeros(len(memory))

    def robust_force(self, terms: Terms, memory: Array) -> Array:
        """g of each row [acceleration of the row], which the law subtracts; zero without a robust or adaptive term."""
        if self.robust is None:
            return np.zeros(len(self.rows))
        beta = self.robust.beta(terms.matrices.task, self.sliding, self.scale)
        return self.robust.force(beta, self.scale, RobustNumbers(*self.robust_numbers), self._parts.of_robust(memory))

    @property
    def stops_on(self) -> frozenset[int]:
        bad = (Status.INFEASIBLE, Status.UNREACHABLE, Status.SATURATED)
        return frozenset(status.code for status in bad) if self.on_infeasible == "fault" else frozenset()

    def at_limit(self, u: Array) -> list[int]:
        return [i for i, value in enumerate(u) if value <= self.lower[i] or value >= self.upper[i]]

    def command(self, terms: Terms, memory: Array) -> Command:
        r = len(self.rows)
        reactions = preloads.reaction_rows(terms, self.reactions, self.preload) if self.reactions else None
        allocator = Allocator(terms, self.rank_tolerance, self.levels, reactions)
        feedforward, feedback = terms.rhs, self.feedback(terms)
        if self.observer is not None:
            feedback = feedback - self.disturbance(terms, memory)
        if self.robust is not None:
            feedback = feedback - self.robust_force(terms, memory)
        if reactions is not None:
            feedforward = np.concatenate([feedforward, reactions.rhs])
            feedback = np.concatenate([feedback, np.zeros(len(reactions.rhs))])
        rhs = feedforward + feedback
        u = self._allocate(allocator, feedforward, feedback)
        if self.has_aim:
            u = u + allocator.free(self._secondary(terms))
        missed = rhs - product(allocator.task_map, u)
        status: Any = Status.OK.code
        if self.required:
            u, status = self._status(terms, allocator, rhs, missed, u)
        known = is_finite(rhs, u)  # before limits: clipping would turn an infinite input into a finite one
        left = Limiting(u, missed, status, np.zeros(0), np.zeros(0), np.zeros(0), 0.0, True)
        if self.searches:
            left = limiting(self, terms, allocator, u, rhs, missed, status, self._search_start(memory))
            u, missed, status = left[:3]
        # from the mildest cause to the most severe: the last one that holds is reported
        status = where(known, status, Status.NON_FINITE.code)
        status = where(terms.positive, status, Status.NOT_POSITIVE.code)
        status = where(terms.finite, status, Status.NON_FINITE.code)
        nothing = status >= Status.NOT_POSITIVE.code
        u, missed = where(nothing, np.nan, u), where(nothing, np.nan, missed)
        return Command(
            u,
            where(nothing, 0, allocator.rank),
            missed[:r],
            where(nothing, 0.0, allocator.pivot_min),
            status,
            left.binding,
            left.lack,
            where(nothing, 0.0, left.active),
            where(nothing, 0.0, left.steps),
            where(nothing, 1.0, left.proven),
        )

    def _search_start(self, memory: Array) -> Start | None:
        """Where the search for inputs within limits and bounds begins; None: the law keeps nothing of the last tick."""
        if not self.predicts:
            return None
        return self._bounds.start(self._parts.of_search(memory), self._parts.of_bounds(memory))

    def decay(self, row: int) -> float:
        """kappa of a row under a robust or adaptive term: beta decays at this rate without disturbances [1/s]."""
        return self.damping[row] - self.sliding[row] if self.rows[row].has_rate else self.stiffness[row]

    def right_inverse(self, terms: Terms) -> tuple[Array, Array]:
        """The inputs of the task without violations, shape (m,), and the inputs per unit of feedback, shape (m, r)."""
        reactions = preloads.reaction_rows(terms, self.reactions, self.preload) if self.reactions else None
        allocator = Allocator(terms, self.rank_tolerance, self.levels, reactions)
        rhs, r = terms.rhs, len(self.rows)
        if reactions is not None:
            rhs = np.concatenate([rhs, reactions.rhs])
        u = self._allocate(allocator, rhs, np.zeros(len(rhs)))
        if self.has_aim:
            u = u + allocator.free(self._secondary(terms))
        columns = [self._allocate(allocator, np.zeros(len(rhs)), unit) for unit in np.eye(len(rhs))[:r]]
        return u, np.stack(columns, axis=1)

    def _status(self, terms: Terms, allocator: Allocator, rhs: Array, missed: Array, u: Array) -> tuple[Array, Any]:
        """The inputs, damped if rows of priority 1 cannot be met and `on_infeasible` is `damp`, and the status."""
        required, rank = self.required, allocator.ranks[0]
        infeasible = largest(missed[required]) > self.residual_tolerance * (1.0 + largest(rhs[required]))
        status = where(rank < len(required), Status.RANK_DEFICIENT.code, Status.OK.code)
        status = where(infeasible, Status.INFEASIBLE.code, status)
        status = where(rank < 1, Status.UNREACHABLE.code, status)
        if self.on_infeasible == "damp":
            damped = where(rank < 1, 1.0, infeasible)
            rates = terms.matrices.B.T @ terms.state.v
            u = where(damped, -self.input_damping * rates, u)
            status = where(damped, Status.DAMPED.code, status)
        return u, status

    def feedback(self, terms: Terms) -> Array:
        """The terms that the correction adds to b, shape (r,)."""
        task = terms.matrices.task
        added: list[Any] = [0.0] * len(self.rows)
        for i, row in enumerate(self.rows):
            if row.has_violation:
                added[i] = -self.stiffness[i] * task.violation[i]
            if row.has_rate:
                added[i] = added[i] - self.damping[i] * task.violation_rate[i]
            if row.degree > 2 and task.higher is not None:
                width = task.higher.shape[1]
                added[i] = added[i] - np.dot(self.higher[i * width : (i + 1) * width], task.higher[i])
        if self.funnel is not None:
            for i, extra in self.funnel.extra(task, terms.state.t, self.funnel_numbers):
                added[i] = added[i] - extra
        return np.array(added)

    def _allocate(self, allocator: Allocator, feedforward: Array, feedback: Array) -> Array:
        weights = np.array(self.weights)
        if self.feedback_allocation == self.allocation:
            return allocator.solve(self.allocation, feedforward + feedback, weights)
        forward = allocator.solve(self.allocation, feedforward, weights)
        return forward + allocator.solve(self.feedback_allocation, feedback, weights)

    def _secondary(self, terms: Terms) -> Array:
        """s, shape (m,): the inputs wanted in the null space of the task."""
        plant = terms.matrices.plant
        s: Array = np.array(self.aim) - self.free_damping * (terms.matrices.B.T @ terms.state.v)
        if isinstance(self.null_space, Mapping):
            texts = self.null_space
            values = [equation_value(texts[a], plant, terms.state) if a in texts else 0.0 for a in plant.actuators]
            s = s + np.array(values)
        elif self.null_space is not None:
            s = s + self.null_space(np.array([terms.state.t]), *terms.state[1:])
        return s
