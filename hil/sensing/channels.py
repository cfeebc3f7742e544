"""What is measured: the displacements of drives and single coordinates, in this order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hil.drives import Feedback
from servoctl.errors import ConfigError, PlantError
from servoctl.mechanics.motors import (
    check_motor_positions,
    constant_actuation,
    displacement_unit,
    motor_positions,
)
from servoctl.mechanics.plant import Plant
from servoctl.types import Array, State

LEAST_WEIGHT = 1e-3
"""Of the coarsest channel relative to the finest: beyond that a weight would hide a direction from the rank."""


@dataclass(frozen=True)
class Channel:
    """One measured displacement, at the joint.

    Attributes:
        name: Of the actuator or, for an encoder node, of the coordinate.
        resolution: Smallest step of the position [joint unit].
        encoder: Whether it is an encoder node on a coordinate; else a drive.
        tolerance: Further error that is known to be there: geometry, zero point [joint unit].
        speed_limit: Largest speed that the joint can have [joint unit/s]; infinite: what it is said to move by counts.
        leap: Beside that, how far it may move between two samples where it has no limit [joint unit].
        turn: Displacement after which a wrapping encoder starts again [joint unit].
        interval: Time between two samples at most [s].
        feedback: When it is sampled.
        visible: Smallest motion that surely shows [joint unit]; 0: the resolution.
        held: Acceleration that friction may take from the model's [joint unit/s^2].
    """

    name: str
    resolution: float
    encoder: bool = False
    tolerance: float = 0.0
    speed_limit: float = np.inf
    leap: float = np.inf
    turn: float = np.inf
    interval: float = np.inf
    feedback: Feedback = Feedback.CYCLIC
    visible: float = 0.0
    held: float = 0.0


class Displacements:
    """h(q), shape (m,): what the channels measure, with its Jacobian.

    Attributes:
        channels: In order.
        units: Of the displacements.
        weights: Of a channel's row in least squares, shape (m,): finest resolution over its own.
        errors: Largest error of a sample at standstill, shape (m,) [joint unit].
    """

    def __init__(self, plant: Plant, channels: Sequence[Channel], around: State) -> None:
        """Takes the channels.

        Raises:
            ConfigError: A channel names nothing of the plant, or its resolution is not positive.
            PlantError: The displacements of the plant's motors are not known, or not conjugate.
        """
        self.channels = tuple(channels)
        actuators, coordinates = list(plant.actuators), list(plant.coordinates)
        problems = [
            f"hil.{'sensors' if c.encoder else 'drives'}: {c.name}: no such "
            f"{'coordinate' if c.encoder else 'actuator'} (there are: {', '.join(names) or 'none'})"
            for c in channels
            for names in [coordinates if c.encoder else actuators]
            if c.name not in names
        ]
        problems += [
            f"hil: {c.name}: resolution: expected a positive number [joint unit], got {c.resolution:g}"
            for c in channels
            if not 0.0 < c.resolution < np.inf
        ]
        if problems:
            raise ConfigError(problems)
        self._coordinates = [coordinates.index(c.name) for c in channels if c.encoder]
        self._motors = [actuators.index(c.name) for c in channels if not c.encoder]
        drives, encoders = ([c for c in channels if c.encoder is kind] for kind in (False, True))
        self._order = np.argsort([self.channels.index(c) for c in (*drives, *encoders)])
        if self._motors:
            check_motor_positions(plant, around)
        self.units = tuple(
            plant.coordinates[c.name] if c.encoder else displacement_unit(plant, c.name) for c in channels
        )
        self._constant = self._constant_jacobian(plant, around)
        resolutions = np.array([c.resolution for c in channels], dtype=float)
        self.weights = np.maximum(resolutions.min(initial=np.inf) / resolutions, LEAST_WEIGHT)
        self.errors = resolutions + [c.tolerance for c in channels]

    def __call__(self, plant: Plant, q: Array) -> Array:
        """h(q), on numbers or on symbols."""
        rho = motor_positions(plant, q) if self._motors else np.zeros(0)
        return np.concatenate([rho[self._motors], q[self._coordinates]])[self._order]

    def jacobian(self, plant: Plant, q: Array, t: Any) -> Array:
        """dh/dq, shape (m, n): rows of B^T and of the unit matrix."""
        return self._stacked(plant.actuation(q, t), len(q))

    def rates(self, plant: Plant, q: Array, v: Array, t: float) -> Array:
        """h' = dh/dq v, shape (m,), on numbers."""
        H = self.jacobian(plant, q, t) if self._constant is None else self._constant
        rates: Array = H @ v
        return rates

    def _stacked(self, B: Array, n: int) -> Array:
        return np.concatenate([B.T[self._motors], np.eye(n)[self._coordinates]])[self._order]

    def _constant_jacobian(self, plant: Plant, around: State) -> Array | None:
        try:
            return self._stacked(constant_actuation(plant, around.q), len(around.q))
        except PlantError:
            return None
