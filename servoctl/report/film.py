"""Writes the animation of a run: a GIF, or an MP4 film if ffmpeg is installed."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.errors import MissingPackageError, RunFolderError
from servoctl.report.mechanism import (
    STRONG,
    FacePainter,
    Mechanism,
    draw_directions,
    draw_fixed,
    draw_supports,
    draw_task,
    fixed_patch,
    line_style,
    outline,
    patch,
)
from servoctl.report.style import QUIET, blank, colours, drawing_style
from servoctl.run_folder.files import unwritable
from servoctl.run_folder.trajectory import Trajectory
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
        MissingPackageError: The file is an MP4 film, and ffmpeg is not installed or fails.
    """
    t = Mechanism(trajectory).t
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
    machine = _MovingPicture(Mechanism(trajectory), trajectory)
    t = machine.of.t
    speed = (t[-1] - t[0]) * RATE / len(shown)
    faster = f"   {speed:.3g}×" if speed and abs(speed - 1) > 0.05 else ""
    with drawing_style():
        canvas, axes = _scene(trajectory, machine.of)
        canvas.draw()
        background, before = canvas.copy_from_bbox(canvas.figure.bbox), -np.inf
        for instant in shown:
            canvas.restore_region(background)
            clock = f"t = {instant:.2f} s{faster}"
            artists = machine.drawn(axes, before, instant)
            corner = {"ha": "right", "va": "top", "transform": canvas.figure.transFigure}
            artists.append(axes.text(0.98, 0.98, clock, fontsize=9, color=QUIET, **corner))
            for artist in artists:
                axes.draw_artist(artist)
                artist.remove()
            yield np.array(canvas.buffer_rgba())
            before = instant


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
        said = message.splitlines()[-1] if message else f"code {process.returncode}"
        raise MissingPackageError(f"ffmpeg: {said} (install a complete ffmpeg, or use --gif)")


class _MovingPicture:
    """What moves in the pictures of a run, on paper."""

    def __init__(self, machine: Mechanism, trajectory: Trajectory) -> None:
        self.of = machine
        self._painter = FacePainter(machine.solids, machine.view.matrix) if machine.solids else None
        self._traces = {name: machine.view.of(path) for name, path in machine.traces.items()}
        self._shades = colours(self._traces)
        self._rows, active = trajectory.t, trajectory.group("bound_active")
        self._held = [
            np.any([active[name] > 0.5 for name in each.bounds if name in active], axis=0) for each in machine.fixed
        ]

    def drawn(self, axes: "Axes", before: float, instant: float) -> list["Artist"]:
        """The artists in the frame nearest to an instant; bounds that held since the one before are drawn strong."""
        i, shades = int(np.argmin(np.abs(self.of.t - instant))), self._shades
        first, end = np.searchsorted(self._rows, (before, instant), "right")
        artists: list[Artist] = [
            axes.add_patch(fixed_patch(each, self.of.view.matrix, STRONG))
            for each, held in zip(self.of.fixed, self._held, strict=True)
            if np.any(held) and held[max(first, 0) : end].any()
        ]
        if self._painter is not None:
            artists.append(axes.add_collection(self._painter.collection(i, zorder=2.8), autolim=False))
        for name, path in self._traces.items():
            alpha = 0.6 if self._painter is None else 0.8
            artists += axes.plot(*path[: i + 1].T, color=shades[name], linewidth=0.9, alpha=alpha)
        for name, points in {} if self._painter else self.of.paper.items():
            several = points.shape[1] > 1
            artists += axes.plot(
                *points[i].T, line_style(points), color=shades[name], linewidth=2.2, markersize=4.5,
                markerfacecolor="white" if several else shades[name], markeredgewidth=1.2,
            )  # fmt: skip
        matrix, shapes = self.of.view.matrix, self.of.shapes.values()
        return artists + [axes.add_patch(patch(shape[i], matrix, zorder=3.2)) for shape in shapes]


def _scene(trajectory: Trajectory, machine: Mechanism) -> tuple[Any, "Axes"]:
    """The background on a canvas: supports, the path of the task, and axes wide enough for all instants."""
    drawn = blank(*SIZE, dpi=DPI)
    axes = drawn.add_subplot()
    name = str(trajectory.metadata.get("config") or "")
    drawn.suptitle(name, x=0.02, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    paper, (matrix, labels), count = machine.paper, machine.view, machine.calm
    if not machine.solids:
        draw_supports(axes, paper.values())
    draw_task(axes, machine)
    draw_fixed(axes, machine)
    instants = range(0, count, -(-count // 20))
    corners = np.concatenate(
        [
            *(points[:count].reshape(-1, 2) for points in paper.values()),
            *(machine.view.of(part.at(i)) for part in machine.solids.values() for i in instants),
            *(outline(each.shape, matrix) for each in machine.fixed),
            *(outline(shape[i], matrix) for shape in machine.shapes.values() for i in instants),
        ]
    )
    if labels is None:
        corners = np.vstack([corners, draw_directions(axes, matrix, corners)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = 0.08 * max(float(np.max(high - low)), 1e-9)
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    axes.set_aspect("equal")
    if labels is None:
        axes.set_axis_off()
    else:
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
    return drawn.canvas, axes
