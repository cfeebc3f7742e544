"""Draws the path of a run: the mechanism if the plant has `links`, else velocities over coordinates."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from servoctl.report.scales import calm_range
from servoctl.report.style import INK, QUIET, axis_label, blend, chosen, colours, drawable
from servoctl.run_folder.trajectory import Trajectory, group, traced
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTANTS = 8  # number of poses of the mechanism in one picture
POINTS = 4000  # largest number of points of a curve
JOINTS = 10  # largest number of points of a polyline whose joints are drawn; one with more is a spring
STILL = 1e-5  # share of the drawing's size by which a support may drift; that of a mechanism's constraints does
AZIMUTH, ELEVATION = np.radians(-60.0), np.radians(25.0)  # [rad] view direction of a drawing in space


class PaperProjection(NamedTuple):
    """The projection of a drawing onto paper."""

    matrix: Array  # shape (2, dimensions): `(right, up) = matrix @ point`
    labels: tuple[str, str] | None  # labels of the two axes; None: they are no axes of space


def frames(trajectory: Trajectory) -> tuple[Array, dict[str, Array]]:
    """Times [s] and polylines [m] of at most `POINTS` frames, only finite ones; empty without a drawing."""
    index = drawn_frames(trajectory)
    if not len(index):
        return np.empty(0), {}
    drawing = trajectory.drawing
    return drawing["t"][index], {name: drawable(points[index]) for name, points in _polylines(trajectory).items()}


def drawn_frames(trajectory: Trajectory) -> Array:
    """Indices of at most `POINTS` frames whose polylines are finite."""
    lines, t = _polylines(trajectory), trajectory.drawing.get("t", np.empty(0))
    if not lines or not len(t):
        return np.empty(0, dtype=int)
    index = np.unique(np.linspace(0, len(t) - 1, POINTS).round().astype(int))
    finite = np.all([np.isfinite(drawable(points[index])).all(axis=(1, 2)) for points in lines.values()], axis=0)
    return index[finite]


def _polylines(trajectory: Trajectory) -> dict[str, Array]:
    return {name: points for name, points in trajectory.drawing.items() if points.ndim == 3}


def task_paths(trajectory: Trajectory) -> dict[str, Array]:
    """Polyline -> path that the task prescribes for its end [m], shape (points, 2 or 3); empty if there is none."""
    return {name: drawable(points) for name, points in group(trajectory.drawing, "task").items() if points.ndim == 2}


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


def draw_mechanism(axes: "Axes", trajectory: Trajectory, surface: Array) -> None:
    """Draws the mechanism at several instants, from light to dark, and the paths of its ends.

    Args:
        surface: Corners of a robot's surfaces on paper, shape (corners, 2). With them it needs no supports, and the
            directions of space stand beside them.
    """
    t, lines = frames(trajectory)
    projection = view(lines)
    paper = {name: points @ projection.matrix[:, : points.shape[-1]].T for name, points in lines.items()}
    count, frame_count = calm_frames(paper), len(t)
    t, paper = t[:count], {name: points[:count] for name, points in paper.items()}
    instants = np.unique(np.searchsorted(t, np.linspace(t[0], t[-1], INSTANTS)).clip(0, len(t) - 1))
    shades = colours(paper)
    for name, points in paper.items():
        end = traced(points)
        if np.max(np.ptp(end, axis=0)) > 0:
            axes.plot(*end.T, color=shades[name], linewidth=0.9, alpha=0.55, zorder=2.0, gid=f"{name} trace")
    draw_task(axes, trajectory, projection.matrix)
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
    then = ", then it runs away" if count < frame_count else ""
    axes.set_title(f"Path (light to dark: t = {t[0]:.3g} to {t[-1]:.3g} s{then})")
    name_beside(axes, shades)


def line_style(points: Array) -> str:
    """Matplotlib's format for a polyline: dots for joints, and a line where there are several points."""
    return "o" if points.shape[1] == 1 else "o-" if points.shape[1] <= JOINTS else "-"


def draw_task(axes: "Axes", trajectory: Trajectory, matrix: Array) -> None:
    """Draws the path that the task prescribes, dotted."""
    for curve in task_paths(trajectory).values():
        paper = curve @ matrix[:, : curve.shape[-1]].T
        axes.plot(*paper.T, ":", color=INK, linewidth=0.9, zorder=1.9, gid="task")


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
