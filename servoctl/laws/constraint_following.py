"""Constraint following: the control is the constraint force.

    T = A Phi B,   wanted = b - A a_c + terms,   u = T^+ wanted + (I - T^+ T) s     within limits and bounds

The mechanism constraints react to u, so Phi projects onto the motions that they allow. The published law computes their
reaction without u, and then violates the mechanism constraints or misses the task. The task can be met if and only if
`(I - T T^+) wanted = 0`; every command reports this residual.

Design: the status depends on rows of priority 1 only. Rows of lower priority may be missed: a run reports by how much,
but it is never infeasible, damped or stopped because of them.

Source: Chen 2009; Liu et al. 2015, (32)-(35), (71), with the reaction of the mechanism constraints to u included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from servoctl.engine.linalg import is_finite, largest, product, solve_upper
from servoctl.engine.symbol import above, where
from servoctl.laws.allocation import Allocation, Allocator
from servoctl.laws.corrections import CorrectionTerm
from servoctl.laws.law import AttachedLaw, judged
from servoctl.laws.robust import RobustTerm
from servoctl.laws.secondary import SecondaryTerm
from servoctl.laws.term import AttachedTerm
from servoctl.mechanics.constraint import InputRows
from servoctl.mechanics.constraint_rows import Row
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Command, Status


@dataclass(frozen=True)
class AttachedConstraintFollowing(AttachedLaw):
    """The law for one plant and task."""

    rows: tuple[Row, ...]  # the task rows
    allocation: Allocation
    residual_tolerance: float  # [-] infeasible: residual above this times (1 + |wanted|_inf)
    on_infeasible: str
    input_damping: float  # where the actuators cannot meet the task: u = -this B^T v

    def command(self, at: Terms, memory: Array) -> Command:
        terms = sum(term.acceleration(at, kept) for term, kept in self.with_memory(memory))
        T = Allocator(at, self.allocation, self._prescribed(at))
        forward, back, s = T.stacked(at.rhs), T.stacked(terms, prescribed=False), self._preferred(at)
        u = T.inputs(forward, back) + (0.0 if s is None else T.free(s))
        return self._judged(at, T, forward + back, u, s is not None, memory)

    def _prescribed(self, at: Terms) -> InputRows | None:
        return next((rows for term in self.terms if (rows := term.prescribed(at)) is not None), None)

    def _preferred(self, at: Terms) -> Array | None:
        """s, shape (m,); None: no term prefers inputs."""
        return next((s for term in self.terms if (s := term.preferred(at)) is not None), None)

    def right_inverse(self, at: Terms) -> tuple[Array, Array]:
        """The inputs of the task without violations, shape (m,), and the inputs per unit of feedback, shape (m, r)."""
        T, s = Allocator(at, self.allocation, self._prescribed(at)), self._preferred(at)
        forward = T.stacked(at.rhs)
        none, units = np.zeros(len(forward)), np.eye(len(self.rows))
        u = T.inputs(forward, none) + (0.0 if s is None else T.free(s))
        return u, np.stack([T.inputs(none, T.stacked(unit, prescribed=False)) for unit in units], axis=1)

    @property
    def damps(self) -> bool:
        """Whether it damps speeds by something else than its correction."""
        secondary = self.term(SecondaryTerm)
        damped = self.on_infeasible == "damp" and self.input_damping > 0.0
        return damped or (secondary is not None and secondary.damping > 0.0)

    def damping_rates(self, at: Terms) -> dict[str, Array]:
        """Field of the law -> rates at which its damping slows the speeds that it acts on [1/s], shape (n,)."""
        B, secondary = at.matrices.B, self.term(SecondaryTerm)
        found = {}
        if secondary is not None and secondary.damping:
            T = Allocator(at, self.allocation, self._prescribed(at))
            free = np.stack([T.free(column) for column in np.eye(B.shape[1])], axis=1)
            found["secondary.damping"] = secondary.damping * free @ B.T
        if self.on_infeasible == "damp" and self.input_damping:
            found["damping"] = self.input_damping * B.T
        moved = solve_upper(at.L, at.project(at.inputs))  # accelerations per unit of input
        return {field: np.linalg.eigvals(moved @ inputs).real for field, inputs in found.items()}

    def _judged(self, at: Terms, T: Allocator, wanted: Array, u: Array, preferring: bool, memory: Array) -> Command:
        """The command with u, damped and within limits and bounds where it has to be, and its status."""
        missed = wanted - product(T.task_map, u)
        u, status = self._feasible(at, T, wanted, missed, u)
        known = is_finite(wanted, u)  # before limits: clipping would turn an infinite input into a finite one
        binding = lack = active = np.zeros(0)
        steps, proven = 0.0, True
        if self.searches:
            # inputs that damp meet no task: those next to them that the bounds allow take their place
            damps = above(status, Status.DAMPED.code - 0.5) if self.on_infeasible == "damp" else None
            rows, start, bounds = None, None, self.bounds
            if bounds is not None:
                rows, start = bounds.bounding(at), bounds.start(at, self.of(bounds, memory))
            limited = T.within(u, wanted, preferring, rows, start, damps)
            if bounds is not None:
                binding, lack = bounds.of_names(limited.binding), bounds.of_names(limited.slack)
            u, left = limited.u, wanted - product(T.task_map, limited.u)
            status, missed = self._given_up(wanted, left, left - missed, status, binding, lack), left
            active, steps, proven = limited.active, limited.iterations, limited.converged
        status = judged(at, known, status)
        none = status >= Status.NOT_POSITIVE.code
        u, missed, rank, pivot = (
            where(none, nothing, value)
            for nothing, value in ((np.nan, u), (np.nan, missed), (0, T.rank), (0.0, T.pivot_min))
        )
        active, steps, proven = where(none, 0.0, active), where(none, 0.0, steps), where(none, 1.0, proven)
        return Command(u, rank, missed[: len(self.rows)], pivot, status, binding, lack, active, steps, proven)

    def _feasible(self, at: Terms, T: Allocator, wanted: Array, missed: Array, u: Array) -> tuple[Array, Any]:
        """The inputs, damped if rows of priority 1 cannot be met and `on_infeasible` is `damp`, and the status."""
        required, rank = self.required, T.ranks[0]
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

    def _given_up(self, wanted: Array, left: Array, more: Array, status: Any, binding: Array, lack: Array) -> Any:
        """The status with what limits and bounds take: rows of priority 1 lack `left`, which is `more` than without."""
        required, reason = self.required, Status.SATURATED.code
        gives_up = largest(more[required]) > self.residual_tolerance * (1.0 + largest(wanted[required]))
        if len(binding):
            reason = where((largest(binding) > 0.5) & (largest(lack) <= 0.0), Status.BOUNDED.code, reason)
        return where(status >= Status.INFEASIBLE.code, status, where(gives_up, reason, status))

    @property
    def correction(self) -> CorrectionTerm:
        """The gains of each row."""
        return next(term for term in self.terms if isinstance(term, CorrectionTerm))

    @property
    def robust(self) -> RobustTerm | None:
        """The robust or adaptive term."""
        return self.term(RobustTerm)

    def with_terms(self, terms: Sequence[AttachedTerm]) -> "AttachedConstraintFollowing":
        """The law with other numbers in some terms: each takes the place of the one of its class."""
        new = {type(term): term for term in terms}
        return replace(self, terms=tuple(new.get(type(term), term) for term in self.terms))

    @property
    def unlimited(self) -> "AttachedConstraintFollowing":
        """The law with limits and bounds out of reach: its feedback where none of them binds."""
        far, allocation, bounds = (np.inf,) * len(self.allocation.lower), self.allocation, self.bounds
        free = replace(self, allocation=replace(allocation, lower=tuple(-x for x in far), upper=far))
        return free if bounds is None else free.with_terms([bounds.out_of_reach])

    @property
    def required(self) -> list[int]:
        """Indices of the rows of priority 1, which decide the status."""
        return [i for i in range(len(self.rows)) if i not in self.low_priority_rows]

    @property
    def stops_on(self) -> frozenset[int]:
        bad = (Status.INFEASIBLE, Status.UNREACHABLE, Status.SATURATED)
        return frozenset(status.code for status in bad) if self.on_infeasible == "fault" else frozenset()

    @property
    def searches(self) -> bool:
        return self.allocation.limited or self.bounds is not None

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        settings = self.allocation
        return tuple(zip(settings.lower, settings.upper, strict=True)) if settings.limited else ()
