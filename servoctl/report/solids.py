"""Surfaces of robots in pictures: read from a drawing, and drawn on paper as shaded faces."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from servoctl.report.path import calm_frames, drawn_frames, frames, view
from servoctl.report.style import PALETTE
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection

SOLID, FACES, POSE, AXES = "solid.", "faces.", "pose.", "axes."

LIGHT = (-0.45, 0.65, 0.61)  # direction to the light: right, up, towards the viewer
PALE = 0.35  # strength of colours where lines are what matters
DARKEST, COLOUR = 0.45, 0.42  # brightness of a face in the shade, and share of the palette's colour in its own


class MovedSolid(NamedTuple):
    """A surface that moves."""

    points: Array  # corners in its own axes [m], shape (points, 3)
    faces: Array  # indices of four corners and the number of a colour, shape (faces, 5)
    pose: Array  # rotation by rows, then position [m], shape (frames, 12)

    def at(self, frame: int) -> Array:
        """Its corners in the world [m], shape (points, 3)."""
        R, p = self.pose[frame, :9].reshape(3, 3), self.pose[frame, 9:]
        moved: Array = self.points @ R.T + p
        return moved


def solids(trajectory: Trajectory) -> dict[str, MovedSolid]:
    """Frame -> its surface in the frames that `path.frames` gives; empty without surfaces."""
    drawing, index = trajectory.drawing, drawn_frames(trajectory)
    names = [name.removeprefix(SOLID) for name in drawing if name.startswith(SOLID)]
    return {
        name: MovedSolid(drawing[SOLID + name], drawing[FACES + name], drawing[POSE + name][index]) for name in names
    }


def frame_axes(trajectory: Trajectory) -> dict[str, Array]:
    """Frame of the task -> its poses in the same frames, shape (frames, 12)."""
    index = drawn_frames(trajectory)
    return {name.removeprefix(AXES): pose[index] for name, pose in trajectory.drawing.items() if name.startswith(AXES)}


def draw_last_pose(axes: "Axes", trajectory: Trajectory) -> None:
    """Draws the surfaces in the last frame before a robot runs away, pale, behind all lines."""
    parts, (_, lines) = solids(trajectory), frames(trajectory)
    if parts:
        painter = FacePainter(parts, view(lines).matrix)
        axes.add_collection(painter.collection(max(calm_frames(lines) - 1, 0), strength=PALE, zorder=0.8))


class FacePainter:
    """Draws surfaces as polygons, the far ones first.

    Args:
        parts: The surfaces.
        matrix: The projection, shape (2, 3).
    """

    def __init__(self, parts: dict[str, MovedSolid], matrix: Array) -> None:
        self._parts, self._matrix = list(parts.values()), matrix
        self._eye = np.cross(*matrix)

    def collection(self, frame: int, strength: float = 1.0, **settings: Any) -> "PolyCollection":
        """The faces in a frame as an artist, mixed with white unless the strength is 1."""
        from matplotlib.collections import PolyCollection

        polygons, colours = self.faces(frame)
        # antialiased faces would show seams between them
        return PolyCollection(
            list(polygons), facecolors=1.0 - strength * (1.0 - colours), linewidths=0.0, antialiaseds=False, **settings
        )

    def faces(self, frame: int) -> tuple[Array, Array]:
        """Corners on paper, shape (faces, 4, 2), and colours, shape (faces, 3), of the faces that are seen."""
        corners = np.concatenate([part.at(frame)[part.faces[:, :4]] for part in self._parts])
        numbers = np.concatenate([part.faces[:, 4] for part in self._parts])
        normal = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
        size = np.linalg.norm(normal, axis=1)
        seen = (normal @ self._eye > 0) & (size > 0)
        corners, numbers, normal = corners[seen], numbers[seen], normal[seen] / size[seen, None]
        light = np.array([*self._matrix, self._eye]).T @ LIGHT
        shade = np.clip(0.5 + 0.5 * normal @ light, 0.0, 1.0)
        colours = (DARKEST + (1 - DARKEST) * shade)[:, None] * _colours()[numbers % len(PALETTE)]
        order = np.argsort(corners.mean(axis=1) @ self._eye, kind="stable")
        return (corners @ self._matrix.T)[order], colours[order]


def _colours() -> Array:
    """The palette mixed with white, shape (colours, 3)."""
    own = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in PALETTE])
    mixed: Array = COLOUR * own + (1 - COLOUR) * 0.965
    return mixed
