"""Writes one self-contained page about one or several runs: animation, plots, tables. It needs no network or server.

Design: Python packs numbers and texts; the files in `web/` decide how they look and are joined here into one file.

Design: a run of any length fits into memory, and missing files are reported. A long column is cut into buckets with
equal numbers of rows. Of each bucket the least and the greatest value are kept, in their order, at the times of its
first and last row. So no peak is lost, and all columns share one time axis. Values are stored in single precision,
times in double.
"""

import base64
import contextlib
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from servoctl.errors import RunFolderError
from servoctl.report.mechanism import Mechanism, calm_frames, supports
from servoctl.report.panels import input_limits, violation_rows
from servoctl.report.scales import histogram_edges, least_and_greatest
from servoctl.report.timing import STOPS, stage_spans
from servoctl.run_folder import load_run, read_summary
from servoctl.run_folder.files import CONFIG, DRAWING, STREAM, SUMMARY, TABLE, write_files
from servoctl.run_folder.metrics import TASK_METRICS, plain
from servoctl.run_folder.reader import decoded
from servoctl.run_folder.trajectory import SCHEMA, Trajectory, funnel_curves
from servoctl.types import Array, Status
from servoctl.version import VERSION

BINS = 80  # number of bars of a histogram


class Thinner:
    """Thins columns of equal length, one after the other.

    Args:
        points: Largest number of values that are kept of a column.
        wanted: Whether to keep a column, by its name.
        counted: Prefixes of the names of columns that get a histogram.
        loop_end: Time from which these columns have no values [s]: on drives, rows go on when the drives are off.
    """

    def __init__(
        self,
        points: int,
        wanted: Callable[[str], bool] = lambda name: True,
        counted: tuple[str, ...] = (),
        loop_end: float = np.inf,
    ) -> None:
        self._points, self._wanted, self._counted, self._loop_end = points, wanted, counted, loop_end
        self._ticks = np.inf  # number of rows before `loop_end`
        self.rows = 0  # number of rows of the last column
        self.counts: dict[str, tuple[Array, Array]] = {}  # column -> edges and counts of its histogram over all rows

    def __call__(self, name: str, x: Array) -> Array | None:
        """The values to keep of a column, shape (kept,); None: the column is left out."""
        self.rows = len(x)
        if not self._wanted(name):
            return None
        if name == "t":
            self._ticks = int(np.searchsorted(x, self._loop_end))
        if name.startswith(self._counted):
            x = np.where(np.arange(len(x)) < self._ticks, x, np.nan)
        if name.startswith(self._counted) and np.isfinite(x).any():
            known = x[np.isfinite(x)]
            edges = histogram_edges(known, BINS)
            self.counts[name] = edges, np.histogram(known, edges)[0]
        return thinned(x, self._points, ends=name == "t")


