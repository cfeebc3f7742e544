"""Writes the animation of a run: a GIF, or an MP4 film if ffmpeg is installed."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.errors import MissingPackageError, RunFolderError
from servoctl.report.path import calm_frames, draw_stands, draw_task, frames, view
from servoctl.report.shapes import (
    OWN,
    STRONG,
    FacePainter,
    draw_fixed,
    fixed_outlines,
    frame_axes,
    moving_shapes,
    outline,
    patch,
    solids,
)
from servoctl.report.style import QUIET, blank, colours, drawing_style
from servoctl.run_folder.files import unwritable
from servoctl.run_folder.trajectory import Trajectory, traced
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

RATE = 25  # [Hz] frame rate of a film

MOST = {".gif": 250, ".mp4": 750}
"""Largest number of frames; a longer run is shown faster, and the film shows the factor."""

SIZE, DPI = (6.4, 4.8), 110  # size [in] and resolution of a frame


def film(trajectory: Trajectory, path: Path) -> Path:
    """Writes the animation of the mechanism.

    Args:
        path: The file, `.gif` or `.mp4`; its folder is created if it is missing.

    Returns:
        The file.

    Raises:
        RunFolderError: The run has no drawing, or the file cannot be written.
        MissingPackageError: The file is an MP4 film, and ffmpeg is not installed.
    """
    t, _ = frames(trajectory)
    if not len(t):
        raise RunFolderError(f"{path}: the run has no drawing to animate (give the plant `links`, and run it again)")
    encode = _encode_gif if path.suffix == ".gif" else _encode_mp4
    if encode is _encode_mp4 and shutil.which("ffmpeg") is None:
        raise MissingPackageError(f"{path}: ffmpeg is not installed (`apt install ffmpeg` on Debian, or use --gif)")
    shown = np.linspace(t[0], t[-1], int(np.clip(RATE * (t[-1] - t[0]), 2, MOST[path.suffix])))
    part = path.with_name(f".{path.stem}.part{path.suffix}")  # renamed when complete
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        encode(images(trajectory, shown), part)
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return path


def images(trajectory: Trajectory, shown: Array) -> Iterator[Array]:
    """Yields one image per instant, shape (height, width, 4); the background is drawn only once."""
    t, lines = frames(trajectory)
    speed = (t[-1] - t[0]) * RATE / len(shown)
    faster = f"   {speed:.3g}×" if abs(speed - 1) > 0.05 else ""
    with drawing_style():
        canvas, axes = _scene(trajectory)
        pose = _Robots(axes, t, trajectory) if solids(trajectory) else _MovingLines(axes, t, lines)
        shapes, holding = _Shapes(axes, t, trajectory), _Holding(axes, trajectory)
        clock = axes.text(1, 1.02, "", fontsize=9, color=QUIET, ha="right", transform=axes.transAxes)
        canvas.draw()
        background = canvas.copy_from_bbox(canvas.figure.bbox)
        for instant in shown:
            canvas.restore_region(background)
            clock.set_text(f"t = {instant:.2f} s{faster}")
            for artist in (*holding.at(instant), *pose.at(instant), *shapes.at(instant), clock):
                axes.draw_artist(artist)
            yield np.array(canvas.buffer_rgba())


def _encode_gif(images: Iterator[Array], path: Path) -> None:
    from PIL import Image

    first, *rest = (Image.fromarray(image).convert("RGB").quantize(64) for image in images)
    first.save(path, save_all=True, append_images=rest, duration=1000 // RATE, loop=0)


def _encode_mp4(images: Iterator[Array], path: Path) -> None:
    height, width = (int(side * DPI) for side in reversed(SIZE))
    raw = ["-f", "rawvideo", "-pix_fmt", "rgba", "-s", f"{width}x{height}", "-r", str(RATE), "-i", "-"]
    command = ["ffmpeg", "-y", "-loglevel", "error", *raw, "-pix_fmt", "yuv420p", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError):  # ffmpeg ended early; its error is read below
            for image in images:
                process.stdin.write(image.tobytes())
            process.stdin.close()
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise OSError(f"ffmpeg: {message.splitlines()[-1] if message else process.returncode}")


def _scene(trajectory: Trajectory) -> tuple[Any, "Axes"]:
    """The background on a canvas: supports, the path of the task, and axes wide enough for all instants."""
    _, lines = frames(trajectory)
    projection = view(lines)
    paper = {name: points @ projection.matrix[:, : points.shape[-1]].T for name, points in lines.items()}
    drawn = blank(*SIZE, dpi=DPI)
    axes = drawn.add_subplot()
    axes.set_title(str(trajectory.metadata.get("config") or ""), parse_math=False)
    parts = solids(trajectory)
    if not parts:
        draw_stands(axes, list(paper.values()))
    draw_task(axes, trajectory, projection.matrix)
    matrix, moving = projection.matrix, moving_shapes(trajectory)
    draw_fixed(axes, trajectory, matrix)
    count = calm_frames(paper)
    instants = range(0, count, -(-count // 20))
    corners = np.concatenate(
        [
            *(points[:count].reshape(-1, 2) for points in paper.values()),
            *(part.at(i) @ matrix.T for part in parts.values() for i in instants),
            *(each.corners for each in fixed_outlines(trajectory, matrix)),
            *(outline(shape[i], matrix) for shape in moving.values() for i in instants),
        ]
    )
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = 0.08 * max(float(np.max(high - low)), 1e-9)
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    axes.set_aspect("equal")
    if projection.labels is None:
        axes.set_axis_off()
    else:
        axes.set_xlabel(projection.labels[0])
        axes.set_ylabel(projection.labels[1])
    return drawn.canvas, axes


class _MovingLines:
    """The moving lines."""

    def __init__(self, axes: "Axes", t: Array, lines: dict[str, Array]) -> None:
        self._t = t
        matrix = view(lines).matrix
        self._paper = {name: points @ matrix[:, : points.shape[-1]].T for name, points in lines.items()}
        shades = colours(self._paper)
        self._traces, self._lines = {}, {}
        for name, points in self._paper.items():
            (self._traces[name],) = axes.plot([], [], color=shades[name], linewidth=0.9, alpha=0.6, animated=True)
            (self._lines[name],) = axes.plot(
                [], [], "o-" if points.shape[1] > 1 else "o", color=shades[name], linewidth=2.2, markersize=4.5,
                markerfacecolor="white" if points.shape[1] > 1 else shades[name], markeredgewidth=1.2, animated=True,
            )  # fmt: skip

    def at(self, instant: float) -> list["Artist"]:
        """The lines in the frame nearest to a time [s]."""
        i = int(np.argmin(np.abs(self._t - instant)))
        for name, points in self._paper.items():
            self._lines[name].set_data(*points[i].T)
            self._traces[name].set_data(*traced(points)[: i + 1].T)
        return [*self._traces.values(), *self._lines.values()]


class _Robots:
    """Moving surfaces, with traces and axes of the task's frames."""

    def __init__(self, axes: "Axes", t: Array, trajectory: Trajectory) -> None:
        _, lines = frames(trajectory)
        self._t, self._axes, matrix = t, axes, view(lines).matrix
        self._painter = FacePainter(solids(trajectory), matrix)
        self._faces = self._painter.collection(0, zorder=2.8, animated=True)
        axes.add_collection(self._faces, autolim=False)
        ends = {name: pose[:, 9:] for name, pose in frame_axes(trajectory).items()}
        ends = ends or {name: traced(points) for name, points in lines.items()}
        self._ends = {name: points @ matrix.T for name, points in ends.items()}
        shades = colours(self._ends)
        self._traces = {
            name: axes.plot([], [], color=shades[name], linewidth=0.9, alpha=0.8, animated=True)[0] for name in ends
        }

    def at(self, instant: float) -> list["Artist"]:
        """The artists in the frame nearest to a time [s]."""
        i = int(np.argmin(np.abs(self._t - instant)))
        polygons, shades = self._painter.faces(i)
        self._faces.set_verts(list(polygons))
        self._faces.set_facecolor(list(shades))
        for name, points in self._ends.items():
            self._traces[name].set_data(*points[: i + 1].T)
        return [self._faces, *self._traces.values()]


