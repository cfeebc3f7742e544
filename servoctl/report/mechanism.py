"""Draws the path of a run: the mechanism if the plant has `links`, else velocities over coordinates.

Bodies are surfaces of robots, and spheres and capsules of bounds by their outlines on paper.

Design: in a parallel projection the outline of a capsule is two half circles and two lines, from any side.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from servoctl.report.scales import calm_range
from servoctl.report.style import INK, PALETTE, QUIET, axis_label, blend, chosen, colours, drawable
from servoctl.run_folder.trajectory import Trajectory, group, traced
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Polygon

INSTANTS = 8  # number of poses of the mechanism in one picture
POINTS = 4000  # largest number of points of a curve
JOINTS = 10  # largest number of points of a polyline whose joints are drawn; one with more is a spring
STILL = 1e-5  # share of the drawing's size by which a support may drift; that of a mechanism's constraints does
AZIMUTH, ELEVATION = np.radians(-60.0), np.radians(25.0)  # [rad] view direction of a drawing in space


class PaperProjection(NamedTuple):
    """The projection of a drawing onto paper."""

    matrix: Array  # shape (2, dimensions): `(right, up) = matrix @ point`
    labels: tuple[str, str] | None  # labels of the two axes; None: they are no axes of space

    def of(self, points: Array) -> Array:
        """Points on paper, shape (..., 2) of shape (..., 2 or 3)."""
        on_paper: Array = points @ self.matrix[:, : points.shape[-1]].T
        return on_paper


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


class FixedShape(NamedTuple):
    """What bounds keep the machine away from, or inside of; what several of them share is one."""

    inside: bool  # whether the machine stays inside of it
    bounds: tuple[str, ...]  # their names
    shape: tuple[float, ...]  # start, end and radius [m], seven numbers


def fixed_shapes(drawing: Mapping[str, Array]) -> list[FixedShape]:
    """The shapes of a drawing that do not move."""
    owners: dict[tuple[bool, tuple[float, ...]], tuple[str, ...]] = {}
    for kind in ("obstacle", "enclosure"):
        for name, shape in group(drawing, kind).items():
            key = kind == "enclosure", tuple(shape.tolist())
            owners[key] = (*owners.get(key, ()), name)
    return [FixedShape(inside, names, shape) for (inside, shape), names in owners.items()]


class Mechanism:
    """The drawing of a run, in at most `POINTS` frames whose polylines are finite; `t` is empty without any."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.drawing = trajectory.drawing
        lines = {name: points for name, points in self.drawing.items() if points.ndim == 3}
        t = self.drawing.get("t", np.empty(0)) if lines else np.empty(0)
        index = np.unique(np.linspace(0, len(t) - 1, min(len(t), POINTS)).round().astype(int))
        lines = {name: drawable(points[index]) for name, points in lines.items()}
        finite = np.all([np.isfinite(points).all(axis=(1, 2)) for points in lines.values()], axis=0) & (index >= 0)
        self._index = index[finite]
        self.t = t[self._index]  # times [s]
        self.lines = {name: points[finite] for name, points in lines.items()}  # polylines [m]
        self.shapes = self._group("shape")  # link -> start, end and radius of its shape, shape (frames, 7)
        self.fixed = fixed_shapes(self.drawing)  # what does not move
        self.axes = self._group("axes")  # frame of the task -> its poses, shape (frames, 12)
        # polyline -> path that the task prescribes for its end [m], shape (points, 2 or 3)
        paths = group(self.drawing, "task").items()
        self.task = {name: drawable(points) for name, points in paths if points.ndim == 2}

    def _group(self, prefix: str) -> dict[str, Array]:
        return {name: values[self._index] for name, values in group(self.drawing, prefix).items()}

    @cached_property
    def solids(self) -> dict[str, MovedSolid]:
        """Frame of a robot -> its surface."""
        poses, faces = self._group("pose"), group(self.drawing, "faces")
        solids = group(self.drawing, "solid").items()
        return {name: MovedSolid(points, faces[name], poses[name]) for name, points in solids}

    @cached_property
    def traces(self) -> dict[str, Array]:
        """The paths to draw, shape (frames, 2 or 3): of a robot's frames of the task, else of the ends of polylines."""
        if self.solids and self.axes:
            return {name: pose[:, 9:] for name, pose in self.axes.items()}
        return {name: traced(points) for name, points in self.lines.items()}

    @cached_property
    def calm(self) -> int:
        """Number of frames before the mechanism runs away at the end, if it does."""
        return calm_frames(self.lines)

    @cached_property
    def view(self) -> PaperProjection:
        """The projection onto paper."""
        return view(self.lines)

    @cached_property
    def paper(self) -> dict[str, Array]:
        """The polylines on paper, shape (frames, points, 2)."""
        return {name: self.view.of(points) for name, points in self.lines.items()}


