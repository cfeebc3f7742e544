"""Plant, task and law -> `System`, which a closed loop is made of."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from servoctl.expression import Expression
from servoctl.laws.corrections import Baumgarte, Correction, for_passive, resolve
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.hierarchy import PassiveLevel
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import allowed_rank
from servoctl.mechanics.plant import Plant
from servoctl.simulation.system import PassiveStabilisation, System
from servoctl.types import State

PASSIVE_CORRECTION = Baumgarte(10.0, 10.0)
"""Default stabilisation of a plant's own constraints in simulation.

Slow enough to keep the accuracy of a fixed step: gains proportional to 1/h cost Runge-Kutta two orders. If rows are
dependent, no gains work from every start, because drift makes the rows look independent. Such plants are projected
after each step instead (`tests/reference/test_dependent_rows.py`).
"""


def make_system(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    inputs: Mapping[str, Expression],
    start: State,
    passive: Correction | None,
    passive_rank_tolerance: float,
    projection: bool | Literal["auto"] = False,
    like: System | None = None,
    same_ground: bool = False,
    levels: Sequence[PassiveLevel] = (),
) -> System:
    """Binds a plant, a task and a law; parameters as of `simulate` and:

    Args:
        like: An earlier system; its traced model is used again if only parameters differ.
        same_ground: Whether plant, task and start are those of `like`.
        projection: `auto`: true if passive rows are dependent, instead of `passive`.
        levels: Levels of the passive constraints; only their clearances count here.

    Raises:
        PlantError, TaskError, TraceError: The parts do not fit each other.
    """
    if like is not None and same_ground:
        model = like.model.plain
    else:
        bounds = {} if law is None else law.bound_constraints
        retuned = None if like is None else like.model.plain.retuned(plant, task, start, bounds)
        model = retuned or Model(plant, task, start, bounds=bounds)
    if law is not None and model.task_rows and model.m:
        model = law.prepare(model, start)
        law = law.fitted(model, start)
    clearance = row_clearances(model, levels)
    if clearance:
        allowed, projection = len(model.passive_rows), False  # rows that yield are never dependent
    elif like is not None and same_ground:
        allowed = like.passive.allowed
    else:
        allowed = allowed_rank(model, start)
    if projection == "auto":
        projection = allowed < len(model.passive_rows)  # true if rows depend on each other
        passive = None if projection else passive
    damping, stiffness = resolve(model.passive_rows, for_passive(passive), None, "plant.passive.correction")
    stabilisation = PassiveStabilisation(
        tuple(damping), tuple(stiffness), passive_rank_tolerance, projection, allowed, clearance
    )
    return System(model, None if law is None else law.bind(model), inputs, stabilisation)


def row_clearances(model: Model, levels: Sequence[PassiveLevel]) -> tuple[float, ...]:
    """R of each passive row; empty if no level has a clearance."""
    found = dict.fromkeys(range(len(model.passive_rows)), 0.0)
    for level in levels:
        index = [i for group in level.groups for i, row in enumerate(model.passive_rows) if row.group == group]
        found |= zip(index, np.broadcast_to(np.asarray(level.clearance, dtype=float), len(index)).tolist(), strict=True)
    return tuple(found.values()) if any(found.values()) else ()
