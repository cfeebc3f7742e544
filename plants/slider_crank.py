"""A slider-crank: a crank turns and moves a slider back and forth by a rod."""

from dataclasses import dataclass

from servoctl.mechanics.planar import Linkage, PlanarLinkage


@dataclass(frozen=True)
class SliderCrank(PlanarLinkage):
    """The slider is at `x = r cos(crank) + sqrt(l^2 - (r sin(crank) - e)^2)`; crank and rod are uniform rods."""

    r: float = 0.2  # [m] crank
    l: float = 0.6  # [m] rod  # noqa: E741
    e: float = 0.0  # [m] height of the guide above the crank's axle
    m1: float = 1.0  # [kg] crank
    m2: float = 2.0  # [kg] rod
    m3: float = 1.5  # [kg] slider
    J3: float = 0.01  # [kg m^2] inertia of the slider about its centre
    g: float = 9.81  # [m/s^2]

    def build(self, linkage: Linkage) -> None:
        side = self.r / 4  # half side of the drawn slider
        linkage.gravity(0.0, -self.g)
        linkage.body("crank", self.m1, self.m1 * self.r**2 / 12)
        linkage.body("rod", self.m2, self.m2 * self.l**2 / 12)
        box = [(-side, -side), (side, -side), (side, side), (-side, side), (-side, -side)]
        linkage.body("slider", self.m3, self.J3, outline=box)
        linkage.revolute("axle", "ground", (0.0, 0.0), "crank", (-self.r / 2, 0.0))
        linkage.revolute("pin", "crank", (self.r / 2, 0.0), "rod", (-self.l / 2, 0.0))
        linkage.revolute("wrist", "rod", (self.l / 2, 0.0), "slider", (0.0, 0.0))
        linkage.prismatic("guide", "ground", (0.0, self.e), "slider", (0.0, 0.0), axis=(1.0, 0.0))
        linkage.motor("tau", "axle")
