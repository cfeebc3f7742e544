"""The motion of a plant without inputs, by the fundamental equation of `mechanics.terms`."""

from dataclasses import dataclass

import numpy as np

from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.terms import assemble
from servoctl.types import Array, State


@dataclass(frozen=True)
class ConstrainedMotion:
    """An acceleration, with rank and residual."""

    acceleration: Array  # q'', shape (n,)
    constraint_force: Array  # qc, shape (n,)
    rank: int
    inconsistency: Array  # (I - A A^+) b in the mass-weighted norm, shape (r,): zero if the rows can all hold


def fundamental_acceleration(plant: Plant, state: State, rank_tolerance: float = 1e-6) -> ConstrainedMotion:
    """The acceleration of a plant under its own passive constraints, without inputs.

    Args:
        plant: The plant.
        state: Time, coordinates and velocities.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.

    Raises:
        PlantError: A matrix of the plant has a wrong shape or value, or the motion is not unique.
    """
    model = Model(plant, {}, state)
    terms, u = assemble(state, model.matrices(state), rank_tolerance), np.zeros(model.m)
    a = terms.acceleration(u)
    return ConstrainedMotion(a, terms.passive_force(a, u), terms.passive.rank, terms.consistency)
