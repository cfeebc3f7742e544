"""Constraint following: the control is the constraint force.

    T = A Phi B,   wanted = b - A a_c + terms,   u = T^+ wanted + (I - T^+ T) s     within limits and bounds

The mechanism constraints react to u, so Phi projects onto the motions that they allow. The published law computes their
reaction without u, and then violates the mechanism constraints or misses the task. The task can be met if and only if
`(I - T T^+) wanted = 0`; every command reports this residual.

Design: the status depends on rows of priority 1 only. Rows of lower priority may be missed: a run reports by how much,
but it is never infeasible, damped or stopped because of them.

Source: Chen 2009; Liu et al. 2015, (32)-(35), (71), with the reaction of the mechanism constraints to u included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.linalg import product
from servoctl.engine.products import is_finite, largest
from servoctl.engine.symbol import above, where
from servoctl.laws.allocation import Allocation, Allocator
from servoctl.laws.bounds_term import BoundsTerm
from servoctl.laws.corrections import CorrectionTerm
from servoctl.laws.funnel import FunnelTerm
from servoctl.laws.law import AttachedLaw
from servoctl.laws.limits import Limited
from servoctl.laws.observer import RowObserver
from servoctl.laws.robust import RobustTerm
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.rows import InputRows
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status

T = TypeVar("T", bound=AttachedTerm)


@dataclass(frozen=True)
class AttachedConstraintFollowing(AttachedLaw):
    """The law for one plant and task."""

    rows: tuple[Row, ...]  # the task rows
    low_priority: tuple[int, ...]  # indices of the rows of priority 2 and below
    optional: tuple[int, ...]  # indices of the rows that a run may miss and still end `done`
    terms: tuple[AttachedTerm, ...]
    allocation: Allocation
    residual_tolerance: float  # [-] infeasible: residual above this times (1 + |wanted|_inf)
    on_infeasible: str
    input_damping: float  # where the actuators cannot meet the task: u = -this B^T v

    def command(self, at: Terms, memory: Array) -> Command:
        feedback = sum(term.acceleration(at, kept) for term, kept in self._with_memory(memory))
        allocator = Allocator(at, self.allocation, self._prescribed(at))
        forward, back = allocator.stacked(at.rhs), allocator.stacked(feedback, prescribed=False)
        wanted, s = forward + back, self._preferred(at)
        u = allocator.inputs(forward, back) + (0.0 if s is None else allocator.free(s))
        missed = wanted - product(allocator.task_map, u)
        u, status = self._judged(at, allocator, wanted, missed, u)
        known = is_finite(wanted, u)  # before limits: clipping would turn an infinite input into a finite one
        limited, binding, lack = None, np.zeros(0), np.zeros(0)
        if self.searches:
            limited = self._limited(at, allocator, wanted, u, status, s is not None, memory)
            bounds = self.bounds
            if bounds is not None:
                binding, lack = bounds.of_names(limited.binding), bounds.of_names(limited.slack)
            left, u = wanted - product(allocator.task_map, limited.u), limited.u
            status = self._given_up(wanted, missed, left, status, binding, lack)
            missed = left
        # from the mildest cause to the most severe: the last one that holds is reported
        status = where(known, status, Status.NON_FINITE.code)
        status = where(at.positive, status, Status.NOT_POSITIVE.code)
        status = where(at.finite, status, Status.NON_FINITE.code)
        nothing = status >= Status.NOT_POSITIVE.code
        return Command(
            where(nothing, np.nan, u),
            where(nothing, 0, allocator.rank),
            where(nothing, np.nan, missed)[: len(self.rows)],
            where(nothing, 0.0, allocator.pivot_min),
            status,
            binding,
            lack,
            np.zeros(0) if limited is None else where(nothing, 0.0, limited.active),
            0.0 if limited is None else where(nothing, 0.0, limited.iterations),
            True if limited is None else where(nothing, 1.0, limited.converged),
        )

    def _prescribed(self, at: Terms) -> InputRows | None:
        return next((rows for term in self.terms if (rows := term.prescribed(at)) is not None), None)

    def _preferred(self, at: Terms) -> Array | None:
        """s, shape (m,); None: no term prefers inputs."""
        found = [s for term in self.terms if (s := term.preferred(at)) is not None]
        return sum(found) if found else None  # type: ignore[return-value]

    def _judged(self, at: Terms, allocator: Allocator, wanted: Array, missed: Array, u: Array) -> tuple[Array, Any]:
        """The inputs, damped if rows of priority 1 cannot be met and `on_infeasible` is `damp`, and the status."""
        required, rank = self.required, allocator.ranks[0]
        if not required:
            return u, Status.OK.code
        infeasible = largest(missed[required]) > self.residual_tolerance * (1.0 + largest(wanted[required]))
        status = where(rank < len(required), Status.RANK_DEFICIENT.code, Status.OK.code)
        status = where(infeasible, Status.INFEASIBLE.code, status)
        status = where(rank < 1, Status.UNREACHABLE.code, status)
        if self.on_infeasible == "damp":
            damped = where(rank < 1, 1.0, infeasible)
            u = where(damped, -self.input_damping * (at.matrices.B.T @ at.state.v), u)
            status = where(damped, Status.DAMPED.code, status)
        return u, status

    def _limited(
        self, at: Terms, allocator: Allocator, wanted: Array, u: Array, status: Any, preferring: bool, memory: Array
    ) -> Limited:
        """The inputs within limits and bounds.

        Inputs that damp meet no task: those next to them that the bounds allow take their place.
        """
        bounds = self.bounds
        rows, start = (None, None) if bounds is None else (bounds.bounding(at), bounds.start(self.of(bounds, memory)))
        damps = above(status, Status.DAMPED.code - 0.5) if self.on_infeasible == "damp" else None
        return allocator.within(u, wanted, preferring, rows, start, damps)

    def _given_up(self, wanted: Array, missed: Array, left: Array, status: Any, binding: Array, lack: Array) -> Any:
        """The status with what limits and bounds take from rows of priority 1: `left` instead of `missed`."""
        required, reason = self.required, Status.SATURATED.code
        gives_up = largest((left - missed)[required]) > self.residual_tolerance * (1.0 + largest(wanted[required]))
        if len(binding):
            reason = where((largest(binding) > 0.5) & (largest(lack) <= 0.0), Status.BOUNDED.code, reason)
        severe = status >= Status.INFEASIBLE.code
        return where(severe, status, where(gives_up, reason, status))

    def right_inverse(self, at: Terms) -> tuple[Array, Array]:
        """The inputs of the task without violations, shape (m,), and the inputs per unit of feedback, shape (m, r)."""
        allocator, s = Allocator(at, self.allocation, self._prescribed(at)), self._preferred(at)
        forward = allocator.stacked(at.rhs)
        none = np.zeros(len(forward))
        u = allocator.inputs(forward, none) + (0.0 if s is None else allocator.free(s))
        units = (allocator.stacked(unit, prescribed=False) for unit in np.eye(len(self.rows)))
        return u, np.stack([allocator.inputs(none, unit) for unit in units], axis=1)

    def term(self, kind: type[T]) -> T | None:
        """The term of a class; None: there is none."""
        return next((term for term in self.terms if isinstance(term, kind)), None)

    def with_terms(self, terms: Sequence[AttachedTerm]) -> "AttachedConstraintFollowing":
        """The law with other numbers in some terms: each takes the place of the one of its class."""
        new = {type(term): term for term in terms}
        return replace(self, terms=tuple(new.get(type(term), term) for term in self.terms))

    @property
    def correction(self) -> CorrectionTerm:
        """The gains of each row."""
        found = self.term(CorrectionTerm)
        assert found is not None
        return found

    def decay(self, row: int) -> float:
        """kappa of a row under a robust or adaptive term: beta decays at this rate without disturbances [1/s]."""
        term, gains = self.robust, self.correction
        assert term is not None
        return gains.damping[row] - term.sliding[row] if self.rows[row].has_rate else gains.stiffness[row]

    @property
    def memory(self) -> Mapping[str, float]:
        """States of the terms, one term after the other."""
        return {name: value for term in self.terms for name, value in term.memory.items()}

    def _with_memory(self, memory: Array) -> Iterator[tuple[AttachedTerm, Array]]:
        """Each term with its part of the memory."""
        first = 0
        for term in self.terms:
            end = first + len(term.memory)
            yield term, memory[first:end]
            first = end

    def of(self, wanted: AttachedTerm, memory: Array) -> Array:
        """The states of a term."""
        return next(kept for term, kept in self._with_memory(memory) if term is wanted)

    @property
    def memory_period(self) -> float | None:
        return next((term.period for term in self.terms if term.memory), None)

    def memory_rate(self, terms: Terms, memory: Array, command: Command) -> Array:
        return np.concatenate([term.memory_rate(terms, kept, command) for term, kept in self._with_memory(memory)])

    @property
    def opaque(self) -> str | None:
        return next((term.opaque for term in self.terms if term.opaque is not None), None)

    @property
    def low_priority_rows(self) -> tuple[int, ...]:
        return self.low_priority

    @property
    def optional_rows(self) -> tuple[int, ...]:
        return tuple(sorted({*self.low_priority, *self.optional}))

    @property
    def required(self) -> list[int]:
        """Indices of the rows of priority 1, which decide the status."""
        return [i for i in range(len(self.rows)) if i not in self.low_priority]

    @property
    def relaxed_rows(self) -> tuple[int, ...]:
        return self.low_priority if self.bounds is None else tuple(range(len(self.rows)))

    @property
    def stops_on(self) -> frozenset[int]:
        bad = (Status.INFEASIBLE, Status.UNREACHABLE, Status.SATURATED)
        return frozenset(status.code for status in bad) if self.on_infeasible == "fault" else frozenset()

    def at_limit(self, u: Array) -> list[int]:
        limits = zip(u, self.allocation.lower, self.allocation.upper, strict=True)
        return [i for i, (value, lower, upper) in enumerate(limits) if value <= lower or value >= upper]

    @property
    def searches(self) -> bool:
        return self.allocation.limited or self.bounds is not None

    @property
    def bounds(self) -> BoundsTerm | None:
        return self.term(BoundsTerm)

    @property
    def observer(self) -> RowObserver | None:
        """The disturbance observer."""
        return self.term(RowObserver)

    @property
    def robust(self) -> RobustTerm | None:
        """The robust or adaptive term."""
        return self.term(RobustTerm)

    @property
    def funnel(self) -> FunnelTerm | None:
        """The funnels."""
        return self.term(FunnelTerm)

    @property
    def funnels(self) -> Mapping[str, Mapping[str, float]]:
        return {} if self.funnel is None else self.funnel.facts

    @property
    def observed(self) -> tuple[str, ...]:
        return () if self.observer is None else self.observer.rows

    def disturbance(self, terms: Terms, memory: Array) -> Array:
        observer = self.observer
        return np.zeros(0) if observer is None else observer.disturbance(terms.task, self.of(observer, memory))
