"""A planar parallel robot: three motors turn three arms; their forearms carry one platform."""

from dataclasses import dataclass

import numpy as np

from servoctl.mechanics.planar import Linkage, PlanarLinkage

CHAINS = ("a", "b", "c")


@dataclass(frozen=True)
class ThreeRRR(PlanarLinkage):
    """A 3RRR mechanism in levels: 18 coordinates, 15 rows, three degrees of freedom.

    Each chain has a rotor, an arm on the ground and a forearm. Level 1 is ten separate bodies. Level 2 couples each
    rotor with its arm and hinges the forearm to the arm (9 rows). Level 3 hinges the forearms to the platform (6 rows).

    Source: Orsino 2017, figures 2-4, which have no numbers.
    """

    base: float = 1.0  # [m] distance of the arms' feet from the origin
    platform: float = 0.25  # [m] distance of the platform's corners from its centre
    l1: float = 0.6  # [m] arm
    l2: float = 0.7  # [m] forearm
    m1: float = 1.2  # [kg] arm
    m2: float = 1.0  # [kg] forearm
    m3: float = 2.0  # [kg] platform
    J0: float = 0.02  # [kg m^2] rotor
    J1: float = 0.04  # [kg m^2] arm, about its centre
    J2: float = 0.05  # [kg m^2] forearm, about its centre
    J3: float = 0.08  # [kg m^2] platform, about its centre
    g: float = 9.81  # [m/s^2] along -y; 0 for a robot in a horizontal plane

    def build(self, linkage: Linkage) -> None:
        linkage.gravity(0.0, -self.g)
        directions = {k: np.pi / 2 + i * 2 * np.pi / 3 for i, k in enumerate(CHAINS)}
        for k, direction in directions.items():
            foot = (self.base * np.cos(direction), self.base * np.sin(direction))
            linkage.rotor(f"rotor_{k}", self.J0)
            linkage.pinned(f"arm_{k}", self.m1, self.J1, pivot=foot, at=(-self.l1 / 2, 0.0))
            linkage.body(f"forearm_{k}", self.m2, self.J2)
        linkage.body("platform", self.m3, self.J3)
        for k, direction in directions.items():
            corner = (self.platform * np.cos(direction), self.platform * np.sin(direction))
            elbow, tip = (-self.l2 / 2, 0.0), (self.l2 / 2, 0.0)
            linkage.gear(f"shaft_{k}", f"arm_{k}", f"rotor_{k}", level=2)
            linkage.revolute(f"elbow_{k}", f"arm_{k}", (self.l1 / 2, 0.0), f"forearm_{k}", elbow, level=2)
            linkage.revolute(f"wrist_{k}", "platform", corner, f"forearm_{k}", tip, level=3)
            linkage.motor(f"tau_{k}", f"rotor_{k}")
