"""Pictures of a run, drawn from its trajectory only.

Design: a figure is drawn and laid out first; then each line is labelled at its end, because labels must be spread over
a height that only the layout decides. A picture leaves out quantities that the run does not have.
"""

from collections.abc import Callable, Iterable, Sized
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from servoctl.errors import RunFolderError
from servoctl.report.mechanism import Mechanism, draw_mechanism, draw_phase, name_beside
from servoctl.report.panels import by_unit, draw_bounds, draw_group, draw_violations, violation_rows
from servoctl.report.style import DPI, QUIET, blank, chosen, colours, drawing_style, name_all_lines, write
from servoctl.report.timing import draw_timing, first_stop, timing_groups
from servoctl.run_folder.files import unwritable
from servoctl.run_folder.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

__all__ = ["DPI", "FIGURES", "figure", "gives", "plot", "report", "save"]

PRINTED = 7.16  # [in] width of a figure over two printed columns
SMALL_MULTIPLES = 12  # largest number of phase portraits in one figure


def report(
    trajectory: Trajectory,
    out: str | PathLike[str],
    kind: Literal["png", "pdf"] = "png",
    names: Iterable[str] | None = None,
) -> list[Path]:
    """Writes every picture that the run has data for, as `<name>.<kind>`.

    Args:
        trajectory: The run; without rows there are no pictures.
        out: Output folder; created if it is missing.
        kind: `pdf`: vectors, in print size.
        names: Names from `FIGURES`; None: all of them.

    Returns:
        The files, in the order of the names.

    Raises:
        RunFolderError: A file cannot be written.
    """
    width = PRINTED if kind == "pdf" else None
    drawable_names = [name for name in names or FIGURES if gives(trajectory, name)]
    return [save(figure(trajectory, name, width), Path(out) / f"{name}.{kind}") for name in drawable_names]


def plot(trajectory: Trajectory, path: str | PathLike[str] | None = None) -> "Figure":
    """The overview of a run as a matplotlib figure.

    Args:
        trajectory: The run.
        path: Where to write it, `.png` or `.pdf`; None: it is not written.

    Raises:
        RunFolderError: The file cannot be written, or its name ends otherwise.
    """
    if path is not None and Path(path).suffix.lower() not in (".png", ".pdf"):
        raise RunFolderError(f"plot: {path}: expected a file name that ends in .png or .pdf")
    overview = figure(trajectory, "overview")
    if path is not None:
        save(overview, Path(path))
    return overview


def figure(trajectory: Trajectory, name: str, width: float | None = None) -> "Figure":
    """One picture as a matplotlib figure without a window.

    Args:
        trajectory: The run.
        name: One of `FIGURES`.
        width: Width of the figure [in], which scales its height too; None: screen size.
    """
    with drawing_style():
        drawn = blank(10, 4.6, str(trajectory.metadata.get("config") or "run"))
        _write_facts(drawn, trajectory)
        if gives(trajectory, name):
            FIGURES[name].draw(drawn, trajectory)
        if width is not None:
            drawn.set_size_inches(width, width * drawn.get_figheight() / drawn.get_figwidth())
        name_all_lines(drawn)
    return drawn


