"""Friction at actuators, and plants that have it.

    B u  ->  B (u - coulomb tanh(s / speed) - viscous s),   s = B^T v

tanh for the sign of a speed is usual: it keeps the force smooth.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from servoctl.engine.parameters import EACH
from servoctl.mechanics.actuator_parameters import with_fields, without_fields
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.tree.fields import Notes, NotNegative, PerName, Positive, described, spread
from servoctl.types import Array

FIELDS = {"coulomb": "friction_coulomb", "viscous": "friction_viscous", "speed": "friction_speed"}
"""Part of a `Friction` -> parameter of a plant that has it."""


def friction_loss(speed: Any, coulomb: Any, viscous: Any, friction_speed: Any) -> Any:
    """Friction torque or force at the actuators.

    Args:
        speed: Speeds of the actuators, B^T v.
        coulomb: Dry friction [actuator units].
        viscous: Friction per speed.
        friction_speed: Speed at which dry friction reaches tanh(1) = 0.76 of its size: it is smooth around rest.
    """
    return coulomb * np.tanh(speed / friction_speed) + viscous * speed


@dataclass(frozen=True)
class Friction:
    """Friction at each actuator: coulomb tanh(s / speed) + viscous s, where s is its speed B^T v."""

    coulomb: Annotated[PerName[NotNegative], EACH] = described(
        0.0, "dry friction [actuator units]: one for all, list in the plant's order, or by name"
    )
    viscous: Annotated[PerName[NotNegative], EACH] = described(
        0.0, "friction per speed [actuator units per its speed], written as coulomb is"
    )
    speed: Annotated[PerName[Positive], EACH] = described(
        0.01, "speed at which dry friction reaches 76 % (tanh 1), written as coulomb is"
    )

    def ready(self, plant: Plant, problems: Notes, *path: str) -> "Friction":
        """The friction with one number per actuator in each field.

        Args:
            path: Of the section that has it in a field `friction`.
        """
        return spread(self, plant.actuators, "actuator", problems, *path, "friction")

    def resistance(self, s: Array) -> Array:
        """Friction at the actuators at the speeds s = B^T v, shape (m,)."""
        loss: Array = friction_loss(s, np.array(self.coulomb), np.array(self.viscous), np.array(self.speed))
        return loss

    def steepness(self) -> Array:
        """Slope of the friction at rest, coulomb / speed + viscous, shape (m,)."""
        slope: Array = np.array(self.coulomb) / np.array(self.speed) + np.array(self.viscous)
        return slope


class _Rubbing(Plant):
    """The methods that friction changes; the class of a plant with friction has them before those of its own class."""

    def right_hand_side(self, q: Array, v: Array, t: float) -> Array:
        B = dense_actuation(self, q, t)
        friction = friction_of(self)
        assert friction is not None
        Q: Array = np.asarray(super().right_hand_side(q, v, t)) - B @ friction.resistance(B.T @ v)
        return Q

    def energy(self, q: Array, v: Array, t: float) -> float | None:
        return None  # friction dissipates it

    def __reduce__(self) -> tuple[Any, ...]:
        # the class is made at run time, so a copy is made from the plant without friction
        return with_friction, (without_friction(self), friction_of(self))


def with_friction(plant: Plant, friction: Friction) -> Plant:
    """The plant with friction at its actuators, which a law then knows and cancels.

    Args:
        plant: A plant without friction.
        friction: One number per actuator.

    Raises:
        PlantError: The plant has no actuators, or a parameter with the name of a new one.
    """
    values = {name: getattr(friction, part) for part, name in FIELDS.items()}
    return with_fields(plant, _Rubbing, values, "friction")


def friction_of(plant: Plant) -> Friction | None:
    """The friction that a plant has by `with_friction`; None without."""
    if not isinstance(plant, _Rubbing):
        return None
    return Friction(**{part: getattr(plant, name) for part, name in FIELDS.items()})


def without_friction(plant: Plant) -> Plant:
    """The plant that `with_friction` was given; other plants themselves."""
    return without_fields(plant, _Rubbing, FIELDS.values())
