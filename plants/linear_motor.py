"""A linear motor with permanent magnets, whose carriage sticks a little at every magnet."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.types import Array


@dataclass(frozen=True)
class LinearMotor(Plant):
    """m x'' = F - Fc sin(2 pi x / pitch): the thrust F less the cogging force, which repeats at every pole."""

    m: float = 4.0  # [kg] carriage
    Fc: float = 12.0  # [N] largest cogging force
    pitch: float = 0.024  # [m] from pole to pole
    stroke: float = 0.1  # [m] travel to either side; for pictures, no stop
    coordinates: ClassVar = {"x": "m"}
    actuators: ClassVar = {"F": "N"}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return np.array([[self.m]])

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.array([-self.Fc * np.sin(2.0 * np.pi * q[0] / self.pitch)])

    def actuation(self, q: Array, t: float) -> Array:
        return np.array([[1.0]])

    def energy(self, q: Array, v: Array, t: float) -> float:
        wave = self.pitch / (2.0 * np.pi)
        energy: float = self.m * v[0] ** 2 / 2 - self.Fc * wave * np.cos(q[0] / wave)
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        half, high = 0.2 * self.stroke, 0.1 * self.stroke
        carriage = np.array([[-half, 0.0], [-half, high], [half, high], [half, 0.0], [-half, 0.0]])
        rail = np.array([[-self.stroke - half, 0.0], [self.stroke + half, 0.0]])
        return {"rail": rail, "carriage": carriage + np.array([q[0], 0.0])}
