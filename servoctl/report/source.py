"""What the page of a run is made from: its folder, read so that its length does not matter, and what it lacks."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from servoctl.errors import RunFolderError
from servoctl.report.pack import Thinner
from servoctl.run_folder import load_run, read_summary
from servoctl.run_folder.files import CONFIG, DRAWING, STREAM, SUMMARY, TABLE
from servoctl.run_folder.trajectory import SCHEMA, Trajectory
from servoctl.types import Array

READ = 20_000
"""Most values of a column that are kept in memory."""

EVENTS = "events.jsonl"
MOST_EVENTS = 2000

GROUPS = ("q.", "v.", "u.", "violation.", "passive.", "passive_force.", "servo_force.", "age.")
SINGLE = ("t", "rank", "passive_rank", "residual", "pivot_min", "status", "stage", "lateness", "task_time")
"""Columns that the page shows."""


@dataclass(frozen=True)
class RunSource:
    """One run.

    Attributes:
        name: How it is called among the others.
        trajectory: Its rows, thinned where they are many.
        rows: How many there are in its folder.
        counts: Column -> edges and counts of its histogram, over all rows.
        summary: As `summary.json` has it, or found from the rows where it has none.
        config: The text of `config.yaml`; empty where there is none.
        events: What happened, in order of time.
        limits: Actuator -> least and greatest input that was allowed.
        lacks: What the folder has not, one sentence each.
        buses: Bus -> times [s], share of it that was used, and the share that may be.
    """

    name: str
    trajectory: Trajectory
    rows: int
    counts: dict[str, tuple[Array, Array]]
    summary: dict[str, Any]
    config: str
    events: list[dict[str, Any]]
    limits: dict[str, tuple[float, float]]
    lacks: list[str]
    buses: dict[str, tuple[Array, Array, float]]


def names_of(folders: Sequence[str | PathLike[str]]) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    Raises:
        RunFolderError: One is given twice.
    """
    paths = [Path(folder).resolve() for folder in folders]
    for i, path in enumerate(paths):
        if path in paths[:i]:
            raise RunFolderError(f"{folders[i]}: given twice (give each run once)")
    length = 1
    while len({path.parts[-length:] for path in paths}) < len(paths):
        length += 1
    return ["/".join(path.parts[-length:]) for path in paths]


def read(folder: str | PathLike[str], name: str) -> RunSource:
    """Reads a run folder, also one that is incomplete.

    Args:
        folder: The run folder.
        name: How to call the run.

    Raises:
        RunFolderError: There is no such folder, it holds no run, or a file in it is damaged.
    """
    folder = Path(folder)
    keep = Thinner(READ, lambda column: column in SINGLE or column.startswith(GROUPS), ("lateness", "age."))
    trajectory = load_run(folder, keep)
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else {}
    whole = bool(summary) and summary.get("status") != "running"
    if not whole:  # of a run that was killed, or goes on: what its rows say
        summary = trajectory.summary() | summary | {"status": summary.get("status")}
        if keep.rows <= READ:
            rows = trajectory.summary()
            summary |= {key: rows[key] for key in ("tasks", "passive", "inputs")}
    config = _text(folder / CONFIG)
    events = _events(folder / EVENTS) or list(summary.get("events") or [])
    return RunSource(
        name, trajectory, keep.rows, keep.counts, summary, config, events[:MOST_EVENTS],
        _limits(trajectory, config), _lacks(folder, trajectory, summary),
        _buses(trajectory, config),
    )  # fmt: skip


def _lacks(folder: Path, trajectory: Trajectory, summary: dict[str, Any]) -> list[str]:
    has = {name: (folder / name).is_file() for name in (SUMMARY, CONFIG, TABLE, STREAM, DRAWING)}
    lacks = []
    if not has[SUMMARY]:
        lacks.append(
            f"{SUMMARY} is missing: metrics are found from the rows, and what the run said of itself is unknown"
        )
    elif summary.get("status") == "running":
        lacks.append("the run has not ended, or was killed: rows up to its last second are here")
    if summary.get("schema", SCHEMA) != SCHEMA:
        lacks.append(
            f"{SUMMARY} has schema {summary['schema']}, this version of servoctl knows {SCHEMA}: "
            "what is new to it is not shown"
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
    return lacks


def _text(path: Path) -> str:
    """A file's text; empty where it is missing, or is no regular file: a fifo would never end."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror} (check its permissions)") from error


def _object(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}


def _events(path: Path) -> list[dict[str, Any]]:
    """Of a killed run the last line may be cut off."""
    events = [event for line in _text(path).splitlines() if (event := _object(line))]
    timed = [event for event in events if isinstance(event.get("t"), int | float)]
    return sorted(timed, key=lambda event: float(event["t"]))


def _limits(trajectory: Trajectory, config: str) -> dict[str, tuple[float, float]]:
    """Limits of the inputs: the law's from the config, and the drives' where these are tighter."""
    limits = {name: (-np.inf, np.inf) for name in trajectory.actuators}
    law = _part(config, "law")
    for name, limit in (law.get("limits") or {}).items():
        with contextlib.suppress(TypeError, ValueError, KeyError):
            low, high = (-float(limit), float(limit)) if not isinstance(limit, list) else map(float, limit)
            limits[name] = max(limits[name][0], low), min(limits[name][1], high)
    for name, limit in trajectory.metadata.get("torque_limits", {}).items():
        if name in limits:
            limits[name] = max(limits[name][0], -float(limit)), min(limits[name][1], float(limit))
    return {name: pair for name, pair in limits.items() if np.isfinite(pair).any()}


def _buses(trajectory: Trajectory, config: str) -> dict[str, tuple[Array, Array, float]]:
    """Load of each bus over time, from the bits that the recorder counted."""
    counted, hil = trajectory.metadata.get("bus_bits", {}), _part(config, "hil")
    loads = {}
    with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
        for (name, bus), bits in zip(hil["buses"].items(), counted["bits"], strict=False):
            t = counted["window"] * np.arange(len(bits))
            used = np.asarray(bits, dtype=float) / (counted["window"] * float(bus["bitrate"]))
            loads[name] = t, used, float(hil["max_bus_load"])
    return loads


def _part(config: str, name: str) -> dict[str, Any]:
    """A part of the config; empty where there is none, or the text is no config."""
    with contextlib.suppress(yaml.YAMLError, AttributeError, RecursionError, ValueError):
        part = yaml.safe_load(config).get(name)
        if isinstance(part, dict):
            return part
    return {}
