"""Compares several runs: their metrics in one table, and their lines over each other.

Design: a run has the name of its folder. Quantities that only some runs have are shown for these runs. Runs that share
no task, input or coordinate are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.errors import RunFolderError
from servoctl.report import SMALL_MULTIPLES, save
from servoctl.report.page import names_of
from servoctl.report.panels import ROUND_OFF, leave_out_runaway
from servoctl.report.style import axis_label, blank, colours, draw_lines, drawing_style, name_all_lines
from servoctl.report.timing import of_task
from servoctl.run_folder import load_run
from servoctl.run_folder.metrics import TASK_METRICS, metric_of
from servoctl.run_folder.trajectory import Trajectory
from servoctl.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = {"violation": "Task error", "u": "Inputs", "q": "Coordinates"}
"""Group of columns (or `violation`: of tasks) -> title of its picture."""

LONGEST = 100  # [bytes] longest part of the folder's name that names a run: two of them fit in a file system's 255


def load_all(folders: Sequence[str | PathLike[str]]) -> dict[str, Trajectory]:
    """Name -> run; the names are the shortest distinct ends of the paths.

    Raises:
        RunFolderError: A folder cannot be read or is given twice, or the runs have nothing in common.
    """
    names = names_of(folders)
    if len(names) < 2:
        raise RunFolderError(f"{', '.join(map(str, folders))}: expected at least two runs to compare")
    runs = {name: load_run(folder) for name, folder in zip(names, folders, strict=True)}
    if empty := [name for name, run in runs.items() if not len(run)]:
        raise RunFolderError(f"{', '.join(empty)}: contains no rows (nothing can be compared)")
    if not any(len(having) > 1 for group in PICTURES for having in _lines(runs, group).values()):
        raise RunFolderError(
            f"{', '.join(map(str, folders))}: no task, input or coordinate occurs in two of them (compare runs of one "
            "plant or task)"
        )
    return runs


def metrics(runs: Mapping[str, Trajectory]) -> dict[str, list[Any]]:
    """Metric -> one value per run, None if a run does not have it."""
    tables = [_flat(run.summary()) for run in runs.values()]
    names = dict.fromkeys(name for table in tables for name in table)
    order = {"run": 0, "tasks": 1, "inputs": 2, "passive": 3}
    ordered = sorted(names, key=lambda name: order.get(name.split(".")[0], 0))
    return {name: [table.get(name) for table in tables] for name in ordered}


def units(runs: Mapping[str, Trajectory], names: Iterable[str]) -> list[str]:
    """Unit of each of these metrics, or those that differ in the order of the runs; empty if it has none."""
    known = {"duration": "s", "energy_drift": "J", "status": ""}
    known["residual_max"] = _distinct([run.units.get("residual", "") for run in runs.values()])
    found = []
    for name in names:
        group, _, rest = name.partition(".")
        row, _, key = rest.rpartition(".")
        if (metric := metric_of(key)) is not None and metric.unit == "s":
            known[name] = metric.unit
        of = [run.units.get(f"u.{row}", "") if group == "inputs" else run.unit_of(row) for run in runs.values()]
        found.append(known[name] if name in known else _distinct(of))
    return found


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name -> value, of the compared metrics of a summary."""
    flat = {name: summary.get(name) for name in ("status", "duration", "energy_drift", "residual_max")}
    for group in ("tasks", "passive"):
        for row, values in summary[group].items():
            flat |= {f"{group}.{row}.{metric.name}": values.get(metric.name) for metric in TASK_METRICS}
    for actuator, values in summary["inputs"].items():
        extremes = [abs(values[side]) for side in ("min", "max") if values[side] is not None]
        flat |= {f"inputs.{actuator}.rms": values["rms"], f"inputs.{actuator}.peak": max(extremes, default=None)}
    return {name: value for name, value in flat.items() if value is not None}


