"""Planar mechanisms from bodies and joints, in redundant coordinates: the mass matrix is constant and diagonal.

    @dataclass(frozen=True)
    class SliderCrank(PlanarLinkage):
        r: float = 0.2  # [m] crank
        l: float = 0.6  # [m] rod
        g: float = 9.81  # [m/s^2]

        def build(self, linkage: Linkage) -> None:
            linkage.gravity(0.0, -self.g)
            linkage.body("crank", m=1.0, J=0.01)
            linkage.body("rod", m=2.0, J=0.05)
            linkage.body("slider", m=1.5, J=0.01)
            linkage.revolute("axle", "ground", (0, 0), "crank", (-self.r / 2, 0))
            linkage.revolute("pin", "crank", (self.r / 2, 0), "rod", (-self.l / 2, 0))
            linkage.revolute("wrist", "rod", (self.l / 2, 0), "slider", (0, 0))
            linkage.prismatic("guide", "ground", (0, 0), "slider", (0, 0), axis=(1, 0))
            linkage.motor("tau", "axle")

Each body in order has the coordinates `crank_x`, `crank_y` [m], its centre of mass, and `crank_phi` [rad], its angle to
the x axis; equations of tasks use these names. A point `(a, b)` of the rod, relative to its centre of mass, is at
`rod_x + a*cos(rod_phi) - b*sin(rod_phi)`, `rod_y + a*sin(rod_phi) + b*cos(rod_phi)`. A named point
(`linkage.point("tool", "rod", (a, b))`) appears in pictures, and `PointFollows` moves it along a path.
"""

from servoctl.mechanics.planar.linkage import Linkage
from servoctl.mechanics.planar.plant import PlanarLinkage, PointFollows

__all__ = ["Linkage", "PlanarLinkage", "PointFollows"]
