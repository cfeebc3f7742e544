"""Checks of a plant and a task at a state, before anything is derived from them."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from servoctl.engine.structured import Sparse, entries, smallest_eigenvalue
from servoctl.errors import PlantError, TaskError
from servoctl.mechanics import plant_values
from servoctl.mechanics.constraint import Constraint
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.symmetry import skewness
from servoctl.types import Array, State

T = TypeVar("T")

SINGULAR = 1e-12  # a mass matrix counts as singular if its smallest eigenvalue is below this times its largest entry


def check_task(task: Mapping[str, Constraint], plant: Plant) -> None:
    """Raises TaskError that names every entry that is not a constraint and every unknown word in an equation."""
    problems: list[str] = []
    for name, constraint in task.items():
        if not isinstance(constraint, Constraint):
            hint = f"as in servoctl.Holonomic({constraint!r})" if isinstance(constraint, str) else "an instance"
            problems.append(f"{name}: expected a constraint, got {constraint!r} ({hint})")
            continue
        problems += [f"{name}: {sentence}" for sentence in constraint.problems(plant)]
    if problems:
        raise TaskError("\n".join(problems))


def check_plant(plant: Plant, state: State) -> None:
    """Raises PlantError that lists everything that is wrong with a plant's methods at a state."""
    name, n, m = type(plant).__name__, len(plant.coordinates), len(plant.actuators)
    if not dataclasses.is_dataclass(plant):
        raise PlantError(f"{name}: not a dataclass (decorate the class with @dataclass(frozen=True))")
    for kind in type(plant).__mro__[:-1]:
        fields = [key for key, hint in inspect.get_annotations(kind).items() if "ClassVar" not in str(hint)]
        if fields and "__dataclass_fields__" not in vars(kind):
            raise PlantError(
                f"{kind.__name__}: its fields ({', '.join(fields)}) are not parameters: "
                "the class is not a dataclass itself (decorate it with @dataclass(frozen=True), as its base)"
            )
    problems: list[str] = []
    t, q, v = state

    def attempt(work: Callable[[], T]) -> T | None:
        try:
            return work()
        except PlantError as error:
            problems.append(str(error))
            return None

    def array(method: str, shape: tuple[int, ...], *arguments: Any) -> Array | Sparse | None:
        evaluate: Callable[..., Any] = plant_values.numbers if len(shape) == 1 else plant_values.matrix
        evaluate = plant_values.optional if method == "nonideal_force" else evaluate
        value: Array | Sparse | None = attempt(lambda: evaluate(plant, method, None, shape, *arguments))
        if value is None or np.isfinite(entries(value)).all():
            return value
        label = "force" if method == "right_hand_side" else method
        shown = np.asarray(value).tolist()
        problems.append(f"{name}.{label}: not finite at q={np.round(q, 4)}, v={np.round(v, 4)}: {shown}")
        return None

    M = array("mass_matrix", (n, n), q, t)
    array("right_hand_side", (n,), q, v, t)
    array("actuation", (n, m), q, t)
    array("nonideal_force", (n,), q, v, t)
    holonomic = attempt(lambda: plant_values.passive_groups(plant, "passive_constraints", None, q, t))
    rates = attempt(lambda: plant_values.passive_groups(plant, "passive_rates", None, q, v, t))
    attempt(lambda: plant_values.energy(plant, None, q, v, t))
    attempt(lambda: plant_values.links(plant, None, q))
    if M is not None:
        skew, largest = skewness(M), float(np.abs(entries(M)).max(initial=0.0))
        smallest = smallest_eigenvalue(M)
        if skew > 1e-12 * max(1.0, largest):
            problems.append(f"{name}.mass_matrix: not symmetric at q={np.round(q, 4)} (M - M^T up to {skew:.1e})")
        # a singular mass matrix may be completed by the passive constraints: `Model` decides that
        elif smallest < -SINGULAR * largest or (smallest <= 0.0 and not (holonomic or rates)):
            problems.append(
                f"{name}.mass_matrix: not positive definite at q={np.round(q, 4)} "
                f"(smallest eigenvalue {smallest:.1e}; check masses and inertias)"
            )
    if problems:
        raise PlantError("\n".join(problems))