def beside(first: Path, names: Iterable[str]) -> Path:
    """Folder of its own for a comparison, beside its first run: `before_and_after`, `a_and_b_and_2_more`."""
    words = [name.replace("/", "_").encode()[:LONGEST].decode(errors="ignore") for name in names]
    more = [f"{len(words) - 2}_more"] if len(words) > 2 else []
    folder = first.parent if first.name not in ("", "..") else first.resolve().parent
    return folder / "_and_".join([*words[:2], *more])


def draw(runs: Mapping[str, Trajectory], out: str | PathLike[str]) -> list[Path]:
    """Writes `compare_<group>.png` for every group that has lines above round-off.

    Args:
        runs: Name -> run.
        out: Output folder; created if it is missing.

    Returns:
        The files.

    Raises:
        RunFolderError: A file cannot be written.
    """
    shown = [group for group in PICTURES if _panels(runs, group)[0]]
    return [save(overlay(runs, group), Path(out) / f"compare_{group}.png") for group in shown]


def overlay(runs: Mapping[str, Trajectory], group: str) -> "Figure":
    """One panel per task, input or coordinate, with one line per run.

    Args:
        runs: Name -> run.
        group: One of `PICTURES`.
    """
    (panels, exact), shades = _panels(runs, group), colours(runs)
    times = {name: _since_task(run) for name, run in runs.items()}
    label = "t [s]" if all(times[name] is run.t for name, run in runs.items()) else "t since the task began [s]"
    shown = list(panels)[:SMALL_MULTIPLES]
    across = 1 if len(shown) == 1 else 2
    down = -(-len(shown) // across)
    more = f" (and {len(panels) - len(shown)} more)" if len(shown) < len(panels) else ""
    more += f" ({exact} below 1e-9: round-off)" if exact else ""
    with drawing_style():
        drawn = blank(5.5 * across, 2.4 * down + 0.6, PICTURES[group] + more)
        for number, name in enumerate(shown, 1):
            axes = drawn.add_subplot(down, across, number)
            axes.set_title(name, parse_math=False)
            for run, x in panels[name].items():
                draw_lines(axes, times[run], {run: x}, shades)
            axes.margins(x=0.0)
            leave_out_runaway(axes, {run: (times[run], [x]) for run, x in panels[name].items()})
            axes.set_xlabel(label)
            axes.set_ylabel(axis_label("|error|" if group == "violation" else group, _unit(runs, group, name)))
        name_all_lines(drawn)
    return drawn


def _since_task(run: Trajectory) -> Array:
    """The time of each row; on drives, where the task waits for the stages before it, since the task began."""
    if "task_time" not in run.columns:
        return run.t
    task_time = run["task_time"]
    moving = np.flatnonzero(np.diff(task_time) > 0.0)
    since: Array = run.t - (run.t[moving[0]] - task_time[moving[0]] if len(moving) else 0.0)
    return since


def _lines(runs: Mapping[str, Trajectory], group: str) -> dict[str, dict[str, Array]]:
    """Task, input or coordinate -> run -> values, for the runs that have it."""
    lines: dict[str, dict[str, Array]] = {}
    for name, run in runs.items():
        for key, x in _of(run, group).items():
            if np.isfinite(x).any():
                lines.setdefault(key, {})[name] = x
    return lines


def _of(run: Trajectory, group: str) -> dict[str, Array]:
    if group != "violation":
        return run.group(group)
    rows = set(run.rows)
    return {name: of_task(run, run.violation(name)) for name, of in run.tasks.items() if of and rows.issuperset(of)}


def _panels(runs: Mapping[str, Trajectory], group: str) -> tuple[dict[str, dict[str, Array]], int]:
    """The lines to draw, and the number of tasks whose errors are round-off in every run."""
    lines = _lines(runs, group)
    shown = {
        name: of
        for name, of in lines.items()
        if group != "violation" or any(np.nanmax(x) >= ROUND_OFF for x in of.values())
    }
    return shown, len(lines) - len(shown)


def _unit(runs: Mapping[str, Trajectory], group: str, name: str) -> str:
    """The unit, or those that differ in the order of the runs; empty if none has one."""
    return _distinct(run.units.get(f"{group}.{name}", "") for run in runs.values())


def _distinct(units: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, units)))
