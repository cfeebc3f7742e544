"""N four-bar linkages in a row: posts on a ground line with a chain of couplers between their tips."""

from dataclasses import dataclass

from servoctl.errors import PlantError
from servoctl.mechanics.planar import Linkage, PlanarLinkage


@dataclass(frozen=True)
class FourBars(PlanarLinkage):
    """N loops: posts 0 to N are L apart, coupler i joins the tips of posts i-1 and i; 2N+1 equal uniform rods.

    It has 6N+3 coordinates, 6N+2 independent rows and one degree of freedom, the angle theta of every post, with
    `((N+1)/3 + N) m L^2 theta'' = -((N+1)/2 + N) m g L cos(theta) + tau`. In the flat pose it has N more degrees of
    freedom, which makes it a standard test of integrators.

    Source: Gonzalez, Dopico, Lugris, Cuadrado 2006, problem A02, with N = 40.
    """

    m: float = 1.0  # [kg] mass of a rod
    L: float = 1.0  # [m] length of a rod
    g: float = 9.81  # [m/s^2]
    N: int = 3  # loops
    motor: bool = False  # a motor at the foot of the first post

    def __post_init__(self) -> None:
        if self.N < 1:
            raise PlantError(f"FourBars: N: expected at least 1 loop, got {self.N}")
        super().__post_init__()

    def build(self, linkage: Linkage) -> None:
        linkage.gravity(0.0, -self.g)
        J, start, end = self.m * self.L**2 / 12, (-self.L / 2, 0.0), (self.L / 2, 0.0)
        for i in range(self.N + 1):
            linkage.body(f"post{i}", self.m, J)
            linkage.revolute(f"foot{i}", "ground", (i * self.L, 0.0), f"post{i}", start)
        for i in range(1, self.N + 1):
            linkage.body(f"coupler{i}", self.m, J)
            linkage.revolute(f"left{i}", f"post{i - 1}", end, f"coupler{i}", start)
            linkage.revolute(f"right{i}", f"coupler{i}", end, f"post{i}", end)
        if self.motor:
            linkage.motor("tau", "foot0")