def bucket(rows: int, points: int) -> int:
    """Number of rows per bucket; 1: all rows are kept."""
    return 1 if rows <= points else -(-rows // max(points // 2, 1))


def thinned(x: Array, points: int, ends: bool = False) -> Array:
    """The least and the greatest value of every bucket of rows; a short column is returned unchanged.

    Args:
        x: Values, shape (rows,); a bucket without a number stays NaN.
        points: Largest number of values to keep.
        ends: Whether to keep the first and the last value of each bucket instead, as for times.
    """
    size = bucket(len(x), points)
    if size == 1:
        return x
    if not ends:
        return x[least_and_greatest(x, size)]
    first = np.arange(0, len(x), size)
    return x[np.minimum(np.stack([first, first + size - 1], axis=1).ravel(), len(x) - 1)]


class Blob:
    """Arrays in one block of bytes, little-endian, each aligned to 8 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, x: Array, double: bool = False) -> dict[str, Any]:
        """Appends an array.

        Returns:
            Its place, for the page: `at` [byte], `shape`, `double`.
        """
        array = np.asarray(x)
        with np.errstate(over="ignore"):  # a diverged run: infinite in single precision, which the page shows as a gap
            data = np.ascontiguousarray(array, dtype="<f8" if double else "<f4").tobytes()
        entry = {"at": self.size, "shape": list(array.shape), "double": double}
        data += bytes(-len(data) % 8)
        self._parts.append(data)
        self.size += len(data)
        return entry

    def text(self) -> str:
        """All bytes in base64."""
        return base64.b64encode(b"".join(self._parts)).decode("ascii")


READ = 20_000  # largest number of values of a column that are kept in memory

EVENTS = "events.jsonl"
MOST_EVENTS = 2000
OF_LAW = ("bound", "outside", "funnel")  # events that a run on drives finds at its end

GROUPS = (
    "q.", "v.", "u.", "violation.", "violation_rate.", "passive.", "passive_force.", "servo_force.", "age.",
    "disturbance.", "estimate.disturbance.", "estimate.sigma.", "bound.", "bound_active.",
)  # fmt: skip
SINGLE = ("t", "rank", "passive_rank", "residual", "pivot_min", "status", "stage", "lateness", "task_time")
"""Columns that the page shows."""


def names_of(folders: Sequence[str | PathLike[str]]) -> list[str]:
    """The shortest distinct ends of the paths.

    Raises:
        RunFolderError: A folder is given twice.
    """
    paths = [Path(folder).resolve() for folder in folders]
    for i, path in enumerate(paths):
        if path in paths[:i]:
            raise RunFolderError(f"{folders[i]}: given twice (give each run once)")
    length = 1
    while len({path.parts[-length:] for path in paths}) < len(paths):
        length += 1
    return ["/".join(path.parts[-length:]) for path in paths]


def _run(folder: Path, name: str, blob: Blob, share: int) -> dict[str, Any]:
    """The content of a run folder for the page, also of one that is incomplete; its numbers go into the blob.

    Args:
        name: Name of the run on the page.
        share: Number of values that its lines may take, about.

    Raises:
        RunFolderError: The folder does not exist, holds no run, or has a damaged file.
    """
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else {}
    ends = float(summary.get("loop_end", np.inf))
    keep = Thinner(READ, lambda column: column in SINGLE or column.startswith(GROUPS), ("lateness", "age."), ends)
    run = load_run(folder, keep)
    whole = bool(summary) and summary.get("status") != "running"
    if not whole:  # of a run that was killed, or goes on: what its rows say, in columns too that the page does not show
        rows = load_run(folder, Thinner(READ)).summary()
        summary = rows | summary | {"status": summary.get("status")}
        if keep.rows <= READ:
            summary |= {key: rows[key] for key in ("tasks", "passive", "inputs", "events")}
    config = _text(folder / CONFIG)
    events, told = _events(folder / EVENTS), list(summary.get("events") or [])
    if events:  # on drives; what the law holds and gives up stands in the summary alone
        told = sorted([*events, *(each for each in told if each.get("event") in OF_LAW)], key=lambda each: each["t"])
    points = int(np.clip(share // max(len(run.columns), 1), 200, POINTS))
    columns = {
        column: blob.add(thinned(x, points, ends=column == "t"), double=column == "t")
        for column, x in _shown(run).items()
    }
    return {
        "name": name,
        "rows": keep.rows,
        "bucket": bucket(keep.rows, points),
        "columns": columns,
        "units": run.units,
        "tasks": run.tasks,
        "summary": summary,  # the metrics of the rows if the file is missing
        "config": config,
        "events": [event | {"alarming": _alarming(event)} for event in told[:MOST_EVENTS]],
        "stages": stage_spans(run),
        "limits": input_limits(run),
        "lacks": _lacks(folder, run, summary),
        # column -> edges and counts of its histogram over all rows
        "counts": {column: [blob.add(x, double=True) for x in pair] for column, pair in keep.counts.items()},
        "buses": {
            bus: {"t": blob.add(t, double=True), "x": blob.add(used), "most": most}
            for bus, (t, used, most) in _buses(run, config).items()
        },
        "drawing": _drawing(run, blob, share // 2),
        "energy": _energy(run, blob),
    }


def _shown(run: Trajectory) -> dict[str, Array]:
    """The columns of a run that the page shows."""
    errors = ("violation.", "violation_rate.", "passive.")
    shown = {name: x for name, x in run.columns.items() if not name.startswith(errors)} | violation_rows(run)
    for name in {"rank", "passive_rank", "residual", "pivot_min", "status"} & set(shown):
        shown[name] = np.where(run.commanded, shown[name], np.nan)  # of the law, where there was one
        if not np.isfinite(shown[name]).any():
            del shown[name]
    for row, curve in funnel_curves(run).items():
        shown |= {f"funnel.{row}": curve.beta, f"funnel_width.{row}": curve.width}
    return shown


def _lacks(folder: Path, trajectory: Trajectory, summary: dict[str, Any]) -> list[str]:
    has = {name: (folder / name).is_file() for name in (SUMMARY, CONFIG, TABLE, STREAM, DRAWING)}
    lacks = []
    if not has[SUMMARY]:
        lacks.append(
            f"{SUMMARY} is missing: metrics are computed from the rows; all other facts of the run are unknown"
        )
    elif summary.get("status") == "running":
        lacks.append("the run has not ended, or was killed: the page has the rows up to its last second")
    if summary.get("schema", SCHEMA) != SCHEMA:
        lacks.append(
            f"{SUMMARY} has schema {summary['schema']}, this version of servoctl knows {SCHEMA}: "
            "new entries are not shown"
        )
    if not (has[TABLE] or has[STREAM]):
        lacks.append(f"{TABLE} is missing: there are no rows to draw")
    elif not len(trajectory):
        lacks.append("the run has no rows")
    if not has[CONFIG]:
        lacks.append(f"{CONFIG} is missing")
    if not any(points.ndim == 3 for points in trajectory.drawing.values()):
        why = (
            "the plant has no `links`" if has[DRAWING] else "the plant has no `links`, or the run did not reach its end"
        )
        lacks.append(f"no drawing of the mechanism: {why}")
    said = {"warning": "warnings", "note": "notes"}  # notes: what a run on drives says before its start
    return lacks + [f"{word}: {text}" for word, key in said.items() for text in trajectory.metadata.get(key) or []]


def _text(path: Path) -> str:
    """The text of a file; empty if it is missing or no regular file (reading a fifo would never end)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror} (check its permissions)") from error


