"""Draws the timing of a run on drives: stages, first stop, lateness of its ticks, age of its samples, events."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from servoctl.report.scales import SPREAD, histogram_edges
from servoctl.report.style import INK, PALETTE, QUIET, colours, draw_lines, drawable, time_axis
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STOPS = ("stop", "disable")  # reactions that end the motion
TASK = "full"  # name of the stage in which the task runs
BANDS = {"ramp": "#F4F1E6", TASK: "#E9F2EA", "stopping": "#F8E3DC"}  # stage -> colour of its band
NAMED = 0.08  # a band shows its name if it is at least this share of the time axis


def stage_spans(trajectory: Trajectory) -> list[tuple[float, float, str]]:
    """Begin [s], end [s] and name of every stage of the run; empty if it has none."""
    names = trajectory.metadata.get("stages", [])
    if "stage" not in trajectory.columns or not names or len(trajectory) < 2:
        return []
    codes, t = np.asarray(trajectory["stage"], dtype=int), trajectory.t
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    ends = [*t[first[1:]], t[-1]]
    return [(float(t[i]), float(end), str(names[codes[i]])) for i, end in zip(first, ends, strict=True)]


def of_task(trajectory: Trajectory, x: Array) -> Array:
    """The values while the task ran, NaN before and after; all values if the run has no stages."""
    names = trajectory.metadata.get("stages", [])
    if "stage" not in trajectory.columns or TASK not in names:
        return x
    return np.where(trajectory["stage"] == names.index(TASK), x, np.nan)


def first_stop(trajectory: Trajectory) -> dict[str, Any] | None:
    """The first event that ended the motion; None: there is none."""
    events = trajectory.metadata.get("events", [])
    return next((event for event in events if event.get("reaction") in STOPS), None)


def shade_stages(axes: "Axes", trajectory: Trajectory) -> None:
    """Draws the bands, their names if there is room, and the first stop."""
    spans = stage_spans(trajectory)
    if not spans:
        return
    duration = spans[-1][1] - spans[0][0]
    for begin, end, name in spans:
        if name not in BANDS:
            continue
        axes.axvspan(begin, end, color=BANDS[name], linewidth=0, zorder=0, gid=f"stage {name}")
        if end - begin >= NAMED * duration:
            axes.text(
                (begin + end) / 2, 0.9, name, transform=axes.get_xaxis_transform(), ha="center", va="top",
                fontsize=7, color=QUIET,
            )  # fmt: skip
    stop = first_stop(trajectory)
    if stop is not None:
        axes.axvline(float(stop["t"]), color=PALETTE[1], linewidth=1.0, zorder=3, gid="first stop")


MARKS = 40  # largest number of marked events; stops take precedence

BINS = 60


def timing_groups(trajectory: Trajectory) -> dict[str, dict[str, Array]]:
    """Timing columns of a run: title -> name -> values [s], NaN when the drives are off at its end."""
    late = {"lateness": trajectory["lateness"]} if "lateness" in trajectory.columns else {}
    groups = {"Lateness": late, "Age of the samples": trajectory.group("age")}
    of_loop = {
        title: {name: np.where(trajectory.in_loop, x, np.nan) for name, x in lines.items()}
        for title, lines in groups.items()
    }
    known = {title: {name: x for name, x in lines.items() if np.isfinite(x).any()} for title, lines in of_loop.items()}
    return {title: lines for title, lines in known.items() if lines}


def draw_timing(figure: "Figure", trajectory: Trajectory) -> None:
    """Draws lateness and sample ages [ms] as histograms and over time, with marks at the events."""
    groups = timing_groups(trajectory)
    grid = figure.add_gridspec(len(groups), 2, width_ratios=[1, 2.4])
    for i, (title, group) in enumerate(groups.items()):
        lines, shades = {name: 1e3 * drawable(x) for name, x in group.items()}, colours(group)
        label = f"{'lateness' if title == 'Lateness' else 'age'} [ms]"
        counted, axes = (figure.add_subplot(grid[i, column]) for column in (0, 1))
        _count(counted, lines, shades)
        counted.set_title(title)
        counted.set_xlabel(label)
        draw_lines(axes, trajectory.t, lines, shades)
        for line in axes.get_lines():
            line.set_linewidth(0.7)
        axes.set_ylabel(label)
        time_axis(axes, trajectory.t)
        shade_stages(axes, trajectory)
        _mark(axes, trajectory, named=i == 0)


def _count(axes: "Axes", lines: dict[str, Array], shades: dict[str, str]) -> None:
    """Draws a histogram of ticks on a logarithmic axis, since rare values matter most."""
    values = {name: x[np.isfinite(x)] for name, x in lines.items()}
    edges = histogram_edges(np.concatenate(list(values.values())), BINS, 1e3 * SPREAD)
    for name, x in values.items():
        axes.stairs(np.histogram(x, edges)[0], edges, color=shades[name], fill=len(values) == 1)
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bottom=0.5)
    axes.set_ylabel("ticks")


def _mark(axes: "Axes", trajectory: Trajectory, named: bool) -> None:
    """Draws a line at every event; stops are red, and the title names the first one.

    Changes of stage get no line if the stages are bands.
    """
    banded = bool(stage_spans(trajectory))
    events: list[dict[str, Any]] = trajectory.metadata.get("events", [])
    events = [event for event in events if not (banded and event.get("event") == "stage")]
    stops = [event for event in events if event.get("reaction") in STOPS]
    others = [event for event in events if event.get("reaction") not in STOPS][: max(0, MARKS - len(stops))]
    for group, colour in ((others, QUIET), (stops[:MARKS], PALETTE[1])):
        times = [float(event["t"]) for event in group]
        style: Literal["dotted", "solid"] = "dotted" if colour == QUIET else "solid"
        axes.vlines(times, 0.0, 1.0, colour, linestyles=style, transform=axes.get_xaxis_transform(), zorder=3)
    stop = first_stop(trajectory)
    if stop is not None and named:
        text = f"first stop at {stop['t']:.4g} s: {stop.get('text', '')}"
        axes.set_title(text, color=INK, fontweight="normal", parse_math=False)
