"""Small plants that several tests use."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import servoctl as sc
from servoctl.types import Array


@dataclass(frozen=True)
class Masses(sc.Plant):
    """Equal masses, each on a line of its own; forces push the first ones: m q'' = (u, 0) - weight."""

    names: str = "x y"  # coordinates [m]
    forces: str = "Fx Fy"  # actuators [N]; at most as many
    m: float = 1.0  # [kg]
    weight: float = 0.0  # [N] of each

    @property
    def coordinates(self) -> Mapping[str, str]:
        return dict.fromkeys(self.names.split(), "m")

    @property
    def actuators(self) -> Mapping[str, str]:
        return dict.fromkeys(self.forces.split(), "N")

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.m * np.eye(len(self.coordinates))

    def force(self, q: Array, v: Array, t: float) -> Array:
        return -self.weight * np.ones(len(self.coordinates))

    def actuation(self, q: Array, t: float) -> Array:
        return np.eye(len(self.coordinates))[:, : len(self.actuators)]
