"""Marks the stages of a run on drives as bands behind the lines, and its first stop as a red line."""

from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.report.style import PALETTE, QUIET
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
