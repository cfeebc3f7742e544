"""A planar arm of N links with a motor at every joint."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.serial import PlanarChain
from servoctl.types import Array


@dataclass(frozen=True)
class Chain(Plant):
    """M(q) q'' = -C(q,v) v - G(q) + B u in absolute link angles; all links are equal uniform rods of length reach / N.

    Source: Liu et al. 2015, (48)-(53).
    """

    m: float = 1.0  # [kg] whole arm
    reach: float = 2.0  # [m] whole arm, stretched
    g: float = 9.81  # [m/s^2]
    N: int = 4  # links

    def __post_init__(self) -> None:
        if self.N < 1:
            raise PlantError(f"Chain: N: expected at least 1 link, got {self.N}")

    @property
    def coordinates(self) -> Mapping[str, str]:
        return {f"theta{i}": "rad" for i in range(1, self.N + 1)}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {f"u{i}": "N m" for i in range(1, self.N + 1)}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.chain().mass_matrix(q)

    def force(self, q: Array, v: Array, t: float) -> Array:
        chain = self.chain()
        force: Array = chain.gravity_force(q) - chain.coriolis_matrix(q, v) @ v
        return force

    def actuation(self, q: Array, t: float) -> Array:
        """Motor i acts between links i-1 and i: a torque +u_i on link i and the reaction -u_i on link i-1."""
        return np.eye(self.N) - np.eye(self.N, k=1)

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = np.dot(v, self.mass_matrix(q, t) @ v) / 2 + self.chain().potential_energy(q)
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        return {"arm": self.chain().joints(q)}

    def chain(self) -> PlanarChain:
        """The links, from the base to the tip."""
        m, l = self.m / self.N, self.reach / self.N  # noqa: E741
        return PlanarChain(self.N * (m,), self.N * (m * l**2 / 12,), self.N * (l,), self.N * (l / 2,), self.g)
