"""Bodies in pictures: surfaces of robots, and spheres and capsules of bounds by their outlines on paper.

Design: in a parallel projection the outline of a capsule is two half circles and two lines, from any side.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from servoctl.report.path import Mechanism, MovedSolid
from servoctl.report.style import PALETTE
from servoctl.run_folder.trajectory import group
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Polygon


LIGHT = (-0.45, 0.65, 0.61)  # direction to the light: right, up, towards the viewer
PALE = 0.35  # strength of colours where lines are what matters
DARKEST, COLOUR = 0.45, 0.42  # brightness of a face in the shade, and share of the palette's colour in its own


def draw_last_pose(axes: "Axes", machine: Mechanism) -> Array:
    """Draws the surfaces in the last frame before a robot runs away, pale, behind all lines.

    Returns:
        Their corners on paper, shape (corners, 2); none without surfaces.
    """
    if not machine.solids:
        return np.empty((0, 2))
    last = max(machine.calm - 1, 0)
    axes.add_collection(FacePainter(machine.solids, machine.view.matrix).collection(last, strength=PALE, zorder=0.8))
    return np.concatenate([machine.view.of(part.at(last)) for part in machine.solids.values()])


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


FORBIDDEN, OWN = "#c43d00", "#6B6B6B"  # colours of what is fixed and of what moves

WEAK, STRONG = (0.13, 0.8, 0.9), (0.4, 1.0, 2.4)
"""Opacity inside, opacity of the outline, and its width; strong while the bound holds the inputs."""

HALF = np.linspace(-np.pi / 2, np.pi / 2, 25)  # [rad] angles of a half circle


class FixedShape(NamedTuple):
    """What a bound keeps the machine away from, or inside of, on paper."""

    kind: str  # `obstacle` or `enclosure`
    bounds: tuple[str, ...]  # the bounds to which it belongs
    corners: Array  # its outline, shape (points, 2)

    def patch(self, look: tuple[float, float, float] = WEAK, **settings: Any) -> "Polygon":
        """It as an artist, behind all lines."""
        return _polygon(self.corners, FORBIDDEN, 1.5, look, self.kind != "enclosure", **settings)


def outline(shape: Array, matrix: Array) -> Array:
    """Corners of a shape's outline on paper, shape (points, 2).

    Args:
        shape: Start, end and radius [m], shape (7,).
        matrix: The projection, shape (2, 2 or 3), with orthogonal rows of length 1.
    """
    dimensions = matrix.shape[1]
    start, end = (matrix @ shape[i : i + dimensions] for i in (0, 3))
    turn = np.arctan2(*(end - start)[::-1])
    arcs = [
        point + shape[6] * np.column_stack([np.cos(HALF + angle), np.sin(HALF + angle)])
        for point, angle in ((end, turn), (start, turn + np.pi))
    ]
    return np.concatenate(arcs)


def patch(shape: Array, matrix: Array, colour: str, zorder: float, **settings: Any) -> "Polygon":
    """A shape as an artist."""
    return _polygon(outline(shape, matrix), colour, zorder, WEAK, **settings)


def _polygon(
    corners: Array, colour: str, zorder: float, look: tuple[float, float, float], filled: bool = True, **settings: Any
) -> "Polygon":
    """Corners as an artist; one that is not filled has a dashed outline."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Polygon

    inside, edge, width = look
    return Polygon(
        corners, closed=True, facecolor=to_rgba(colour, inside if filled else 0.0),
        edgecolor=to_rgba(colour, edge), linewidth=width, linestyle="-" if filled else "--", zorder=zorder, **settings,
    )  # fmt: skip


def fixed_outlines(machine: Mechanism) -> list[FixedShape]:
    """What does not move; what several bounds share is there once."""
    drawing, matrix, owners = machine.drawing, machine.view.matrix, dict[tuple[float, ...], tuple[str, ...]]()
    for name, shape in group(drawing, "obstacle").items():
        owners[tuple(shape.tolist())] = (*owners.get(tuple(shape.tolist()), ()), name)
    found = [FixedShape("obstacle", names, outline(np.array(shape), matrix)) for shape, names in owners.items()]
    found += [FixedShape("enclosure", (name,), outline(s, matrix)) for name, s in group(drawing, "enclosure").items()]
    return found


def draw_fixed(axes: "Axes", machine: Mechanism) -> None:
    """Draws what does not move, behind all lines."""
    for each in fixed_outlines(machine):
        axes.add_patch(each.patch()).set_gid(f"{each.kind} {each.bounds[-1]}")


def draw_shapes(axes: "Axes", machine: Mechanism) -> None:
    """Draws what does not move, and the shapes of links in the last frame before the machine runs away."""
    draw_fixed(axes, machine)
    last = max(machine.calm - 1, 0)
    for name, shape in machine.shapes.items():
        axes.add_patch(patch(shape[last], machine.view.matrix, OWN, 2.4)).set_gid(f"shape {name}")
