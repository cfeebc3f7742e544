"""The acceleration of a plant without inputs."""

from servoctl.mechanics.fundamental import ConstrainedMotion, fundamental_equation
from servoctl.mechanics.model import Model
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.singular_mass import singular_mass_equation
from servoctl.types import State


def fundamental_acceleration(plant: Plant, state: State, rank_tolerance: float = 1e-6) -> ConstrainedMotion:
    """The acceleration of a plant under its own passive constraints, without inputs.

    Args:
        plant: The plant.
        state: Time, coordinates and velocities.
        rank_tolerance: A passive direction counts when its pivot exceeds this times |Ahat L^-T|_F.

    Raises:
        PlantError: A matrix of the plant has a wrong shape or value, or the motion is not unique.
    """
    m = Model(plant, {}, state).matrices(state)
    if m.singular:
        return singular_mass_equation(m.M, m.Q + m.c, m.passive.A, m.passive.b, coordinates=list(plant.coordinates))
    c = None if plant.nonideal_force(state.q, state.v, state.t) is None else m.c
    return fundamental_equation(m.M, m.Q, m.passive.A, m.passive.b, c, rank_tolerance)
