"""Three parallel links and a coupler: one degree of freedom and one dependent constraint row."""

from dataclasses import dataclass

from servoctl.errors import PlantError
from servoctl.mechanics.planar import Linkage, PlanarLinkage


@dataclass(frozen=True)
class Parallelogram(PlanarLinkage):
    """Twelve coordinates, twelve rows of rank 11; rank 10 in the flat pose, where the links lie along the coupler.

    The links turn about x = 0, L2/2, L2 on the ground and carry the coupler at its ends and its middle. All have the
    same angle theta: `(3 (I + m L^2/4) + m2 L^2) theta'' = -(3 m/2 + m2) g L cos(theta) + tau`.

    Source: de Falco, Pennestri, Vita, figure 1 and tables 1-7. Formula (28) there needs independent rows.
    """

    L: float = 1.0  # [m] length of a link
    m: float = 1.0  # [kg] mass of a link
    I: float = 0.1  # [kg m^2] inertia of a link about its centre  # noqa: E741
    L2: float = 2.0  # [m] length of the coupler
    m2: float = 2.0  # [kg] mass of the coupler
    I2: float = 0.2  # [kg m^2] inertia of the coupler about its centre
    g: float = 9.81  # [m/s^2]
    motor: int = 0  # link with a motor at its foot, 1 to 3; 0: no motor

    def __post_init__(self) -> None:
        if self.motor not in (0, 1, 2, 3):
            raise PlantError(f"Parallelogram: motor: expected a link, 1 to 3, or 0 for none, got {self.motor}")
        super().__post_init__()

    def build(self, linkage: Linkage) -> None:
        linkage.gravity(0.0, -self.g)
        for i in (1, 2, 3):
            linkage.body(f"link{i}", self.m, self.I)
        linkage.body("coupler", self.m2, self.I2)
        for i in (1, 2, 3):
            half = (i - 1) * self.L2 / 2
            linkage.revolute(f"foot{i}", "ground", (half, 0.0), f"link{i}", (-self.L / 2, 0.0))
            linkage.revolute(f"pin{i}", f"link{i}", (self.L / 2, 0.0), "coupler", (half - self.L2 / 2, 0.0))
        if self.motor:
            linkage.motor("tau", f"foot{self.motor}")