def view(lines: dict[str, Array]) -> PaperProjection:
    """The projection: none for a plane drawing; in space along a flat direction, or else from the front and above."""
    dimensions = max(points.shape[-1] for points in lines.values())
    names = np.array(["x [m]", "y [m]", "z [m]"])
    if dimensions == 2:
        return PaperProjection(np.eye(2), (names[0], names[1]))
    cloud = np.concatenate([points.reshape(-1, points.shape[-1]) for points in lines.values() if points.shape[-1] == 3])
    extent = np.ptp(cloud, axis=0)
    flat = int(np.argmin(extent))
    if extent[flat] <= 1e-6 * np.max(extent):
        kept = [axis for axis in range(3) if axis != flat]
        return PaperProjection(np.eye(3)[kept], (names[kept[0]], names[kept[1]]))
    (ca, sa), (ce, se) = ((np.cos(angle), np.sin(angle)) for angle in (AZIMUTH, ELEVATION))
    return PaperProjection(np.array([[-sa, ca, 0.0], [-se * ca, -se * sa, ce]]), None)


def calm_frames(lines: dict[str, Array]) -> int:
    """Number of frames before the mechanism runs away at the end, if it does."""
    frames = len(next(iter(lines.values())))
    low, high = (np.full(frames, end) for end in (np.inf, -np.inf))
    for points in lines.values():
        low = np.minimum(low, points.min(axis=(1, 2)))
        high = np.maximum(high, points.max(axis=(1, 2)))
    calm = calm_range([low, high])
    if calm is None:
        return frames
    room = calm.high - calm.low
    return int(np.argmax((high > calm.high + room) | (low < calm.low - room)))


def _with_margin(x: Array) -> tuple[float, float]:
    """Least and greatest value with a margin on both sides."""
    low, high = float(np.min(x)), float(np.max(x))
    margin = 0.08 * (high - low) or 1e-3
    return low - margin, high + margin


LIGHT = (-0.45, 0.65, 0.61)  # direction to the light: right, up, towards the viewer
PALE = 0.35  # strength of colours where lines are what matters
DARKEST, COLOUR = 0.45, 0.42  # brightness of a face in the shade, and share of the palette's colour in its own


def _draw_last_pose(axes: "Axes", machine: Mechanism) -> Array:
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


def outline(shape: Array | Sequence[float], matrix: Array) -> Array:
    """Corners of a shape's outline on paper, shape (points, 2).

    Args:
        shape: Start, end and radius [m], shape (7,).
        matrix: The projection, shape (2, 2 or 3), with orthogonal rows of length 1.
    """
    dimensions = matrix.shape[1]
    start, end = (matrix @ np.array(shape[i : i + dimensions]) for i in (0, 3))
    turn = np.arctan2(*(end - start)[::-1])
    arcs = [
        point + shape[6] * np.column_stack([np.cos(HALF + angle), np.sin(HALF + angle)])
        for point, angle in ((end, turn), (start, turn + np.pi))
    ]
    return np.concatenate(arcs)


