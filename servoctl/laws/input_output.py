"""Input-output linearisation: constraint following at the derivative in which the inputs appear.

    y^(r) = nu,   nu = -(c_0 y + c_1 y' + ... + c_{r-1} y^(r-1))
    s^r + c_{r-1} s^{r-1} + ... + c_0 = (s - p_1) ... (s - p_r)

Each task row is differentiated until an input acts on it:

    y_0 = phi or psi,   y_{k+1} = dy_k/dq v + dy_k/dv a_c + dy_k/dt,   until (dy_k/dv) Phi B is not zero

a_c is the acceleration at u = 0 under the passive constraints. Below the relative degree r no y_k depends on the
inputs, so y_{r-1}(q, v, t) is a function at velocity level:

    A = dy_{r-1}/dv,   b = -(dy_{r-1}/dq v + dy_{r-1}/dt)

Design: a differentiated constraint is one like any other, so one law serves every relative degree, and the result is
the equation `T u = e` of constraint following: both laws share allocation, limits and residuals. It needs the plant on
symbols, so it does not exist for an opaque plant. The relative degree of a row is decided by numbers at several states,
because terms cancel under Phi.

Source: Isidori, Nonlinear Control Systems, 4.1, 5.1-5.3; Seifried, Blajer 2013 for mechanisms; the projected form is
ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from servoctl.engine.decomposition import frobenius
from servoctl.engine.kernel import Kernel, directional, jacobian
from servoctl.engine.linalg import solve_upper
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.engine.trace import trace
from servoctl.errors import TaskError
from servoctl.expression import TimeFunction
from servoctl.laws.configured import NEARBY, ConstraintFollowing
from servoctl.laws.corrections import Poles
from servoctl.mechanics.constraint import Constraint, Rows
from servoctl.mechanics.constraint_rows import symbolic_plant
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.task_map import VANISHES
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import Array, State

HIGHEST = 8  # largest relative degree that is tried


class Differentiated(Constraint):
    """A constraint whose rows are differentiated, each up to its relative degree."""

    def __init__(self, inner: Constraint, degrees: tuple[int, ...], rank_tolerance: float) -> None:
        # inner: the constraint
        # degrees: relative degree r of each row: the inputs appear in the r-th derivative
        # rank_tolerance: rank tolerance of the passive constraints
        self.inner, self.degrees, self.rank_tolerance = inner, degrees, rank_tolerance
        self.kind = inner.kind  # type: ignore[misc]

    @property
    def signals(self) -> Mapping[str, TimeFunction]:
        return self.inner.signals

    def row_labels(self) -> tuple[str, ...] | None:
        return self.inner.row_labels()

    def row_units(self, plant: Plant) -> tuple[str, ...]:
        return self.inner.row_units(plant)

    def row_degrees(self) -> tuple[int, ...]:
        return self.degrees

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        violation = self.inner.rows(plant, t, q, v).violation
        a = _acceleration(plant, t, q, v, self.rank_tolerance) if max(self.degrees) > 1 else np.zeros(0)
        parts = []
        for y, degree in zip(violation, self.degrees, strict=True):
            chain = derivatives(y, degree, t, q, v, a)
            last = np.array([chain[-1]])
            b = -(directional(last, q, v) + jacobian(last, np.array([t]))[:, 0])
            rate = np.array([chain[1]]) if len(chain) > 1 else np.full(1, np.nan)
            higher = np.array([chain[2:]], dtype=object).reshape(1, max(0, len(chain) - 2))
            parts.append(Rows(jacobian(last, v), b, np.array([chain[0]]), rate, higher))
        return Rows.stack(parts, len(q))


def derivatives(y: Any, degree: int, t: Any, q: Array, v: Array, a: Array) -> list[Any]:
    """y_0 ... y_{r-1} as expressions of the symbols t, q and v; a: the acceleration a_c, for a degree above 1."""
    chain = [y]
    while len(chain) < degree:
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
        TaskError: The constraint is given at acceleration level and has no task error to differentiate.
    """
    if constraint.kind == "second_order":
        raise TaskError(
            "given at acceleration level: no task error to differentiate (give its position or velocity form)"
        )
    return 1 if constraint.kind == "nonholonomic" else 2


