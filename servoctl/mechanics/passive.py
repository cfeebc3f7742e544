"""A plant's own constraints as `Constraint` objects, and its matrices, on numbers or on symbols."""

from typing import Any

import numpy as np

from servoctl.engine.trace import trace
from servoctl.mechanics.constraint import Constraint, Holonomic, Nonholonomic, Rows
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import Matrices
from servoctl.types import Array, State


class PassiveGroup(Constraint):
    """One named group of a plant's own constraints, from `passive_constraints` or `passive_rates`."""

    def __init__(self, group: str, nonholonomic: bool) -> None:
        self.group, self.kind = group, "nonholonomic" if nonholonomic else "holonomic"  # type: ignore[misc]

    def rows(self, plant: Plant, t: Any, q: Array, v: Array) -> Rows:
        inner: Constraint
        if self.kind == "holonomic":
            inner = Holonomic(lambda q, t: plant.passive_constraints(q, t)[self.group])
        else:
            inner = Nonholonomic(lambda q, v, t: plant.passive_rates(q, v, t)[self.group])
        return inner.rows(plant, t, q, v)


def plant_arrays(plant: Plant, t: Any, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """M, Q, B and c with the right number of dimensions, on symbols; for numbers use `plant_values.terms`."""
    c = plant.nonideal_force(q, v, t)
    return (
        np.atleast_2d(plant.mass_matrix(q, t)),
        np.atleast_1d(plant.right_hand_side(q, v, t)),
        np.atleast_2d(plant.actuation(q, t)),
        np.zeros(len(q)) if c is None else np.atleast_1d(c),
    )


def symbolic_plant(plant: Plant, state: State) -> Matrices:
    """A plant's matrices and passive constraints as expressions of symbols, with an empty task.

    Raises:
        TraceError: The plant's code cannot be traced.
    """
    t, q, v = state
    groups: dict[str, Constraint] = {name: PassiveGroup(name, False) for name in trace(plant.passive_constraints, q, t)}
    groups |= {name: PassiveGroup(name, True) for name in trace(plant.passive_rates, q, v, t)}
    passive = Rows.stack([group.rows(plant, t, q, v) for group in groups.values()], len(q))
    M, Q, B, c = trace(plant_arrays, plant, t, q, v)
    return Matrices(plant, M, Q, B, c, passive, Rows.stack([], len(q)))