def patch(
    shape: Array | Sequence[float],
    matrix: Array,
    colour: str = OWN,
    zorder: float = 2.4,
    look: tuple[float, float, float] = WEAK,
    filled: bool = True,
) -> "Polygon":
    """A shape as an artist; one that is not filled has a dashed outline."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Polygon

    inside, edge, width = look
    return Polygon(
        outline(shape, matrix), closed=True, facecolor=to_rgba(colour, inside if filled else 0.0),
        edgecolor=to_rgba(colour, edge), linewidth=width, linestyle="-" if filled else "--", zorder=zorder,
    )  # fmt: skip


def fixed_patch(each: FixedShape, matrix: Array, look: tuple[float, float, float] = WEAK) -> "Polygon":
    """What does not move as an artist, behind all lines."""
    return patch(each.shape, matrix, FORBIDDEN, 1.5, look, filled=not each.inside)


def draw_fixed(axes: "Axes", machine: Mechanism) -> None:
    """Draws what does not move."""
    for each in machine.fixed:
        kind = "enclosure" if each.inside else "obstacle"
        axes.add_patch(fixed_patch(each, machine.view.matrix)).set_gid(f"{kind} {each.bounds[-1]}")


def draw_mechanism(axes: "Axes", machine: Mechanism) -> None:
    """Draws the mechanism at several instants, from light to dark, the paths of its ends, and its bodies at the last.

    A robot with surfaces has no supports in its picture; the directions of space are drawn at its side.
    """
    surface, projection, count = _draw_last_pose(axes, machine), machine.view, machine.calm
    t, paper = machine.t[:count], {name: points[:count] for name, points in machine.paper.items()}
    instants = np.unique(np.searchsorted(t, np.linspace(t[0], t[-1], INSTANTS)).clip(0, len(t) - 1))
    shades = colours(paper)
    for name, points in paper.items():
        end = traced(points)
        if np.max(np.ptp(end, axis=0)) > 0:
            axes.plot(*end.T, color=shades[name], linewidth=0.9, alpha=0.55, zorder=2.0, gid=f"{name} trace")
    draw_task(axes, machine)
    for number, instant in enumerate(instants):
        age = (number + 1) / len(instants)
        last = number == len(instants) - 1
        for name, points in paper.items():
            axes.plot(
                *points[instant].T, line_style(points), gid=name if last else f"{name} {number}",
                color=blend(shades[name], 0.14 + 0.86 * age**1.6), linewidth=2.2 if last else 1.3,
                markersize=4.5 if last else 2.2, markerfacecolor="white" if last else None,
                markeredgewidth=1.2 if last else 0.0, zorder=3.0 + age,
            )  # fmt: skip
    if not len(surface):
        draw_supports(axes, paper.values())
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    if projection.labels is None:
        draw_directions(
            axes, projection.matrix, np.concatenate([surface, *(points.reshape(-1, 2) for points in paper.values())])
        )
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        axes.spines[:].set_visible(False)
        axes.grid(False)
    else:
        axes.set_xlabel(projection.labels[0])
        axes.set_ylabel(projection.labels[1])
    then = ", then it runs away" if count < len(machine.t) else ""
    axes.set_title(f"Path (light to dark: t = {t[0]:.3g} to {t[-1]:.3g} s{then})")
    name_beside(axes, shades)
    draw_fixed(axes, machine)
    for name, shape in machine.shapes.items():
        axes.add_patch(patch(shape[max(count - 1, 0)], projection.matrix)).set_gid(f"shape {name}")


def line_style(points: Array) -> str:
    """Matplotlib's format for a polyline: dots for joints, and a line where there are several points."""
    return "o" if points.shape[1] == 1 else "o-" if points.shape[1] <= JOINTS else "-"


def draw_task(axes: "Axes", machine: Mechanism) -> None:
    """Draws the path that the task prescribes, dotted."""
    for curve in machine.task.values():
        axes.plot(*machine.view.of(curve).T, ":", color=INK, linewidth=0.9, zorder=1.9, gid="task")