@dataclass(frozen=True)
class InputOutput(ConstraintFollowing):
    """The law as the user configures it; `correction` and `corrections` are `Poles`."""

    def prepare(self, model: Model) -> Model:
        """The model with every task row differentiated up to its relative degree.

        Raises:
            TaskError: No input acts on a row, a row cannot be differentiated, the plant cannot be compiled, its passive
                rows are dependent, or a correction is not `Poles`.
        """
        super().prepare(model)
        problems: list[str] = []
        if model.opaque is not None:
            raise TaskError(f"law.kind: input_output needs a plant that can be compiled: {model.opaque}")
        terms = self._terms(model)
        passive = len(model.passive_rows)
        if passive and terms[0].passive.rank < passive:
            raise TaskError(
                f"law.kind: input_output needs independent mechanism constraints, got rank {terms[0].passive.rank} of "
                f"{passive} rows (leave the dependent ones out)"
            )
        if not all(
            isinstance(c, Poles) for c in [self.correction, *(self.corrections or {}).values()] if c is not None
        ):
            problems.append("law.correction: input_output takes poles (correction: {poles: -4})")
        task: dict[str, Differentiated] = {}
        for name, constraint in model.task.items():
            rows, degrees = [row.name for row in model.task_rows if row.group == name], list[int]()
            for i, row in enumerate(rows):
                try:
                    degrees.append(relative_degree(model, name, i, len(rows), terms, self.passive_rank_tolerance))
                except TaskError as error:
                    problems.append(f"{row}: {error}")
            task[name] = Differentiated(constraint, tuple(degrees), self.passive_rank_tolerance)
        if problems:
            raise TaskError("\n".join(problems))
        key = tuple((name, _fixed(constraint)) for name, constraint in task.items())
        traced = model.once("differentiated", key, lambda: Model(model.plant, task, model.around, model, model.bounds))
        made: Model = traced.of_plain(model)
        return made

    def _terms(self, model: Model) -> list[Terms]:
        """The terms of motion at the states where they are finite.

        A start without finite terms is refused later, with the names of its rows.

        Raises:
            TaskError: There are no finite terms at the start and near it.
        """
        if terms := self._terms_near(model):
            return terms
        rows = model.matrices(model.around).task
        known = np.isfinite(rows.A).all(axis=1) & np.isfinite(rows.b)
        wrong = [row.name for row, finite in zip(model.task_rows, known, strict=True) if not finite]
        of = f"task rows {', '.join(wrong)} have" if wrong else "the plant's terms of motion have"
        raise TaskError(
            f"law.kind: input_output: {of} no finite value at the start and at {NEARBY} states near it "
            "(move the start, or correct the equations)"
        )


def _fixed(constraint: Differentiated) -> tuple[Any, ...]:
    """Values that are constants in the trace of a constraint: it is traced again when one of them changes."""
    return constraint.degrees, constraint.rank_tolerance, *parameter_values(constraint.inner).tolist()


def relative_degree(model: Model, name: str, row: int, count: int, terms: Sequence[Terms], tolerance: float) -> int:
    """The order of the lowest derivative of a row in which an input appears, at any of the states.

    Args:
        model: The model with the task as configured.
        name: Of the constraint that has the row.
        row: Index of the row in the constraint.
        count: Number of its rows.
        terms: The terms of motion at several states.
        tolerance: Rank tolerance of the mechanism constraints.

    Raises:
        TaskError: No input appears up to the derivative `HIGHEST`.
    """
    for degree in range(first_degree(model.task[name]), HIGHEST + 1):
        candidate = Differentiated(model.task[name], (degree,) * count, tolerance)
        kernel = model.once(f"{name}, degree {degree}", _fixed(candidate), partial(_compiled, model, candidate))
        for at in terms:
            # the row acts on inputs through w N L^-1 B with w = row of A L^-T; compare with its size before projection
            w = np.linalg.solve(at.L, kernel(*at.state, model.parameters)[0][row])
            size = float(np.linalg.norm(w)) * frobenius(at.inputs)
            if size > 0.0 and float(np.linalg.norm(w @ at.project(at.inputs))) > VANISHES * size:
                return degree
    raise TaskError(
        f"no input appears in its derivatives up to the {HIGHEST}th (no actuator reaches it; another task?)"
    )


def _compiled(model: Model, constraint: Differentiated) -> Kernel:
    """(t, q, v, p) -> A of a differentiated constraint."""
    symbols = model.symbols()
    plant = with_parameters(model.plant, symbols["p"][: len(parameter_values(model.plant))])
    rows = constraint.rows(plant, symbols["t"][0], symbols["q"], symbols["v"])
    return Kernel.compile("row", symbols, {"A": rows.A})
