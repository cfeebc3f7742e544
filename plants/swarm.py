"""Robots on a plane that gather by attraction and keep apart by repulsion."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.constraint import Nonholonomic
from servoctl.mechanics.plant import Diagonal, Plant
from servoctl.types import Array


@dataclass(frozen=True)
class Swarm(Plant):
    """m q_i'' = u_i for each of N robots, q_i = (x_i, y_i).

    Source: Zhao et al. 2018, (60).
    """

    m: float = 2.0  # [kg] mass of a robot
    N: int = 5  # robots

    def __post_init__(self) -> None:
        if self.N < 1:
            raise PlantError(f"Swarm: N: expected at least 1 robot, got {self.N}")

    @property
    def coordinates(self) -> Mapping[str, str]:
        return {f"{axis}{i}": "m" for i in range(1, self.N + 1) for axis in "xy"}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {f"u{coordinate}": "N" for coordinate in self.coordinates}

    def mass_matrix(self, q: Array, t: float) -> Diagonal:
        return Diagonal(np.full(2 * self.N, self.m))

    def force(self, q: Array, v: Array, t: float) -> Array:
        return np.zeros(2 * self.N)

    def actuation(self, q: Array, t: float) -> Diagonal:
        return Diagonal(np.ones(2 * self.N))

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = self.m * np.dot(v, v) / 2
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        return {f"robot{i}": position[None, :] for i, position in enumerate(q.reshape(-1, 2), start=1)}


@dataclass(frozen=True)
class Aggregation(Nonholonomic):
    """psi_i = q_i' + sum_j d_ij (a - b / |d_ij|), d_ij = q_i - q_j: every robot moves down the potential of the swarm.

    The sum is the gradient of the sum of `G_ij = a |d_ij|^2 / 2 - b |d_ij| + c` over j. Two robots alone settle at the
    distance b/a. Not defined if two robots are at the same position.

    Source: Zhao et al. 2018, (61)-(63), (65), with a = 1, b = 0.5.
    """

    a: float = 1.0  # [1/s] attraction
    b: float = 0.5  # [m/s] repulsion

    def psi(self, q: Array, v: Array, t: float) -> Array:
        position = q.reshape(-1, 2)
        N = len(position)
        first, second = np.triu_indices(N, k=1)  # each pair once
        d = position[first] - position[second]
        pull = d * (self.a - self.b / np.sqrt(np.sum(d * d, axis=1)))[:, None]
        pulls = np.zeros((N, N, 2))
        pulls[first, second] = pull
        pulls[second, first] = -pull
        psi: Array = v + np.sum(pulls, axis=1).reshape(-1)
        return psi
