"""Task rows differentiated along the plant's own motion, up to the derivative in which the inputs appear.

    y_0 = phi or psi,   y_{k+1} = dy_k/dq v + dy_k/dv a_c + dy_k/dt,   until (dy_k/dv) Phi B is not zero

a_c is the acceleration at u = 0 under the passive constraints. Below the relative degree r no y_k depends on the
inputs, so y_{r-1}(q, v, t) is a function at velocity level:

    A = dy_{r-1}/dv,   b = -(dy_{r-1}/dq v + dy_{r-1}/dt)

Design: a differentiated row is a constraint like any other, so one law serves every relative degree. It needs the
plant on symbols, so it does not exist for an opaque plant.

Source: Isidori, Nonlinear Control Systems, 4.1, 5.1 (relative degree, Lie derivatives); the projected form is ours.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from servoctl.engine.kernel import directional, jacobian
from servoctl.engine.linalg import solve_upper
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.expression import TimeFunction
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.passive import symbolic_plant
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.rows import Rows
from servoctl.mechanics.terms import assemble
from servoctl.types import Array, State

HIGHEST = 8  # largest relative degree that is tried


class DifferentiatedRow(Constraint):
    """One row of a constraint, differentiated up to its relative degree.

    Attributes:
        inner: The constraint.
        row: Index of the row in the constraint.
        degree: Relative degree r: the inputs appear in the r-th derivative.
        rank_tolerance: Rank tolerance of the passive constraints.
    """

    def __init__(self, inner: Constraint, row: int, degree: int, rank_tolerance: float) -> None:
        self.inner, self.row, self.degree, self.rank_tolerance = inner, row, degree, rank_tolerance
        self.kind = inner.kind  # type: ignore[misc]

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        return self.inner.signals

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        units = self.inner.row_units(plant)
        return units if len(units) == 1 else (units[self.row],)

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        chain = derivatives(self, plant, t, q, v)
        last = np.array([chain[-1]])
        b = -(directional(last, q, v) + jacobian(last, np.array([t]))[:, 0])
        rate = np.array([chain[1]]) if len(chain) > 1 else np.full(1, np.nan)
        higher = np.array([chain[2:]], dtype=object).reshape(1, max(0, len(chain) - 2))
        return Rows(jacobian(last, v), b, np.array([chain[0]]), rate, higher)


def derivatives(row: DifferentiatedRow, plant: Plant, t: Any, q: Array, v: Array) -> list[Any]:
    """y_0 ... y_{r-1} as expressions of the symbols t, q and v."""
    chain = [row.inner.rows(plant, t, q, v).violation[row.row]]
    if row.degree > 1:
        a = _acceleration(plant, t, q, v, row.rank_tolerance)
    while len(chain) < row.degree:
        y = np.array([chain[-1]])
        # the Lie derivative along (q, v)' = (v, a_c), plus the partial derivative in time
        rate = directional(y, np.concatenate([q, v]), np.concatenate([v, a])) + jacobian(y, np.array([t]))[:, 0]
        chain.append(rate[0])
    return chain


def _acceleration(plant: Plant, t: Any, q: Array, v: Array, rank_tolerance: float) -> Array:
    """a_c, shape (n,), on symbols."""
    state = State(t, q, v)
    terms = trace(assemble, state, symbolic_plant(plant, state), rank_tolerance)
    return solve_upper(terms.L, terms.free_acceleration)


def first_degree(constraint: Constraint) -> int:
    """The lowest relative degree that a constraint of this kind can have.

    Raises:
        TaskError: The constraint is given at acceleration level and has no violation to differentiate.
    """
    if constraint.kind == "second_order":
        raise TaskError(
            "given at acceleration level: no violation to differentiate (give its position or velocity form)"
        )
    return 1 if constraint.kind == "nonholonomic" else 2
