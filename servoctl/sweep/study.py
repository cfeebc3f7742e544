"""A sweep and what came of it: a table with one row per run, a summary, a picture."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from servoctl.assembly.run import Run
from servoctl.config import dump
from servoctl.errors import ClusterError, ConfigError
from servoctl.expression.suggest import remedy
from servoctl.run_folder.files import CONFIG, SUMMARY, replace, study_folder, unwritable
from servoctl.sweep.batch import columns_of, run_all
from servoctl.sweep.limit import Limit, limits_of
from servoctl.sweep.metrics import GREATEST, metric_names
from servoctl.sweep.points import Vary
from servoctl.types import Array
from servoctl.version import VERSION

if TYPE_CHECKING:
    from servoctl.sweep.cluster import Cluster
    from servoctl.sweep.store import RowStore

SCHEMA = 1


@dataclass(frozen=True)
class Study:
    """A sweep that has run, or as far as it came.

    Attributes:
        name: Of the config.
        config_text: The config as it ran, without what is varied.
        varies: What is varied.
        sample: `grid`, `lhs` or `monte-carlo`.
        seed: Of the random points.
        planned: Number of runs that were wanted.
        columns: `run`, one per varied path, `status`, `error`, `engine`, and the metrics; None where there is none.
        metrics: Names of the metrics among them.
        wall_time: Of all runs, those before a `--resume` included [s].
        broken: What ended the sweep, where neither its end nor a person did.
        limits: Where the gains end that the period or the step bears; none where what is varied does not matter.
    """

    name: str
    config_text: str
    varies: tuple[Vary, ...]
    sample: str
    seed: int
    planned: int
    columns: dict[str, list[Any]]
    metrics: tuple[str, ...]
    wall_time: float
    broken: str | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def paths(self) -> list[str]:
        """What is varied."""
        return [vary.path for vary in self.varies]

    def numbers(self, name: str) -> Array:
        """A path's or a metric's column, NaN where there is none."""
        return np.array([np.nan if value is None else value for value in self.columns[name]], dtype=float)

    @cached_property
    def done(self) -> Array:
        """Whether each run reached its end."""
        return np.array([status == "done" for status in self.columns["status"]], dtype=bool)

    def ranking(self, metric: str) -> list[int]:
        """The runs that reached their end and have this metric, the best first; equal ones in their order."""
        values = self.numbers(metric)
        order = np.argsort(-values if metric in GREATEST else values, kind="stable")
        return [int(i) for i in order if self.done[i] and np.isfinite(values[i])]

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        best = {}
        for metric in self.metrics:
            for run in self.ranking(metric)[:1]:
                at = {path: self.columns[path][run] for path in self.paths}
                best[metric] = {"run": run, "value": self.columns[metric][run], "at": at}
        statuses, count = self.columns["status"], len(self.columns["status"])
        end = "done" if count == self.planned else "interrupted"
        return {
            "schema": SCHEMA,
            "config": self.name,
            "servoctl": VERSION,
            "status": end if self.broken is None else "failed",
            "error": self.broken,
            "sample": self.sample,
            "seed": self.seed,
            "vary": {
                v.path: {"low": v.low, "high": v.high, "count": v.count or None} | ({"spacing": "log"} if v.log else {})
                for v in self.varies
            },
            "planned": self.planned,
            "runs": count,
            "failed": int(count - self.done.sum()),
            "status_counts": {status: statuses.count(status) for status in dict.fromkeys(statuses)},
            "engines": sorted({engine for engine in self.columns.get("engine", []) if engine}),
            "wall_time": self.wall_time,
            "runs_per_second": count / self.wall_time if self.wall_time > 0.0 else None,
            "best": best,
            "limits": {one.name: {path: one.crossings for path in one.axes} for one in self.limits},
        }

    def save(self, folder: str | PathLike[str], metric: str) -> Path:
        """Writes `config.yaml`, `sweep.parquet`, `sweep.png` and at last `summary.json`, each in full or not at all.

        Args:
            folder: Made where it is missing; files of these names are replaced.
            metric: What the picture shows.

        Raises:
            RunFolderError: A file cannot be written.
        """
        from servoctl.sweep.picture import draw

        place, summary = make_folder(folder), json.dumps(self.summary(), indent=2) + "\n"
        try:
            replace(place / CONFIG, lambda file: file.write(self.config_text.encode()))
            replace(place / "sweep.parquet", self._write_table)
            replace(place / "sweep.png", lambda file: draw(self, metric, file))
            replace(place / SUMMARY, lambda file: file.write(summary.encode()))
        except OSError as error:
            raise unwritable(place, error) from error
        return place

    def _write_table(self, file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"run": pa.int64(), "status": pa.string(), "error": pa.string(), "engine": pa.string()}
        arrays = {name: pa.array(values, kinds.get(name, pa.float64())) for name, values in self.columns.items()}
        pq.write_table(pa.table(arrays), file)


def make_folder(folder: str | PathLike[str]) -> Path:
    """A folder for a sweep; an earlier one's summary, which would belie the files to come, goes.

    Raises:
        ConfigError: The files of a single run would be overwritten.
        RunFolderError: The folder cannot be made.
    """
    place = study_folder(folder)
    try:
        (place / SUMMARY).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(place, error) from error
    return place


def default_metric(run: Run) -> str:
    """The violation by which runs are compared, or the first input where there is no task.

    Raises:
        ConfigError: There is neither.
    """
    names = metric_names(run)
    if not names:
        raise ConfigError(f"{run.name}: there is nothing to compare runs by (give a task, or a plant with actuators)")
    return "rms_violation" if "rms_violation" in names else names[0]


def plan(run: Run, metric: str | None) -> str:
    """The metric that is shown.

    Raises:
        ConfigError: There is no such metric; lists them.
    """
    names = metric_names(run)
    if metric is not None and metric not in names:
        hint = remedy(metric, names)
        listed = "" if hint.startswith("known") else f"; known: {', '.join(names)}"
        raise ConfigError(f"--metric {metric}: there is no such metric ({hint}{listed})")
    return metric or default_metric(run)


def sweep(
    run: Run,
    varies: Sequence[Vary],
    points: Sequence[dict[str, float]],
    sample: str = "grid",
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    cluster: "Cluster | None" = None,
    store: "RowStore | None" = None,
) -> Study:
    """Runs a config at every point; interrupted, or where what works for it dies, what there is.

    Args:
        run: The config.
        varies: What is varied.
        points: Path -> value, one mapping per run.
        sample: How the points were made.
        seed: Likewise.
        jobs: Threads of generated C, or else processes, that work at the same time; the table does not depend on it.
        progress: Called with the fraction that is done, 0 to 1.
        cluster: What does the work instead of this machine; the table does not depend on it.
        store: Where each row is kept as it comes; those that are there already are not run again.

    Raises:
        ConfigError: The run was not loaded from a config.
        RunFolderError: A row cannot be kept; those before are.
    """
    rows: list[dict[str, Any]] = [] if store is None else list(store.rows)
    before, left = 0.0 if store is None else store.seconds, points[len(rows) :]
    broken, began = None, perf_counter()
    try:
        for row in run_all(run, left, jobs, cluster, planned=len(points)) if left else ():
            rows.append(row)
            if store is not None:
                store.add(row, before + perf_counter() - began)
            if progress is not None:
                progress(len(rows) / len(points))
    except KeyboardInterrupt:
        pass  # the summary says so
    except BrokenProcessPool:
        broken = "a process that worked for the sweep was killed, or ran out of memory (take fewer --jobs)"
    except ClusterError as error:
        broken = str(error)
    wall_time = before + perf_counter() - began
    metrics = metric_names(run)
    found = columns_of(rows)
    columns: dict[str, list[Any]] = {"run": list(range(len(rows)))}
    columns |= {vary.path: [point[vary.path] for point in points[: len(rows)]] for vary in varies}
    for name in ["status", "error", "engine", *metrics]:
        columns[name] = found.get(name, [None] * len(rows))
    text = "" if run.loaded is None else dump(run.loaded.config)
    limits = limits_of(run, varies)
    said = run.name, text, tuple(varies), sample, seed, len(points), columns, tuple(metrics), wall_time, broken, limits
    return Study(*said)