class _Shapes:
    """Moving spheres and capsules."""

    def __init__(self, axes: "Axes", t: Array, trajectory: Trajectory) -> None:
        _, lines = frames(trajectory)
        self._t, self._matrix = t, view(lines).matrix
        self._shapes = list(moving_shapes(trajectory).values())
        self._drawn = [patch(shape[0], self._matrix, OWN, 3.2, animated=True) for shape in self._shapes]
        for drawn in self._drawn:
            axes.add_patch(drawn)

    def at(self, instant: float) -> list["Artist"]:
        """The outlines in the frame nearest to a time [s]."""
        i = int(np.argmin(np.abs(self._t - instant)))
        for drawn, shape in zip(self._drawn, self._shapes, strict=True):
            drawn.set_xy(outline(shape[i], self._matrix))
        return list(self._drawn)


class _Holding:
    """What bounds keep the machine away from, drawn strong while they hold the inputs."""

    def __init__(self, axes: "Axes", trajectory: Trajectory) -> None:
        self._times, self._before = trajectory.t, -np.inf
        active = trajectory.group("bound_active")
        self._drawn = []
        for each in fixed_outlines(trajectory, view(frames(trajectory)[1]).matrix):
            held = [active[name] > 0.5 for name in each.bounds if name in active]
            self._drawn.append((axes.add_patch(each.patch(STRONG, animated=True)), np.any(held, axis=0)))

    def at(self, instant: float) -> list["Artist"]:
        """Those whose bound held at a row since the last call."""
        first, end = np.searchsorted(self._times, (self._before, instant), "right")
        self._before = instant
        return [drawn for drawn, held in self._drawn if np.any(held) and held[max(first, 0) : end].any()]
