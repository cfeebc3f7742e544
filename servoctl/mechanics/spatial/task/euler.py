"""An orientation by ZYZ Euler angles, beside the rotation vector of `Orientation`.

    R = Rz(phi) Ry(psi) Rz(gamma)
    phi = atan2(r23, r13),   psi = atan2(sqrt(r31^2 + r32^2), r33),   gamma = atan2(r32, -r31)

The angles do not exist where sin(psi) = 0, that is where the frame's z axis is parallel to the reference's: there only
phi + gamma or phi - gamma is known. A SCARA arm is there always; its orientation is one angle, or `Orientation`.

Source: Xu, Liu 2017, (41)-(45). Its (45) picks phi = 0 at psi = 0, which has no derivative, so here that is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from servoctl.engine.symbol import where
from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.kinematics import FrameMotion
from servoctl.mechanics.spatial.task.pose import OneFrame
from servoctl.mechanics.spatial.task.target import TargetValues, values_at
from servoctl.types import Array

FLAT = 1e-3
"""Below this sin(psi), 0.06 deg, the angles count as undefined."""


@dataclass(frozen=True)
class EulerZYZ(OneFrame):
    """The ZYZ Euler angles of a frame follow values: three rows [rad], each difference between -pi and pi.

    Attributes:
        frame: Its name.
        angles: phi, psi, gamma [rad], psi between 0 and pi.
        relative_to: The frame in which the angles are; None: the world.
    """

    frame: str
    angles: TargetValues
    relative_to: str | None = None

    target_fields: ClassVar = {"angles": 3}
    singularity = "at sin(psi) = 0, where ZYZ angles are undefined"

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Array:
        R = motions[self.frame].rotation
        if self.relative_to is not None:
            R = motions[self.relative_to].rotation.T @ R
        phi, psi, gamma = values_at(self.angles, 3, plant, t)
        square = R[0, 2] * R[0, 2] + R[1, 2] * R[1, 2]
        sine = np.sqrt(where(square > FLAT**2, square, np.nan))
        return np.array(
            [
                _difference(R[1, 2], R[0, 2], phi),
                _difference(sine, R[2, 2], psi),
                _difference(R[2, 1], -R[2, 0], gamma),
            ]
        )


def _difference(sine: Any, cosine: Any, angle: Any) -> Any:
    """`atan2(sine, cosine) - angle`, between -pi and pi."""
    c, s = np.cos(angle), np.sin(angle)
    return np.arctan2(sine * c - cosine * s, cosine * c + sine * s)
