"""The machine as the live page draws it: polylines, and the surfaces of robots with their poses."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from servoctl.mechanics.plant import Plant
from servoctl.mechanics.spatial.picture import poses, surfaces
from servoctl.types import Array


class MachineDrawing:
    """Draws a plant.

    Args:
        plant: The plant.
        frames: Names of frames of a robot whose axes are drawn.

    Attributes:
        solids: Frame -> corners of its surface [m] and faces, each as one list; see `Trajectory.drawing`.
    """

    def __init__(self, plant: Plant, frames: Sequence[str] = ()) -> None:
        self._plant = plant
        drawn = surfaces(plant)
        names = [name.removeprefix("solid.") for name in drawn if name.startswith("solid.")]
        self.solids: dict[str, Any] = {
            name: {
                "points": [plain(x) for x in drawn[f"solid.{name}"].flat],
                "faces": drawn[f"faces.{name}"].ravel().tolist(),
            }
            for name in names
        }
        self._frames = list(dict.fromkeys([*names, *frames]))

    def at(self, q: Array) -> dict[str, Any]:
        """What moves, at coordinates of shape (n,): `links`, polylines; `poses`, 12 numbers per frame of a robot."""
        lines = self._plant.links(q)
        moved = poses(self._plant, self._frames, np.asarray(q)[None])
        return {
            "links": {
                name: [[plain(x) for x in point] for point in np.atleast_2d(line)] for name, line in lines.items()
            },
            "poses": {name: [plain(x) for x in pose[0]] for name, pose in moved.items()},
        }


def plain(value: float) -> float | None:
    """The number with six digits; None if it is not finite, because JSON has no such numbers."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