def save(drawn: "Figure", path: Path) -> Path:
    """Writes a figure; its folder is created if it is missing.

    Raises:
        RunFolderError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with drawing_style():
            write(drawn, path)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def _write_facts(drawn: "Figure", trajectory: Trajectory) -> None:
    from matplotlib.transforms import ScaledTranslation

    metadata = trajectory.metadata
    facts = [f"{trajectory.t[-1] - trajectory.t[0]:.4g} s"] if len(trajectory.t) else []
    facts += [f"{len(trajectory):,} {'row' if len(trajectory) == 1 else 'rows'}".replace(",", " ")]
    facts += [f"engine {metadata['engine']}"] if metadata.get("engine") else []
    stop = first_stop(trajectory)
    facts += (
        [str(metadata["status"]) + (f" by {stop.get('text', '')}" if stop else "")] if metadata.get("status") else []
    )
    corner = drawn.transFigure + ScaledTranslation(-0.12, -0.14, drawn.dpi_scale_trans)  # in the line of the title
    drawn.text(1, 1, ", ".join(facts), ha="right", va="top", fontsize=8.5, color=QUIET, transform=corner)


def gives(trajectory: Trajectory, name: str) -> bool:
    """Whether the run has data for a picture, one of `FIGURES`."""
    return bool(FIGURES[name].data(trajectory))


class Picture(NamedTuple):
    """How a picture is drawn, and what it is drawn from: without any, a run does not have it."""

    draw: Callable[["Figure", Trajectory], None]
    data: Callable[[Trajectory], Sized] = lambda trajectory: trajectory.coordinates if len(trajectory) else ()


def _coordinates(drawn: "Figure", trajectory: Trajectory) -> None:
    drawn.set_size_inches(
        11, 4.6 if len({trajectory.units.get(f"q.{c}") for c in trajectory.coordinates}) == 1 else 6.6
    )
    grid = drawn.add_gridspec(1, 2)
    draw_group(drawn, grid[0], trajectory, "q", "Coordinates")
    draw_group(drawn, grid[1], trajectory, "v", "Velocities")


def _whole(draw: Callable[["Figure", "SubplotSpec", Trajectory], None]) -> Callable[["Figure", Trajectory], None]:
    """Draws one panel over a whole figure."""
    return lambda drawn, trajectory: draw(drawn, drawn.add_gridspec(1, 1)[0], trajectory)


def _timing(drawn: "Figure", trajectory: Trajectory) -> None:
    drawn.set_size_inches(11, 5.8)
    draw_timing(drawn, trajectory)


def _path(drawn: "Figure", trajectory: Trajectory) -> None:
    machine = Mechanism(trajectory)
    if len(machine.t):
        drawn.set_size_inches(8, 6.4)
        draw_mechanism(drawn.add_subplot(), machine)
        return
    names = trajectory.coordinates[:SMALL_MULTIPLES]
    across = min(len(names), 4 if len(names) > 6 else 3)
    down = -(-len(names) // across)
    drawn.set_size_inches(max(2.9 * across, 5.0), 2.5 * down + 0.6)
    shades = dict.fromkeys(names, colours(names[:1])[names[0]])
    for number, name in enumerate(names, 1):
        draw_phase(drawn.add_subplot(down, across, number), trajectory, [name], shades)
    if len(names) < len(trajectory.coordinates):
        drawn.supxlabel(f"and {len(trajectory.coordinates) - len(names)} more", color=QUIET, fontsize=8)


def _path_panel(drawn: "Figure", cell: "SubplotSpec", trajectory: Trajectory) -> None:
    axes, machine = drawn.add_subplot(cell), Mechanism(trajectory)
    if len(machine.t):
        draw_mechanism(axes, machine)
        return
    shades = colours(trajectory.coordinates)
    alike = next(iter(by_unit(trajectory, "q").values()))  # all names on an axis must have one unit
    draw_phase(axes, trajectory, chosen(alike), shades)
    axes.set_title("Path (ring: start, dot: end)")
    name_beside(axes, {name: shades[name] for name in alike})


def _overview(drawn: "Figure", trajectory: Trajectory) -> None:
    """Two by two panels; with three panels, the path takes the height of two."""
    panels: list[Callable[[SubplotSpec], None]] = [
        lambda cell: _path_panel(drawn, cell, trajectory),
        lambda cell: draw_group(drawn, cell, trajectory, "q", "Coordinates"),
    ]
    if gives(trajectory, "inputs"):
        panels.append(lambda cell: draw_group(drawn, cell, trajectory, "u", "Inputs"))
    if gives(trajectory, "violations"):
        panels.append(lambda cell: draw_violations(drawn, cell, trajectory))
    drawn.set_size_inches(11, 7.6 if len(panels) > 2 else 4.2)
    grid = drawn.add_gridspec(2 if len(panels) > 2 else 1, 2)
    cells = [grid[:, 0], grid[0, 1], grid[1, 1]] if len(panels) == 3 else [grid[i] for i in range(len(panels))]
    for draw, cell in zip(panels, cells, strict=True):
        draw(cell)


FIGURES = {
    "overview": Picture(_overview),
    "path": Picture(_path),
    "coordinates": Picture(_coordinates),
    "inputs": Picture(
        _whole(lambda drawn, cell, trajectory: draw_group(drawn, cell, trajectory, "u", "Inputs")),
        lambda trajectory: trajectory.actuators if len(trajectory) else (),
    ),
    "violations": Picture(_whole(draw_violations), violation_rows),
    "bounds": Picture(_whole(draw_bounds), lambda trajectory: trajectory.group("bound")),
    "timing": Picture(_timing, timing_groups),
}
"""Name of a picture -> picture."""