def _events(path: Path) -> list[dict[str, Any]]:
    """The events of a run in order of time; the last line of a killed run may be incomplete."""
    events = [event for line in _text(path).splitlines() if (event := decoded(line))]
    timed = [event for event in events if isinstance(event.get("t"), int | float)]
    return sorted(timed, key=lambda event: float(event["t"]))


def _buses(trajectory: Trajectory, config: str) -> dict[str, tuple[Array, Array, float]]:
    """Bus -> times [s], its load 0 to 1 by the recorder's bit counts, and the largest load that the config allows."""
    loads = {}
    with contextlib.suppress(yaml.YAMLError, RecursionError, TypeError, ValueError, KeyError, AttributeError):
        counted, hil = trajectory.metadata["bus_bits"], yaml.safe_load(config)["hil"]
        slow = counted["bits"]
        fast = counted.get("data_bits") or [[0] * len(bits) for bits in slow]  # of FD frames, at another bit rate
        for (name, bus), bits, data in zip(hil["buses"].items(), slow, fast, strict=False):
            t, rate = counted["window"] * np.arange(len(bits)), float(bus["bitrate"])
            used = np.asarray(bits, dtype=float) / rate
            used += np.asarray(data, dtype=float) / float(bus.get("data_bitrate") or rate)
            loads[name] = t, used / counted["window"], float(hil["max_bus_load"])
    return loads


PAGE = "report.html"

FLOOR = 1e-17  # least value on a logarithmic axis: below the rounding error of numbers near 1

POINTS = 4000  # largest number of values per line
NUMBERS = 550_000  # approximate number of values in all lines of a page; all drawings get half as many more

SHEETS = ("uPlot.min.css", "style.css", "page.css")
SCRIPTS = (
    "uPlot.iife.min.js", "scales.js", "plots.js", "data.js", "bodies.js", "scene.js", "player.js",
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
    text = page(dict(zip(names_of(folders), map(Path, folders), strict=True)))
    write_files(path.parent, [(path.name, text.encode())])
    return path


def page(folders: Mapping[str, Path]) -> str:
    """The HTML text of the page, from the names of the runs on it and their folders."""
    blob = Blob()
    share = NUMBERS // len(folders)
    content = {
        "servoctl": VERSION,
        "floor": FLOOR,
        "task_metrics": [[metric.name, metric.head] for metric in TASK_METRICS],
        "statuses": [[status.name, status.value] for status in Status],
        "runs": [_run(folder, name, blob, share) for name, folder in folders.items()],
    }
    parts = {
        "title": html.escape(", ".join(folders)),
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


def _alarming(event: dict[str, Any]) -> bool:
    """Whether an event ends the motion, or says that a drive may be on."""
    return event.get("reaction") in STOPS or event.get("event") == "not_confirmed"


def _drawing(run: Trajectory, blob: Blob, share: int) -> dict[str, Any] | None:
    """The frames, thinned evenly if there are many, with the path of one point per polyline."""
    machine = Mechanism(run)
    t, lines, parts = machine.t, machine.lines, machine.solids
    if not len(t):
        return None
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
        "fixed": [each._asdict() for each in machine.fixed],
        "solids": {
            name: {"points": blob.add(part.points), "faces": blob.add(part.faces), "pose": blob.add(part.pose[chosen])}
            for name, part in parts.items()
        },
    }


def _moving_path(path: Array) -> Array:
    """The path; empty if the point does not move."""
    return path if np.max(np.ptp(path, axis=0)) > 1e-6 * max(1e-9, np.max(np.abs(path))) else path[:0]


def _energy(run: Trajectory, blob: Blob) -> dict[str, Any] | None:
    drawing = run.drawing
    if "energy" not in drawing or "t" not in drawing:
        return None
    return {"t": blob.add(drawing["t"], double=True), "x": blob.add(drawing["energy"])}
