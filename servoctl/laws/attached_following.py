"""Constraint following on one plant and task: state -> command.

    T = A Phi B,  bbar = b - A a_c + correction,  u = T^+ bbar + (I - T^+ T) s

Source: as of `laws.constraint_following`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from servoctl.engine.linalg import product
from servoctl.engine.products import is_finite, largest
from servoctl.engine.symbol import above, where
from servoctl.expression import Expression
from servoctl.laws import preload as preloads
from servoctl.laws.active_set import ROUNDING
from servoctl.laws.allocation import Allocator
from servoctl.laws.attached_bounds import AttachedBounds, BoundNumbers
from servoctl.laws.funnel import FunnelTerm
from servoctl.laws.law import AttachedLaw, UserFunction
from servoctl.laws.limits import Start, within_limits
from servoctl.laws.observer import RowObserver
from servoctl.laws.preload import ReactionComponent
from servoctl.laws.robust import RobustNumbers, RobustTerm
from servoctl.mechanics.constraint import equation_value
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status


class Limiting(NamedTuple):
    """The inputs that are left."""

    u: Array  # shape (m,)
    missed: Array  # `rhs - T u`, per row of the task and of reactions
    status: Any  # `Status.code`
    binding: Array  # per bound: 1 if it holds the inputs, else 0
    lack: Array  # per bound: what the inputs cannot give it
    # active, steps, proven: as in `Command`
    active: Array
    steps: Any
    proven: Any


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
    def _memories(self) -> dict[str, Mapping[str, float]]:
        """Part of the law -> name and initial value of each of its states, in order."""
        return {
            "observer": {} if self.observer is None else self.observer.memory,
            "bounds": {} if self.bounds is None else self.bounds.memory,
            "active": {} if self.bounds is None else self.bounds.active,
            "robust": {} if self.robust is None else self.robust.memory,
        }

    @property
    def memory(self) -> Mapping[str, float]:
        """States of observer and bounds, what was active in the last answer, and the estimate of an adaptive term."""
        return {name: value for states in self._memories.values() for name, value in states.items()}

    def _of(self, part: str, memory: Array) -> Array:
        """The states of one of `_memories`."""
        parts = self._memories
        first = sum(len(parts[name]) for name in takewhile(part.__ne__, parts))
        return memory[first : first + len(parts[part])]

    def _estimate(self, memory: Array) -> Any:
        """The estimate of the adaptive term; 0 without one."""
        return self._of("robust", memory)[0] if self.robust is not None and self.robust.adaptive else 0.0

    @property
    def memory_period(self) -> float | None:
        if self.observer is not None:
            return self.observer.timing.period
        if self.bounds is not None and self.bounds.memory:
            return self.bounds.timing.period
        return self.robust.period if self.robust is not None and self.robust.adaptive else None

    @property
    def funnels(self) -> Mapping[str, Mapping[str, float]]:
        return {} if self.funnel is None else self.funnel.facts(self.funnel_numbers)

    @property
    def observed(self) -> tuple[str, ...]:
        return () if self.observer is None else self.observer.rows

    def disturbance(self, terms: Terms, memory: Array) -> Array:
        if self.observer is None:
            return np.zeros(0)
        return self.observer.disturbance(terms.matrices.task, self._of("observer", memory), self.observer_rate)

    @property
    def searches(self) -> bool:
        return self.limited or self.bounds is not None

    @property
    def predicted_bounds(self) -> tuple[AttachedBounds, BoundNumbers] | None:
        return (self.bounds, self.bound_numbers) if self.bounds is not None and self.bounds.sampled else None

    def memory_of_bounds(self, memory: Array) -> Array:
        return self._of("bounds", memory)

    def memory_rate(self, terms: Terms, memory: Array, command: Command) -> Array:
        task, rates = terms.matrices.task, []
        if self.observer is not None:
            d, own = self.disturbance(terms, memory), self._of("observer", memory)
            after = self.observer.after(task, terms.rhs, command.u, terms.task_map, own, d)
            rates.append((after - own) / self.observer.timing.h)
        if self.bounds is not None and self.bounds.sampled:
            own = self._of("bounds", memory)
            rates.append((self.bounds.after(command.u, own) - own) / self.bounds.timing.h)
            rates.append((command.active - self._of("active", memory)) / self.bounds.timing.h)
        if self.robust is not None and self.robust.adaptive:
            beta = self.robust.beta(task, self.sliding, self.scale)
            numbers = RobustNumbers(*self.robust_numbers)
            rates.append(np.array([self.robust.rate(beta, numbers, self._estimate(memory))]))
        return np.concatenate(rates) if rates else np.zeros(len(memory))

    def robust_force(self, terms: Terms, memory: Array) -> Array:
        """g of each row [acceleration of the row], which the law subtracts; zero without a robust or adaptive term."""
        if self.robust is None:
            return np.zeros(len(self.rows))
        beta = self.robust.beta(terms.matrices.task, self.sliding, self.scale)
        return self.robust.force(beta, self.scale, RobustNumbers(*self.robust_numbers), self._estimate(memory))

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
            left = self._limiting(terms, allocator, u, rhs, missed, status, self._search_start(memory))
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

    def _limiting(
        self, terms: Terms, allocator: Allocator, u: Array, rhs: Array, missed: Array, status: Any, start: Start | None
    ) -> Limiting:
        """The inputs within their limits and on the inner side of the bounds.

        Inputs that damp meet no task: those next to them that the bounds allow take their place.

        Args:
            allocator: T, decomposed.
            u: The inputs that the law asks for, shape (m,).
            rhs: What the rows of the task and of reactions ask for.
            missed: What u gives up of that.
            status: That of u.
            start: Where the search for the inputs begins; None: nothing is known.
        """
        lower, upper = (np.array(self.lower), np.array(self.upper)) if self.limited else (None, None)
        levels = [(allocator.task_map[level], rhs[level]) for level in allocator.levels]
        near = u if self.has_aim or self.allocation not in ("minimum_norm", "weighted") else None
        if self.on_infeasible == "damp":
            damps = above(status, Status.DAMPED.code - 0.5)
            levels = [(where(damps, 0.0, T), where(damps, 0.0, e)) for T, e in levels]
            near = where(damps, u, 0.0 if near is None else near)
        weights = np.array(self.weights) if self.allocation == "weighted" else None
        G, g, scale = (None, None, None) if self.bounds is None else terms.held_rows or self._rows_now(terms)
        limited = within_limits(
            levels,
            lower,
            upper,
            near,
            inequalities=None if G is None or g is None else (G, g),
            row_scale=scale,
            weights=weights,
            rank_tolerance=self.rank_tolerance,
            scale=allocator.scales(weights),
            unlimited=u,
            start=start,
            rounding=self.rounding,
        )
        left = rhs - product(allocator.task_map, limited.u)
        required = self.required
        gives_up = largest((left - missed)[required]) > self.residual_tolerance * (1.0 + largest(rhs[required]))
        reason: Any = Status.SATURATED.code
        binding, lack = np.zeros(0), np.zeros(0)
        if self.bounds is not None:
            binding, lack = self.bounds.of_names(limited.binding), self.bounds.of_names(limited.slack)
            reason = where((largest(binding) > 0.5) & (largest(lack) <= 0.0), Status.BOUNDED.code, reason)
        severe = status >= Status.INFEASIBLE.code
        status = where(severe, status, where(gives_up, reason, status))
        return Limiting(limited.u, left, status, binding, lack, limited.active, limited.iterations, limited.converged)

    def _rows_now(self, terms: Terms) -> tuple[Array, Array, Any]:
        """G, g and the size of G: `G u >= g` keeps the bounds if the command acts at once and in this state alone."""
        assert self.bounds is not None
        G, free, scale = self.bounds.rows_of(terms)
        return G, self.bounds.least(terms.matrices.bounds, self.bound_numbers) - free, scale

    def _search_start(self, memory: Array) -> Start | None:
        """Where the search for inputs within limits and bounds begins; None: the law keeps nothing of the last tick."""
        if self.bounds is None or not self.bounds.sampled:
            return None
        return self.bounds.start(self._of("active", memory), self._of("bounds", memory))

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
