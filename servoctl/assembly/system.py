"""Plant, task and law -> the system that a closed loop is made of."""

from collections.abc import Mapping
from typing import Literal

from servoctl.expression import Expression
from servoctl.laws.corrections import Baumgarte, Correction, for_passive, resolve
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.passive_rank import allowed_rank
from servoctl.mechanics.plant import Plant
from servoctl.simulation.system import PassiveStabilisation, System
from servoctl.types import State

PASSIVE_CORRECTION = Baumgarte(10.0, 10.0)
"""Stabilises a plant's own constraints in simulation, unless something else is asked for.

Slow enough for the accuracy of a fixed step: gains in proportion to 1/h cost Runge-Kutta two orders. Where rows are
dependent no gains serve from every start, because drift makes them look independent: such plants are projected after
each step instead (`tests/reference/test_dependent_rows.py`).
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
) -> System:
    """Binds a plant, a task and a law.

    Args:
        like: An earlier system, whose traced model serves again where only parameters differ; the rest as `simulate`.
        same_ground: Whether plant, task and start are those of `like`.
        projection: `auto`: where passive rows are dependent, in place of `passive`.

    Raises:
        PlantError, TaskError, TraceError: They do not fit.
    """
    if like is not None and same_ground:
        model = like.model.plain
    else:
        model = (None if like is None else like.model.plain.retuned(plant, task, start)) or Model(plant, task, start)
    if law is not None and model.task_rows and model.m:
        model = law.prepare(model, start)
    allowed = like.passive.allowed if like is not None and same_ground else allowed_rank(model, start)
    if projection == "auto":
        projection = allowed < len(model.passive_rows)  # rows depend on each other
        passive = None if projection else passive
    damping, stiffness = resolve(model.passive_rows, for_passive(passive), None, "plant.passive.correction")
    stabilisation = PassiveStabilisation(tuple(damping), tuple(stiffness), passive_rank_tolerance, projection, allowed)
    return System(model, None if law is None else law.bind(model), inputs, stabilisation)