def draw_phase(axes: "Axes", trajectory: Trajectory, names: list[str], shades: dict[str, str]) -> None:
    """Draws velocities over coordinates; a ring marks the start, a dot the end."""
    stride, shown = -(-len(trajectory) // POINTS), []
    for name in names:
        index = np.append(np.arange(0, len(trajectory) - 1, stride), len(trajectory) - 1)
        q, v = drawable(trajectory[f"q.{name}"])[index], drawable(trajectory[f"v.{name}"])[index]
        axes.plot(q, v, color=shades[name], linewidth=1.2, gid=name)
        axes.plot(q[:1], v[:1], "o", color=shades[name], markersize=4.5, markerfacecolor="white")
        axes.plot(q[-1:], v[-1:], "o", color=shades[name], markersize=4.5)
        shown.append((q, v))
    if (calm := calm_range(q for q, _ in shown)) is not None:
        axes.set_xlim(*_with_margin(np.array(calm[:2])))
    if (calm := calm_range(v for _, v in shown)) is not None:
        axes.set_ylim(*_with_margin(np.array(calm[:2])))
    symbols = (names[0], f"der({names[0]})") if len(names) == 1 else ("q", "v")
    axes.set_xlabel(axis_label(symbols[0], trajectory.units.get(f"q.{names[0]}", "")))
    axes.set_ylabel(axis_label(symbols[1], trajectory.units.get(f"v.{names[0]}", "")))
    axes.margins(0.08)


def name_beside(axes: "Axes", shades: dict[str, str]) -> None:
    """Lists the names in their colours at the right of the panel."""
    names = chosen(shades)
    for line, name in enumerate(names):
        _beside(axes, line, name, shades[name])
    if len(names) < len(shades):
        _beside(axes, len(names), f"and {len(shades) - len(names)} more", QUIET)


def _beside(axes: "Axes", line: int, text: str, colour: str) -> None:
    axes.annotate(
        text, (1.0, 1.0), (6, -6 - 12 * line), xycoords="axes fraction", textcoords="offset points", color=colour,
        fontsize=8, va="center", annotation_clip=False, parse_math=False,
    )  # fmt: skip


def supports(lines: Iterable[Array]) -> list[Array]:
    """The points of each polyline that never move, shape (points, 2 or 3); none if nothing moves at all.

    A polyline of one point is a mass, which needs no support.
    """
    lines = [points for points in lines if points.shape[1] > 1]
    reach = max((float(np.max(np.abs(points))) for points in lines), default=0.0)
    still = [np.max(np.ptp(points, axis=0), axis=-1) <= STILL * reach for points in lines]
    at_rest = all(rests.all() for rests in still)
    return [] if at_rest else [points[0, rests] for points, rests in zip(lines, still, strict=True)]


def draw_supports(axes: "Axes", lines: Iterable[Array]) -> None:
    """Draws a small support under every point that never moves."""
    for points in supports(lines):
        axes.plot(*points.T, marker=6, linestyle="", color=INK, markersize=9, zorder=2.5)


def draw_directions(axes: "Axes", matrix: Array, cloud: Array) -> Array:
    """Draws the directions of space with a length to compare with, instead of axes that paper does not have.

    They stand below and left of the points `cloud`, shape (points, 2); returns their ends, in the same shape.
    """
    low = np.min(cloud, axis=0)
    wanted = 0.2 * float(np.max(np.ptp(cloud, axis=0))) or 1.0
    power = 10.0 ** np.floor(np.log10(wanted))
    length = power * max(step for step in (1.0, 2.0, 5.0) if step * power <= wanted)
    corner = low - np.array([1.0, 0.3]) * length
    tips = corner + length * matrix.T
    for name, direction, tip in zip("xyz", matrix.T, tips, strict=True):
        axes.plot(*np.transpose([corner, tip]), color=QUIET, linewidth=1.0, zorder=1.0)
        axes.annotate(name, tip, 6 * direction, textcoords="offset points", color=QUIET, ha="center", va="center")
    axes.annotate(
        f"each {length:g} m",
        corner,
        (0, -10),
        textcoords="offset points",
        color=QUIET,
        fontsize=8,
        ha="center",
        va="top",
    )
    return np.vstack([corner, tips])
