"""Two planar robots carry one object: a closed chain with more motors than degrees of freedom."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from servoctl.errors import PlantError
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.serial import PlanarChain
from servoctl.types import Array


@dataclass(frozen=True)
class CoordinatedRobots(Plant):
    """M(q) q'' = -C(q,v) v - G(q) + B u, in absolute link angles, closed by `sum l cos = L`, `sum l sin = 0`.

    Links 1 to s-1 are the first robot, link s is the object with both grippers, links s+1 to 2s-1 are the second robot
    from its hand to its base. Every joint has a motor: 2s motors for 2s-3 degrees of freedom. All links are equal
    uniform rods.

    Source: Liu et al. 2015, (48)-(63), (69)-(70), (A2)-(A4), with s = 3.
    """

    m: float = 1.0  # [kg] mass of a link
    I: float = 1.0  # [kg m^2] inertia of a link about its centre  # noqa: E741
    l: float = 1.0  # [m] length of a link  # noqa: E741
    g: float = 9.8  # [m/s^2]
    L: float = 3.0  # [m] distance between the bases
    s: int = 3  # links of each arm, the object included in both

    def __post_init__(self) -> None:
        if self.s < 2:
            raise PlantError(f"CoordinatedRobots: s: expected at least 2 links in each arm, got {self.s}")

    @property
    def coordinates(self) -> Mapping[str, str]:
        return {f"theta{i}": "rad" for i in range(1, 2 * self.s)}

    @property
    def actuators(self) -> Mapping[str, str]:
        return {f"u{i}": "N m" for i in range(1, 2 * self.s + 1)}

    def mass_matrix(self, q: Array, t: float) -> Array:
        return self.chain().mass_matrix(q)

    def coriolis_matrix(self, q: Array, v: Array) -> Array:
        """C(q, v), shape (n, n), with M' - 2 C skew-symmetric."""
        return self.chain().coriolis_matrix(q, v)

    def force(self, q: Array, v: Array, t: float) -> Array:
        force: Array = self.chain().gravity_force(q) - self.coriolis_matrix(q, v) @ v
        return force

    def actuation(self, q: Array, t: float) -> Array:
        """B of (70): each motor acts with +u on its outer link and with -u on its inner one, as seen from its base."""
        n = 2 * self.s - 1
        B = np.zeros((n, n + 1))
        for joint in range(n + 1):
            outer, inner = (joint, joint - 1) if joint < self.s else (joint - 1, joint)
            B[outer, joint] = 1.0
            if 0 <= inner < n:
                B[inner, joint] = -1.0
        return B

    def passive_constraints(self, q: Array, t: float) -> dict[str, Array]:
        tip = self.chain().joints(q)[-1]
        return {"loop": tip - np.array([self.L, 0.0])}

    def energy(self, q: Array, v: Array, t: float) -> float:
        energy: float = np.dot(v, self.mass_matrix(q, t) @ v) / 2 + self.chain().potential_energy(q)
        return energy

    def links(self, q: Array) -> dict[str, Array]:
        joints = self.chain().joints(q)
        return {"robot1": joints[: self.s], "object": joints[self.s - 1 : self.s + 1], "robot2": joints[self.s :]}

    def chain(self) -> PlanarChain:
        """All links as one open chain from the first base."""
        n = 2 * self.s - 1
        return PlanarChain(n * (self.m,), n * (self.I,), n * (self.l,), n * (self.l / 2,), self.g)
