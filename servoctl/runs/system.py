"""Plant, task and law -> the system that a closed loop is made of."""

from collections.abc import Mapping

from servoctl.closed_loop import PassiveStabilisation, System
from servoctl.expression import Expression
from servoctl.laws.corrections import Baumgarte, Correction, for_passive, resolve
from servoctl.laws.law import Law
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.types import State

PASSIVE_CORRECTION = Baumgarte(10.0, 10.0)
"""Stabilises a plant's own constraints in simulation, unless something else is asked for.

Slow enough for the accuracy of a fixed step (gains in proportion to 1/h cost Runge-Kutta two orders), fast enough where
rows are dependent and the rank drops further: on the parallelogram through its flat pose 5 1/s loses the motion at any
step, 10 1/s keeps the angle to 1e-7 over 20 s (`tests/reference/test_dependent_rows.py`).
"""


def make_system(
    plant: Plant,
    task: Mapping[str, Constraint],
    law: Law | None,
    inputs: Mapping[str, Expression],
    start: State,
    passive: Correction | None,
    passive_rank_tolerance: float,
    projection: bool = False,
    like: System | None = None,
    same_ground: bool = False,
) -> System:
    """Binds a plant, a task and a law.

    Args:
        like: An earlier system, whose traced model serves again where only parameters differ; the rest as `simulate`.
        same_ground: Whether plant, task and start are those of `like`.

    Raises:
        PlantError, TaskError, TraceError: They do not fit.
    """
    if like is not None and same_ground:
        model = like.model.plain
    else:
        model = (None if like is None else like.model.plain.retuned(plant, task, start)) or Model(plant, task, start)
    if law is not None and model.task_rows and model.m:
        model = law.prepare(model, start)
    damping, stiffness = resolve(model.passive_rows, for_passive(passive), None, "plant.passive.correction")
    stabilisation = PassiveStabilisation(tuple(damping), tuple(stiffness), passive_rank_tolerance, projection)
    return System(model, None if law is None else law.bind(model), inputs, stabilisation)
