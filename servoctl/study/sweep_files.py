"""The folder of a sweep: the config, the table of all runs, the picture, the summary.

In the picture a star marks the best run, unless rounding alone tells the runs apart. Rings mark runs that were left out
in its search, because they are beyond a bound of `tune`, crosses mark runs that failed or were refused, squares those
that have no value, such as a settling time of a run that never settles; a line marks the stability limit of the gains.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from servoctl.report.scales import STILL, scale_of
from servoctl.report.style import INK, PALETTE, QUIET, blank, drawing_style, log_scale, show_scale, write
from servoctl.run_folder.files import Writer, save_study
from servoctl.run_folder.metrics import axis_title
from servoctl.study.points import Vary
from servoctl.study.sweep import Limit, Study
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patheffects import AbstractPathEffect


def draw(study: Study, metric: str, file: BinaryIO | None = None) -> "Figure":
    """The picture of a sweep, as a matplotlib figure without a window.

    Args:
        metric: The metric that is drawn.
        file: Where to write a PNG file; None: it is not written.

    Raises:
        OSError: The file cannot be written.
    """
    paths = study.paths
    with drawing_style():
        size = 6.4 if len(paths) < 3 else 3.6 * min(len(paths), 3), 4.6 if len(paths) < 4 else 7.2
        figure = blank(*size, f"{study.name}: {axis_title(metric, '')}")
        if len(paths) == 2:
            _draw_two(figure.add_subplot(), study, metric)
        else:
            down = -(-len(paths) // 3)
            for number, path in enumerate(paths, 1):
                _draw_one(figure.add_subplot(down, min(len(paths), 3), number), study, path, metric)
        if file is not None:
            write(figure, file)
    return figure


def _draw_two(axes: "Axes", study: Study, metric: str) -> None:
    """Draws a metric over two paths: the cells of a complete grid, or coloured points."""
    x, y = (study.numbers(path) for path in study.paths)
    values = np.where(study.done, study.numbers(metric), np.nan)
    scale = scale_of(values)
    known = np.isfinite(values)
    values = np.clip(values, scale.low, scale.high)  # the arrows of the colour bar show that values lie beyond
    shades: dict[str, Any] = {"norm": scale.kind, "clim": (scale.low, scale.high)} if known.any() else {}
    first, second = study.varies
    complete = len(values) == study.planned and min(first.count, second.count) > 1
    drawn: Any
    if study.sample == "grid" and complete:
        cells = np.where(known, values, np.nan).reshape(first.count, second.count).T
        drawn = axes.pcolormesh(_edges(first), _edges(second), np.ma.masked_invalid(cells), **shades)
    else:
        drawn = axes.scatter(x[known], y[known], c=values[known], s=22, **shades)
    for runs, look in _without_value(study, metric):
        axes.plot(x[runs], y[runs], **look)
    if first.log:
        log_scale(axes)
    if second.log:
        log_scale(axes, "y")
    for limit in study.limits:  # on the axes' final scales, since its label cuts a gap of its own width into the line
        _draw_limit(axes, study, limit)
    axes.set_xlabel(_label(study, study.paths[0]), parse_math=False)
    axes.set_ylabel(_label(study, study.paths[1]), parse_math=False)
    _mark_best(axes, study, metric, x, y)
    assert axes.figure is not None
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    axes.figure.colorbar(drawn, ax=axes, label=_label(study, metric), extend=extend[scale.below > 0, scale.above > 0])


def _edges(vary: Vary) -> Array:
    """Edges of the cells of a grid, halfway between its values (on a log scale, if it is one), shape (count + 1,)."""
    x = np.log(vary.line(vary.count)) if vary.log else vary.line(vary.count)
    middle = (x[1:] + x[:-1]) / 2
    edges = np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])
    return np.exp(edges) if vary.log else edges


def _draw_one(axes: "Axes", study: Study, path: str, metric: str) -> None:
    x, values = study.numbers(path), np.where(study.done, study.numbers(metric), np.nan)
    joined = len(study.paths) == 1 and study.sample == "grid"
    axes.plot(x, values, "o-" if joined else "o", color=PALETTE[0], markersize=4, linewidth=1.0)
    show_scale(axes, scale_of(values))
    if any(vary.log for vary in study.varies if vary.path == path):
        log_scale(axes)
    for runs, look in _without_value(study, metric):
        for number in x[runs]:
            axes.plot(number, 0.02, transform=axes.get_xaxis_transform(), **look)
    lines = [(limit.name, x) for limit in study.limits if [*limit.axes] == [path] for x in limit.crossings]
    for row, (name, crossing) in enumerate(lines):
        axes.axvline(crossing, color=INK, linewidth=1.2)
        axes.annotate(f"{name} {crossing:.4g}", (crossing, 1.0), (0, 2 + 10 * row), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha="center", color=INK, fontsize=8)  # fmt: skip
    _mark_best(axes, study, metric, x, values)
    axes.set_xlabel(_label(study, path), parse_math=False)
    axes.set_ylabel(_label(study, metric), color=QUIET, parse_math=False)


def _without_value(study: Study, metric: str) -> list[tuple[Array, dict[str, Any]]]:
    """The runs that failed, and those that lack the metric, each with its marker."""
    failed = {"marker": "x", "color": PALETTE[1], "markersize": 5, "linestyle": "none"}
    return [(~study.done, failed), (study.lacks(metric), failed | {"marker": "s", "color": QUIET, "fillstyle": "none"})]


def _label(study: Study, name: str) -> str:
    """A path or a metric in words, with its unit."""
    return axis_title(name, study.units.get(name, ""))


def _mark_best(axes: "Axes", study: Study, metric: str, x: Array, y: Array) -> None:
    beyond, said = list(study.beyond), []
    known = study.numbers(metric)[study.done & ~study.lacks(metric)]
    equal = len(known) > 1 and bool(np.ptp(known) <= STILL * max(1.0, np.abs(known).max()))
    for best in [] if equal else (study.within or study.ranking(metric))[:1]:
        axes.plot(x[best], y[best], "*", color=PALETTE[4], markersize=13)
        rings = "rings: left out, beyond a bound of tune" if study.within else "all are beyond a bound of tune"
        said = ["star: best run", *([rings] if beyond else [])]
    said += ["squares: no value"] if study.lacks(metric).any() else []
    axes.set_title("; ".join(said), loc="right", fontsize=8, fontweight="normal", color=QUIET)
    axes.plot(x[beyond], y[beyond], "o", color=PALETTE[4], markersize=5, fillstyle="none")


def _draw_limit(axes: "Axes", study: Study, limit: Limit) -> None:
    """Draws the stability limit as a labelled line over two paths."""
    x, y, growth = limit.over(study.varies)
    drawn = axes.contour(x, y, np.ma.masked_invalid(growth.T), levels=[1.0], colors=INK, linewidths=1.5)
    drawn.set_path_effects(_halo())
    longest = max(drawn.allsegs[0], key=len, default=())
    if not len(longest):  # the line lies among numbers that the config refuses
        return
    for label in axes.clabel(drawn, fmt=limit.name, fontsize=8, manual=[longest[len(longest) // 2]]):
        label.set_path_effects(_halo())


def _halo() -> "list[AbstractPathEffect]":
    """A white outline, which keeps ink legible on any colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3.0, foreground="white")]


TABLE, PICTURE = "sweep.parquet", "sweep.png"


def save(study: Study, folder: Path, metric: str) -> list[str]:
    """Writes `config.yaml`, `sweep.parquet`, `sweep.png` and, last, `summary.json`.

    Args:
        study: The sweep.
        folder: An existing folder; files of these names are replaced.
        metric: The metric in the picture.

    Returns:
        Names of the files, without `config.yaml`.

    Raises:
        RunFolderError: A file cannot be written. Each file is written in full or not at all.
    """
    files: dict[str, Writer] = {
        TABLE: lambda file: _write_table(study, file),
        PICTURE: lambda file: draw(study, metric, file),
    }
    return save_study(folder, study.config_text, study.summary(), files.items())


def _write_table(study: Study, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"run": pa.int64(), "status": pa.string(), "error": pa.string(), "engine": pa.string()}
    arrays = {name: pa.array(values, kinds.get(name, pa.float64())) for name, values in study.columns.items()}
    pq.write_table(pa.table(arrays), file)
