"""The mass of a body and its moments, in which inertias of links that move together add up.

    m,   h = sum m p,   J = sum m p p^T   about the origin of the body's axes

Design: J, not the inertia tensor, because it moves to other axes and adds to a motion's force with the fewest
operations. The inertia tensor about the origin is `tr(J) 1 - J`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servoctl.mechanics.spatial.placement import Placement
from servoctl.mechanics.spatial.scalars import ZERO, Matrix, Triple, minus, plus, scalars, times


@dataclass(frozen=True, slots=True)
class Moments:
    """Mass and moments about the origin of some axes."""

    m: Any = 0.0  # [kg] mass
    first: Triple = ZERO  # [kg m] first moment, m times the centre of mass
    # xx, yy, zz, xy, xz, yz: [kg m^2] second moments J, such as xy = sum m x y
    xx: Any = 0.0
    yy: Any = 0.0
    zz: Any = 0.0
    xy: Any = 0.0
    xz: Any = 0.0
    yz: Any = 0.0

    @classmethod
    def of(cls, m: Any, com: Sequence[Any], inertia: Sequence[Any]) -> "Moments":
        """From a link's parameters.

        Args:
            m: Mass [kg].
            com: Centre of mass [m].
            inertia: About the centre of mass, (ixx, iyy, izz, ixy, ixz, iyz) [kg m^2].
        """
        (mass,), centre = scalars([m]), Triple.of(com)
        ixx, iyy, izz, ixy, ixz, iyz = scalars(inertia)
        half = times(0.5, plus(plus(ixx, iyy), izz))
        central = cls(
            0.0, ZERO, minus(half, ixx), minus(half, iyy), minus(half, izz), minus(0.0, ixy), minus(0.0, ixz),
            minus(0.0, iyz),
        )  # fmt: skip
        return central + cls(mass).shifted(centre)

    @property
    def inertia_about_z(self) -> Any:
        """Izz about the origin."""
        return plus(self.xx, self.yy)

    @property
    def J(self) -> Matrix:
        """The second moments."""
        return Matrix(
            Triple(self.xx, self.xy, self.xz), Triple(self.xy, self.yy, self.yz), Triple(self.xz, self.yz, self.zz)
        )

    @property
    def inertia(self) -> Matrix:
        """The inertia tensor about the origin."""
        return Matrix(
            Triple(plus(self.yy, self.zz), minus(0.0, self.xy), minus(0.0, self.xz)),
            Triple(minus(0.0, self.xy), plus(self.xx, self.zz), minus(0.0, self.yz)),
            Triple(minus(0.0, self.xz), minus(0.0, self.yz), plus(self.xx, self.yy)),
        )

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            plus(self.m, other.m), self.first + other.first,
            plus(self.xx, other.xx), plus(self.yy, other.yy), plus(self.zz, other.zz),
            plus(self.xy, other.xy), plus(self.xz, other.xz), plus(self.yz, other.yz),
        )  # fmt: skip

    def placed(self, placement: Placement) -> "Moments":
        """The moments in outer axes, in which these axes have the placement."""
        return self.placed_by(Matrix.of(placement.rotation), Triple.of(placement.xyz))

    def placed_by(self, R: Matrix, r: Triple) -> "Moments":
        """The moments in outer axes, `p_outer = R p + r`."""
        J = R @ self.J @ R.T
        return Moments(self.m, R(self.first), J.x.x, J.y.y, J.z.z, J.x.y, J.x.z, J.y.z).shifted(r)

    def shifted(self, by: Triple) -> "Moments":
        """The moments about an origin from which these axes begin at `by`: `J + h r^T + r (h + m r)^T`."""
        h, far = self.first, self.first + by * self.m
        return Moments(
            self.m, far,
            plus(self.xx, times(by.x, plus(h.x, far.x))),
            plus(self.yy, times(by.y, plus(h.y, far.y))),
            plus(self.zz, times(by.z, plus(h.z, far.z))),
            plus(self.xy, plus(times(h.x, by.y), times(by.x, far.y))),
            plus(self.xz, plus(times(h.x, by.z), times(by.x, far.z))),
            plus(self.yz, plus(times(h.y, by.z), times(by.y, far.z))),
        )  # fmt: skip

    def turned(self, sine: Any, cosine: Any) -> "Moments":
        """The moments after a turn about z by an angle with this sine and cosine.

        With `u = s (xx - yy) + 2 c xy`: xx' = xx - s u, yy' = yy + s u, xy' = c u - xy.
        """
        u = plus(times(sine, minus(self.xx, self.yy)), times(times(2.0, cosine), self.xy))
        part = times(sine, u)
        edge = Triple(self.xz, self.yz, 0.0).turned(sine, cosine)
        return Moments(
            self.m, self.first.turned(sine, cosine),
            minus(self.xx, part), plus(self.yy, part), self.zz, minus(times(cosine, u), self.xy), edge.x, edge.y,
        )  # fmt: skip
