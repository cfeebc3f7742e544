"""What limits of inputs and bounds leave of the inputs that a law asks for."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from servoctl.engine.linalg import product
from servoctl.engine.products import largest
from servoctl.engine.symbol import above, where
from servoctl.laws.allocation import Allocator
from servoctl.laws.attached_bounds import AttachedBounds
from servoctl.laws.limits import Start, within_limits
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import Terms
from servoctl.types import Array, Status


class LimitedLaw(Protocol):
    """What is read of a law: its limits, its bounds, and how it shares the inputs out."""

    @property
    def limited(self) -> bool: ...
    @property
    def lower(self) -> tuple[float, ...]: ...
    @property
    def upper(self) -> tuple[float, ...]: ...
    @property
    def bounds(self) -> AttachedBounds | None: ...
    @property
    def has_aim(self) -> bool: ...
    @property
    def allocation(self) -> str: ...
    @property
    def weights(self) -> tuple[float, ...]: ...
    @property
    def rank_tolerance(self) -> float: ...
    @property
    def residual_tolerance(self) -> float: ...
    @property
    def rounding(self) -> float: ...
    @property
    def on_infeasible(self) -> str: ...
    @property
    def required(self) -> list[int]: ...
    def bound_rows(self, terms: Terms) -> tuple[Array, Array, Any]: ...
    def bound_least(self, of: Rows | None) -> Array: ...


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


def limiting(
    law: LimitedLaw,
    terms: Terms,
    allocator: Allocator,
    u: Array,
    rhs: Array,
    missed: Array,
    status: Any,
    start: Start | None,
) -> Limiting:
    """The inputs within their limits and on the inner side of the bounds.

    Inputs that damp meet no task: those next to them that the bounds allow take their place.

    Args:
        law: The law.
        terms: The terms of motion at the state.
        allocator: T, decomposed.
        u: The inputs that the law asks for, shape (m,).
        rhs: What the rows of the task and of reactions ask for.
        missed: What u gives up of that.
        status: That of u.
        start: Where the search for the inputs begins; None: nothing is known.
    """
    lower, upper = (np.array(law.lower), np.array(law.upper)) if law.limited else (None, None)
    levels = [(allocator.task_map[level], rhs[level]) for level in allocator.levels]
    near = u if law.has_aim or law.allocation not in ("minimum_norm", "weighted") else None
    if law.on_infeasible == "damp":
        damps = above(status, Status.DAMPED.code - 0.5)
        levels = [(where(damps, 0.0, T), where(damps, 0.0, e)) for T, e in levels]
        near = where(damps, u, 0.0 if near is None else near)
    weights = np.array(law.weights) if law.allocation == "weighted" else None
    G, g, scale = (None, None, None) if law.bounds is None else terms.held_rows or _rows_now(law, terms)
    limited = within_limits(
        levels,
        lower,
        upper,
        near,
        inequalities=None if G is None or g is None else (G, g),
        row_scale=scale,
        weights=weights,
        rank_tolerance=law.rank_tolerance,
        scale=allocator.scales(weights),
        unlimited=u,
        start=start,
        rounding=law.rounding,
    )
    left = rhs - product(allocator.task_map, limited.u)
    required = law.required
    gives_up = largest((left - missed)[required]) > law.residual_tolerance * (1.0 + largest(rhs[required]))
    reason: Any = Status.SATURATED.code
    binding, lack = np.zeros(0), np.zeros(0)
    if law.bounds is not None:
        binding, lack = law.bounds.of_names(limited.binding), law.bounds.of_names(limited.slack)
        reason = where((largest(binding) > 0.5) & (largest(lack) <= 0.0), Status.BOUNDED.code, reason)
    severe = status >= Status.INFEASIBLE.code
    status = where(severe, status, where(gives_up, reason, status))
    return Limiting(limited.u, left, status, binding, lack, limited.active, limited.iterations, limited.converged)


def _rows_now(law: LimitedLaw, terms: Terms) -> tuple[Array, Array, Any]:
    """G, g and the size of G: `G u >= g` keeps the bounds if the command acts at once and in this state alone."""
    G, free, scale = law.bound_rows(terms)
    return G, law.bound_least(terms.matrices.bounds) - free, scale
