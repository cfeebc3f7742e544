"""An orientation by ZYZ Euler angles, beside the rotation vector of `Orientation`: `R = Rz(phi) Ry(psi) Rz(gamma)`.

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


@dataclass(frozen=True)
class EulerZYZ(OneFrame):
    """The ZYZ Euler angles of a frame follow values: three rows [rad], each difference between -pi and pi."""

    frame: str
    angles: TargetValues  # phi, psi, gamma [rad], psi between 0 and pi
    relative_to: str | None = None  # the frame in which the angles are; None: the world

    target_fields: ClassVar = {"angles": 3}
    singularity = "at sin(psi) = 0, where ZYZ angles are undefined"

    def residual(self, motions: Mapping[str, FrameMotion], plant: Plant, t: Any) -> Array:
        R = motions[self.frame].rotation
        if self.relative_to is not None:
            R = motions[self.relative_to].rotation.T @ R
        square = R[0, 2] ** 2 + R[1, 2] ** 2
        sine = np.sqrt(where(square > 1e-6, square, np.nan))  # undefined below 0.06 deg
        found = [np.arctan2(R[1, 2], R[0, 2]), np.arctan2(sine, R[2, 2]), np.arctan2(R[2, 1], -R[2, 0])]
        off = np.array(found) - np.array(values_at(self.angles, 3, plant, t))
        rows: Array = np.arctan2(np.sin(off), np.cos(off))
        return rows
