"""A four-bar linkage of crank, coupler and rocker; a point of the coupler draws a curve."""

from dataclasses import dataclass

from servoctl.mechanics.planar import Linkage, PlanarLinkage


@dataclass(frozen=True)
class FourBar(PlanarLinkage):
    """`a e(crank) + b e(coupler) = (d, 0) + c e(rocker)` with `e(phi) = (cos phi, sin phi)`; links are uniform rods.

    With the default lengths the crank is the shortest link and `a + d < b + c`, so it can turn fully (Grashof).
    """

    a: float = 0.3  # [m] crank
    b: float = 0.8  # [m] coupler
    c: float = 0.7  # [m] rocker
    d: float = 1.0  # [m] distance of the feet
    px: float = 0.1  # [m] drawing point, along the coupler from its centre
    py: float = 0.4  # [m] drawing point, across the coupler
    density: float = 2.0  # [kg/m] of every link
    g: float = 9.81  # [m/s^2]

    def build(self, linkage: Linkage) -> None:
        linkage.gravity(0.0, -self.g)
        for name, length in (("crank", self.a), ("coupler", self.b), ("rocker", self.c)):
            linkage.body(name, self.density * length, self.density * length**3 / 12)
        linkage.revolute("axle", "ground", (0.0, 0.0), "crank", (-self.a / 2, 0.0))
        linkage.revolute("pin1", "crank", (self.a / 2, 0.0), "coupler", (-self.b / 2, 0.0))
        linkage.revolute("pin2", "coupler", (self.b / 2, 0.0), "rocker", (self.c / 2, 0.0))
        linkage.revolute("foot", "ground", (self.d, 0.0), "rocker", (-self.c / 2, 0.0))
        linkage.point("pen", "coupler", (self.px, self.py))
        linkage.motor("tau", "axle")
