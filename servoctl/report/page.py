"""Writes one self-contained page about one or several runs: animation, plots, tables. It needs no network or server.

Design: Python packs numbers and texts; the files in `web/` decide how they look and are joined here into one file.
"""

import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from servoctl.report.mechanism import Mechanism, calm_frames, supports
from servoctl.report.source import Blob, RunSource, bucket, names_of, read, thinned
from servoctl.report.timing import STOPS, TASK, stage_spans
from servoctl.run_folder.files import write_files
from servoctl.run_folder.metrics import TASK_METRICS
from servoctl.run_folder.trajectory import funnel_curves, group
from servoctl.run_folder.values import plain
from servoctl.types import Array, Status
from servoctl.version import VERSION

PAGE = "report.html"

FLOOR = 1e-17  # least value on a logarithmic axis: below the rounding error of numbers near 1

POINTS = 4000  # largest number of values per line
NUMBERS = 550_000  # approximate number of values in all lines of a page; all drawings get half as many more

SHEETS = ("uPlot.min.css", "style.css", "page.css")
SCRIPTS = (
    "uPlot.iife.min.js", "scales.js", "plots.js", "data.js", "solids.js", "shapes.js", "scene.js", "player.js",
    "panels.js", "tables.js", "page.js",
)  # fmt: skip


def write(folders: Sequence[str | PathLike[str]], path: str | PathLike[str]) -> Path:
    """Writes the page of these runs.

    Args:
        folders: Run folders; several runs are drawn over each other.
        path: The file; its folder is created if it is missing.

    Returns:
        The file.

    Raises:
        RunFolderError: A folder cannot be read, or the file cannot be written.
    """
    path = Path(path)
    text = page([read(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)])
    write_files(path.parent, [(path.name, text.encode())])
    return path


def page(sources: Sequence[RunSource]) -> str:
    """The HTML text of the page."""
    blob = Blob()
    share = NUMBERS // len(sources)
    content = {
        "servoctl": VERSION,
        "floor": FLOOR,
        "task_stage": TASK,
        "task_metrics": [[metric.name, metric.head] for metric in TASK_METRICS],
        "statuses": [[status.name, status.value] for status in Status],
        "runs": [_run(source, blob, share) for source in sources],
    }
    parts = {
        "title": html.escape(", ".join(source.name for source in sources)),
        "style": "\n".join(map(web, SHEETS)),
        "script": "\n".join(map(web, SCRIPTS)),
        # `<` is escaped, so that no text of a run can close the script element
        "content": json.dumps(plain(content), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "numbers": blob.text(),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], web("page.html"))


def web(name: str) -> str:
    """The text of a file in `web/`."""
    return (resources.files("servoctl.report") / "web" / name).read_text(encoding="utf-8")


def _run(source: RunSource, blob: Blob, share: int) -> dict[str, Any]:
    run = source.trajectory
    points = int(np.clip(share // max(len(run.columns), 1), 200, POINTS))
    shown = {name: x for name, x in run.columns.items() if not name.startswith("violation_rate.")}
    for name in {"rank", "passive_rank", "residual", "pivot_min", "status"} & set(shown):
        shown[name] = np.where(run.commanded, shown[name], np.nan)  # of the law, where there was one
        if not np.isfinite(shown[name]).any():
            del shown[name]
    for row, curve in funnel_curves(run).items():
        shown |= {f"funnel.{row}": curve.beta, f"funnel_width.{row}": curve.width}
    columns = {name: blob.add(thinned(x, points, ends=name == "t"), double=name == "t") for name, x in shown.items()}
    return {
        "name": source.name,
        "rows": source.rows,
        "bucket": bucket(source.rows, points),
        "columns": columns,
        "units": {name: unit for name, unit in run.units.items() if name in columns},
        "tasks": run.tasks,
        "summary": source.summary,
        "config": source.config,
        "events": [event | {"alarming": _alarming(event)} for event in source.events],
        "stages": stage_spans(run),
        "limits": source.limits,
        "lacks": source.lacks,
        "counts": {name: [blob.add(x, double=True) for x in pair] for name, pair in source.counts.items()},
        "buses": {
            name: {"t": blob.add(t, double=True), "x": blob.add(used), "most": most}
            for name, (t, used, most) in source.buses.items()
        },
        "drawing": _drawing(source, blob, share // 2),
        "energy": _energy(source, blob),
    }


def _alarming(event: dict[str, Any]) -> bool:
    """Whether an event ends the motion, or says that a drive may be on."""
    return event.get("reaction") in STOPS or event.get("event") == "not_confirmed"


def _drawing(source: RunSource, blob: Blob, share: int) -> dict[str, Any] | None:
    """The frames, thinned evenly if there are many, with the path of one point per polyline."""
    machine = Mechanism(source.trajectory)
    t, lines, parts = machine.t, machine.lines, machine.solids
    if not len(t):
        return None
    fixed = [group(machine.drawing, kind) for kind in ("obstacle", "enclosure")]
    per_frame = sum(points[0].size for points in lines.values()) + 12 * (len(parts) + len(machine.axes))
    chosen = np.unique(np.linspace(0, len(t) - 1, max(2, min(len(t), share // per_frame))).round().astype(int))
    return {
        "t": blob.add(t[chosen], double=True),
        "calm": calm_frames({name: points[chosen] for name, points in lines.items()}),
        "ground": [point for points in supports(lines.values()) for point in points],
        "lines": {name: blob.add(points[chosen]) for name, points in lines.items()},
        "traces": {name: blob.add(_moving_path(path[chosen])) for name, path in machine.traces.items()},
        "task": {name: blob.add(points) for name, points in machine.task.items()},
        "axes": {name: blob.add(pose[chosen]) for name, pose in machine.axes.items()},
        "shapes": {name: blob.add(shape[chosen]) for name, shape in machine.shapes.items()},
        "obstacles": list(fixed[0].values()),
        "enclosures": list(fixed[1].values()),
        "names": [list(of) for of in fixed],
        "solids": {
            name: {"points": blob.add(part.points), "faces": blob.add(part.faces), "pose": blob.add(part.pose[chosen])}
            for name, part in parts.items()
        },
    }


def _moving_path(path: Array) -> Array:
    """The path; empty if the point does not move."""
    return path if np.max(np.ptp(path, axis=0)) > 1e-6 * max(1e-9, np.max(np.abs(path))) else path[:0]


def _energy(source: RunSource, blob: Blob) -> dict[str, Any] | None:
    drawing = source.trajectory.drawing
    if "energy" not in drawing or "t" not in drawing:
        return None
    return {"t": blob.add(drawing["t"], double=True), "x": blob.add(drawing["energy"])}
