"""Draws the timing of a run on drives: lateness of its ticks, age of its samples, and its events."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from servoctl.report.panels import time_axis
from servoctl.report.scales import SPREAD, histogram_edges
from servoctl.report.stages import STOPS, first_stop, shade_stages, stage_spans
from servoctl.report.style import INK, PALETTE, QUIET, colours, draw_lines, drawable
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = 40  # largest number of marked events; stops take precedence

BINS = 60


def timing_groups(trajectory: Trajectory) -> dict[str, dict[str, Array]]:
    """Timing columns of a run: title -> name -> values [s]."""
    late = {"lateness": trajectory["lateness"]} if "lateness" in trajectory.columns else {}
    groups = {"Lateness": late, "Age of the samples": trajectory.group("age")}
    known = {title: {name: x for name, x in lines.items() if np.isfinite(x).any()} for title, lines in groups.items()}
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
