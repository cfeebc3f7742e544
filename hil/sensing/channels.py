"""Which displacements are measured: those of the drives and of single coordinates, and how they depend on q."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hil.drives import Feedback
from servoctl.errors import ConfigError, PlantError
from servoctl.mechanics.motors import check_motor_positions, constant_actuation, displacement_unit, motor_positions
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.plant_values import dense_actuation
from servoctl.types import Array, State

LEAST_WEIGHT = 1e-3
"""Least weight of a channel; the finest has weight 1. With a smaller one the rank decision would miss its direction."""


@dataclass(frozen=True)
class Channel:
    """One measured displacement, at the joint."""

    name: str  # name of the actuator or, for an encoder node, of the coordinate
    resolution: float  # [joint unit] smallest step of the position
    encoder: bool = False  # whether it is an encoder node on a coordinate; False: a drive
    # largest speed of the joint [joint unit/s]; infinite: the measured and predicted speeds are used
    speed_limit: float = np.inf
    leap: float = np.inf  # [joint unit] further motion allowed between two samples of a joint without a speed limit
    feedback: Feedback = Feedback.CYCLIC  # when it is sampled
    visible: float = 0.0  # smallest motion that certainly changes the sample [joint unit]; 0: the resolution
    held: float = 0.0  # [joint unit/s^2] acceleration that friction may take from the model's
    torque_step: float = 0.0  # [actuator unit] smallest step of the torque in a sample
    torque_every: float = 0.0  # [s] time from one torque in its frames to the next; 0: one in each tick
    position_error: float = 0.0  # [joint unit] largest error of a position by quantisation and noise
    speed_error: float = 0.0  # [joint unit/s] largest error of a speed likewise


class Displacements:
    """The measured displacements h(q), shape (m,), and their Jacobian.

    Args:
        channels: What is measured: drives, then encoder nodes.
        around: State at which the motor displacements are checked.

    Raises:
        ConfigError: The resolution of a channel is not positive.
        PlantError: The displacements of the plant's motors are not known, or not conjugate to the inputs.
    """

    def __init__(self, plant: Plant, channels: Sequence[Channel], around: State) -> None:
        self.channels = tuple(channels)  # in order
        actuators, coordinates = list(plant.actuators), list(plant.coordinates)
        wrong = [c for c in channels if not 0.0 < c.resolution < np.inf]
        if wrong:
            what = "resolution: expected a positive number [joint unit], got"
            raise ConfigError([f"hil: {c.name}: {what} {c.resolution:g}" for c in wrong])
        self._coordinates = [coordinates.index(c.name) for c in channels if c.encoder]
        self._motors = [actuators.index(c.name) for c in channels if not c.encoder]
        if self._motors:
            check_motor_positions(plant, around)
        # units of the displacements
        self.units = tuple(
            plant.coordinates[c.name] if c.encoder else displacement_unit(plant, c.name) for c in channels
        )
        self._constant = self._constant_jacobian(plant, around)
        # coordinate and factor of each nonzero entry of the rows of the Jacobian; None: it is not constant
        self.rows = None if self._constant is None else [_nonzero(row) for row in self._constant.tolist()]
        # whether the displacements are linear in q, by these rows
        self.linear = self._constant is not None and type(plant).motor_positions is Plant.motor_positions
        self._plant = plant
        resolutions = np.array([c.resolution for c in channels], dtype=float)
        # weight of each channel in the least squares, shape (m,): finest resolution / own resolution
        self.weights = np.maximum(resolutions.min(initial=np.inf) / resolutions, LEAST_WEIGHT)
        self.errors = resolutions  # [joint unit] largest error of each sample at standstill, shape (m,)

    def __call__(self, plant: Plant, q: Array) -> Array:
        """h(q), on numbers or on symbols."""
        if self.linear and self._constant is not None and plant is self._plant:
            linear: Array = self._constant @ q
            return linear
        rho = motor_positions(plant, q) if self._motors else np.zeros(0)
        return np.concatenate([rho[self._motors], q[self._coordinates]])

    def jacobian(self, plant: Plant, q: Array, t: Any) -> Array:
        """dh/dq, shape (m, n): rows of B^T for drives (displacement conjugate to the input) and of I for encoders."""
        return self._stacked(dense_actuation(plant, q, t), len(q))

    def rates(self, plant: Plant, q: Array, v: Array, t: float) -> Array:
        """dh/dt = dh/dq v, shape (m,), on numbers."""
        H = self.jacobian(plant, q, t) if self._constant is None else self._constant
        rates: Array = H @ v
        return rates

    def _stacked(self, B: Array, n: int) -> Array:
        return np.concatenate([B.T[self._motors], np.eye(n)[self._coordinates]])

    def _constant_jacobian(self, plant: Plant, around: State) -> Array | None:
        try:
            return self._stacked(constant_actuation(plant), len(around.q))
        except PlantError:
            return None


def _nonzero(row: Sequence[float]) -> list[tuple[int, float]]:
    return [(j, factor) for j, factor in enumerate(row) if factor]
