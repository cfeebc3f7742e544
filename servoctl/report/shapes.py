"""Spheres and capsules of bounds in pictures: read from a drawing, and drawn on paper by their outlines.

Design: in a parallel projection the outline of a capsule is two half circles and two lines, from any side.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from servoctl.report.path import calm_frames, drawn_frames, frames, view
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Polygon

SHAPE, OBSTACLE, ENCLOSURE = "shape.", "obstacle.", "enclosure."

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


def moving_shapes(trajectory: Trajectory) -> dict[str, Array]:
    """Link -> start, end and radius of its shape in the frames that `path.frames` gives, shape (frames, 7)."""
    index = drawn_frames(trajectory)
    drawing = trajectory.drawing
    return {name.removeprefix(SHAPE): shape[index] for name, shape in drawing.items() if name.startswith(SHAPE)}


def obstacles(trajectory: Trajectory) -> dict[str, Array]:
    """Bound -> start, end and radius of a fixed shape, shape (7,)."""
    return _fixed(trajectory, OBSTACLE)


def enclosures(trajectory: Trajectory) -> dict[str, Array]:
    """The same of shapes that the machine stays inside of."""
    return _fixed(trajectory, ENCLOSURE)


def _fixed(trajectory: Trajectory, prefix: str) -> dict[str, Array]:
    drawing = trajectory.drawing
    return {name.removeprefix(prefix): shape for name, shape in drawing.items() if name.startswith(prefix)}


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


def fixed_outlines(trajectory: Trajectory, matrix: Array) -> list[FixedShape]:
    """What does not move; what several bounds share is there once.

    Args:
        trajectory: The run.
        matrix: The projection, as of `outline`.
    """
    owners = dict[tuple[float, ...], tuple[str, ...]]()
    for name, shape in obstacles(trajectory).items():
        owners[tuple(shape.tolist())] = (*owners.get(tuple(shape.tolist()), ()), name)
    found = [FixedShape("obstacle", names, outline(np.array(shape), matrix)) for shape, names in owners.items()]
    found += [FixedShape("enclosure", (name,), outline(s, matrix)) for name, s in enclosures(trajectory).items()]
    return found


def draw_fixed(axes: "Axes", trajectory: Trajectory, matrix: Array) -> None:
    """Draws what does not move, behind all lines."""
    for each in fixed_outlines(trajectory, matrix):
        axes.add_patch(each.patch()).set_gid(f"{each.kind} {each.bounds[-1]}")


def draw_shapes(axes: "Axes", trajectory: Trajectory) -> None:
    """Draws what does not move, and the shapes of links in the last frame before the machine runs away."""
    _, lines = frames(trajectory)
    matrix = view(lines).matrix
    draw_fixed(axes, trajectory, matrix)
    last = max(calm_frames(lines) - 1, 0)
    for name, shape in moving_shapes(trajectory).items():
        axes.add_patch(patch(shape[last], matrix, OWN, 2.4)).set_gid(f"shape {name}")
