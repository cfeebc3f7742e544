"""Input-output linearisation: constraint following at the degree at which the inputs appear.

    y^(r) = nu,   nu = -(c_0 y + c_1 y' + ... + c_{r-1} y^(r-1))
    s^r + c_{r-1} s^{r-1} + ... + c_0 = (s - p_1) ... (s - p_r)

Design: each task row is raised (`mechanics.raised`) until an input acts on it; what remains is the same equation
`T u = e` that constraint following solves, so allocation, limits and evidence are shared. The degree of a row is
decided by numbers at several states, since terms cancel under Phi.

Source: Isidori, Nonlinear Control Systems, 5.1-5.3; Seifried, Blajer 2013 for what it means for mechanisms.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from servoctl.engine.kernel import Kernel
from servoctl.engine.linalg import frobenius
from servoctl.engine.parameters import parameter_values, with_parameters
from servoctl.errors import TaskError
from servoctl.laws.constraint_following import ConstraintFollowing
from servoctl.laws.corrections import Poles
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.relative_degree import HIGHEST, DifferentiatedRow, first_degree
from servoctl.mechanics.task_map import VANISHES
from servoctl.mechanics.terms import Terms, assemble
from servoctl.types import State

STATES = 6
"""States at which a row's degree is decided."""


@dataclass(frozen=True)
class InputOutput(ConstraintFollowing):
    """The law as a person states it; `correction` and `corrections` are `Poles`."""

    def prepare(self, model: Model, around: State) -> Model:
        """The model with every task row raised to its relative degree.

        Raises:
            TaskError: Names the rows that no input reaches, what cannot be raised, or the plant that cannot.
        """
        problems: list[str] = []
        if model.opaque is not None:
            raise TaskError(f"law.kind: input_output needs a plant that can be compiled: {model.opaque}")
        terms = self._terms(model, around)
        passive = len(model.passive_rows)
        if passive and terms[0].passive.rank < passive:
            raise TaskError(
                f"law.kind: input_output needs independent passive constraints, got rank {terms[0].passive.rank} of "
                f"{passive} rows (leave the dependent ones out)"
            )
        if not all(
            isinstance(c, Poles) for c in [self.correction, *(self.corrections or {}).values()] if c is not None
        ):
            problems.append("law.correction: input_output takes poles (correction: {poles: -4})")
        raised: dict[str, DifferentiatedRow] = {}
        for group, constraint in model.task.items():
            rows = [row for row in model.task_rows if row.group == group]
            for index, row in enumerate(rows):
                try:
                    degree = relative_degree(model, row.name, constraint, index, terms, self.passive_rank_tolerance)
                except TaskError as error:
                    problems.append(f"{row.name}: {error}")
                    continue
                raised[row.name] = DifferentiatedRow(constraint, index, degree, self.passive_rank_tolerance)
        if problems:
            raise TaskError("\n".join(problems))
        key = tuple((name, _fixed(row)) for name, row in raised.items())
        known = model.once("raised", key, lambda: Model(model.plant, raised, around, plain=model))
        return known.retuned_to(model, around) or Model(model.plant, raised, around, plain=model)

    def _terms(self, model: Model, around: State) -> list[Terms]:
        """The terms of motion at the states where they have a value; a start that has none is refused later, by name.

        Raises:
            TaskError: No state near the start has them.
        """
        states = [around, *model.samples(around, STATES - 1)]
        at = [assemble(state, model.matrices(state), self.passive_rank_tolerance) for state in states]
        terms = [one for one in at if one.finite and one.positive]
        if terms:
            return terms
        rows = at[0].matrices.task
        known = np.isfinite(rows.A).all(axis=1) & np.isfinite(rows.b)
        wrong = [row.name for row, finite in zip(model.task_rows, known, strict=True) if not finite]
        of = f"task rows {', '.join(wrong)} have" if wrong else "the plant's terms of motion have"
        raise TaskError(
            f"law.kind: input_output: {of} no finite value at the start and at {STATES - 1} states near it "
            "(move the start, or correct the equations)"
        )


def _fixed(raised: DifferentiatedRow) -> tuple[float, ...]:
    """What is a number in the trace of a raised row, so that another one means tracing again."""
    return raised.degree, raised.rank_tolerance, *parameter_values(raised.inner).tolist()


def relative_degree(
    model: Model, name: str, constraint: Constraint, row: int, terms: list[Terms], passive_rank_tolerance: float
) -> int:
    """The lowest derivative of a row in which an input appears, at any of the states.

    Args:
        model: With the task as it was given.
        name: Of the row.
        constraint: Whose row it is.
        row: Which of its rows.
        terms: At the states.
        passive_rank_tolerance: For the passive constraints.

    Raises:
        TaskError: There is none up to `HIGHEST`.
    """
    for degree in range(first_degree(constraint), HIGHEST + 1):
        raised = DifferentiatedRow(constraint, row, degree, passive_rank_tolerance)
        kernel = model.once(f"{name}, degree {degree}", _fixed(raised), partial(_compiled, model, raised))
        for at in terms:
            w = np.linalg.solve(at.L, kernel(at.state.t, at.state.q, at.state.v, model.parameters)[0][0])
            size = float(np.linalg.norm(w)) * frobenius(at.inputs)
            if size > 0.0 and float(np.linalg.norm(w @ at.project(at.inputs))) > VANISHES * size:
                return degree
    raise TaskError(
        f"no input appears in its derivatives up to the {HIGHEST}th (no actuator reaches it; another task?)"
    )


def _compiled(model: Model, raised: DifferentiatedRow) -> Kernel:
    """(t, q, v, p) -> A of a raised row."""
    symbols = model.symbols()
    plant = with_parameters(model.plant, symbols["p"][: len(parameter_values(model.plant))])
    return Kernel.compile("row", symbols, {"A": raised.rows(plant, symbols["t"][0], symbols["q"], symbols["v"]).A})
