"""Runs a sweep, and holds its result: a table with one row per run, rankings, a summary."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from servoctl.assembly.run import Run
from servoctl.errors import ClusterError, ConfigError
from servoctl.expression.suggest import remedy
from servoctl.linear.reserve import bounds_of, reserve
from servoctl.run_folder.missed import SHARE
from servoctl.run_folder.values import ROUND_OFF
from servoctl.sweep.batch import columns_of, run_all
from servoctl.sweep.limit import Limit, limits_of
from servoctl.sweep.metrics import GREATEST, VIOLATIONS, Row, greatest_is_best, metric_names
from servoctl.sweep.points import Point, Vary
from servoctl.sweep.series import Series, at_every_step
from servoctl.types import Array
from servoctl.version import VERSION

if TYPE_CHECKING:
    from servoctl.sweep.cluster import Cluster
    from servoctl.sweep.store import RowStore


def changed_by_thinning(run: Run, points: Sequence[Point], rows: Sequence[Row]) -> str | None:
    """The warning that names the metric which `run.output_step` changes most; None if it changes none by a tenth.

    Three runs of the sweep are repeated with a row at every step: the first, the middle and the last that are done.

    Args:
        run: The config.
        points: Path -> value, of each run.
        rows: Metrics of the runs so far.
    """
    dense = run if run.settings.period is not None else at_every_step(run)
    done = [i for i, row in enumerate(rows) if row["status"] == "done"]
    if dense is run or not done:
        return None
    chosen = sorted({done[0], done[len(done) // 2], done[-1]})
    exact = run_all(dense, [points[i] for i in chosen])
    changes = {
        (i, name): change for i, row in zip(chosen, exact, strict=True) for name, change in _changes(run, rows[i], row)
    }
    worst = max(changes, key=lambda key: changes[key][0], default=None)
    if worst is None or changes[worst][0] <= SHARE:
        return None
    (i, name), (_, thinned, true) = worst, changes[worst]
    return (
        f"run.output_step {run.settings.output_step:g} s is too long for the metrics: {name} of run {i} is "
        f"{thinned:.4g} in the table and {true:.4g} with a row at every step (shorten it, or leave it out)"
    )


def _changes(run: Run, row: Row, exact: Row) -> list[tuple[str, tuple[float, float, float]]]:
    """Metric, and its relative change, thinned value and value at every step; small violations and inputs are none."""
    inputs = [abs(x) for name, x in exact.items() if name.startswith("input_max") and isinstance(x, float)]
    rounding = ROUND_OFF * max(inputs, default=0.0)
    least = dict.fromkeys(VIOLATIONS, 0.01 * run.settings.settling_band)
    least |= {"input_rms": rounding, "input_max": rounding}
    least["settling_time"] = (run.settings.output_step or 0.0) / SHARE  # a shorter one cannot be told more exactly
    changes = []
    for name, true in exact.items():
        thinned, kind = row.get(name), name.partition(".")[0]
        if kind not in least or thinned is None or true is None:
            continue
        if (size := max(abs(thinned), abs(true))) > least[kind]:
            changes.append((name, (abs(true - thinned) / size, thinned, true)))
    return changes


SCHEMA = 1  # version of the shape of `summary.json`


@dataclass(frozen=True)
class Study:
    """The result of a sweep, complete or as far as it got."""

    name: str  # name of the config
    config_text: str  # the config as it ran, without the varied values
    varies: tuple[Vary, ...]  # the varied numbers
    sample: str  # `grid`, `lhs` or `monte-carlo`
    seed: int  # seed of the random points
    planned: int  # number of runs in the complete sweep
    # `run`, one column per varied path, `status`, `error`, `engine`, and the metrics; None where a run has no value
    columns: dict[str, list[Any]]
    metrics: tuple[str, ...]  # names of the metrics among the columns
    wall_time: float  # [s] time of all runs, including those before a `--resume`
    broken: str | None = None  # why the sweep failed; None: it ended, or a person interrupted it
    # stability limits of the gains over the varied numbers; empty if none depends on them
    limits: tuple[Limit, ...] = ()
    warning: str | None = None  # which metric `run.output_step` falsifies; None: none

    @property
    def paths(self) -> list[str]:
        """Paths of the varied numbers."""
        return [vary.path for vary in self.varies]

    def numbers(self, name: str) -> Array:
        """The column of a path or a metric, NaN where a run has no value."""
        return np.array([np.nan if value is None else value for value in self.columns[name]], dtype=float)

    @cached_property
    def done(self) -> Array:
        """Whether each run reached its end."""
        return np.array([status == "done" for status in self.columns["status"]], dtype=bool)

    def ranking(self, metric: str) -> list[int]:
        """Numbers of the runs that reached their end and have this metric, best first; ties keep their order."""
        values = self.numbers(metric)
        order = np.argsort(-values if greatest_is_best(metric) else values, kind="stable")
        return [int(i) for i in order if self.done[i] and np.isfinite(values[i])]

    def with_figures(self, figures: Mapping[int, Mapping[str, float]]) -> "Study":
        """The study with a column for each stability figure; None where a run was not examined.

        Args:
            figures: Number of a run -> its figures, such as `gain_share`.
        """
        names = dict.fromkeys(name for of in figures.values() for name in of)
        count = range(len(self.columns["run"]))
        return replace(self, columns=self.columns | {n: [figures.get(i, {}).get(n) for i in count] for n in names})

    def _of(self, run: int, metric: str) -> dict[str, Any]:
        """Number of a run, its value of a metric, and the varied numbers there."""
        at = {path: self.columns[path][run] for path in self.paths}
        return {"run": run, "value": self.columns[metric][run], "at": at}

    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        best, worst, mean = {}, {}, {}
        for metric in self.metrics:
            ranking = self.ranking(metric)
            if ranking:
                best[metric], worst[metric] = self._of(ranking[0], metric), self._of(ranking[-1], metric)
                mean[metric] = float(np.mean(self.numbers(metric)[ranking]))
        statuses, count = self.columns["status"], len(self.columns["status"])
        end = "done" if count == self.planned else "interrupted"
        return {
            "schema": SCHEMA,
            "config": self.name,
            "servoctl": VERSION,
            "status": end if self.broken is None else "failed",
            "error": self.broken,
            "warnings": [self.warning] if self.warning else [],
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
            "worst": worst,
            "mean": mean,
            "limits": {limit.name: {path: limit.crossings for path in limit.axes} for limit in self.limits},
        }


def plan(run: Run, metric: str | None) -> str:
    """The metric that tables and pictures show: the given one, or the RMS violation, or else the first metric.

    Raises:
        ConfigError: The config has no metric of this name, or none at all.
    """
    names = metric_names(run)
    if metric is not None and metric not in names:
        hint = remedy(metric, names)
        listed = "" if hint.startswith("known") else f"; known: {', '.join(names)}"
        raise ConfigError(f"--metric {metric}: there is no such metric ({hint}{listed})")
    if not names:
        raise ConfigError(f"{run.name}: there is nothing to compare runs by (give a task, or a plant with actuators)")
    return metric or ("rms_violation" if "rms_violation" in names else names[0])


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
    """Runs a config at every point. On Ctrl-C, or if a worker process dies, returns the runs made so far.

    Args:
        run: The config.
        varies: The varied numbers.
        points: Path -> value, one mapping per run.
        sample: How the points were chosen: `grid`, `lhs` or `monte-carlo`.
        seed: Seed with which they were drawn.
        jobs: Threads of generated C, or else processes, that work at the same time; the table does not depend on it.
        progress: Called with the fraction that is done, 0 to 1.
        cluster: Makes the runs instead of this machine; the table does not depend on it.
        store: Keeps each row when its run ends; rows that it already holds are not run again.

    Raises:
        ConfigError: The run was not loaded from a config.
        RunFolderError: A row cannot be stored; the rows before it are.
    """
    rows: list[Row] = [] if store is None else list(store.rows)
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
        pass  # the summary says `interrupted`
    except BrokenProcessPool:
        broken = "a worker process of the sweep was killed, or ran out of memory (use fewer --jobs)"
    except ClusterError as error:
        broken = str(error)
    wall_time = before + perf_counter() - began
    metrics, values = metric_names(run), columns_of(rows)
    columns: dict[str, list[Any]] = {"run": list(range(len(rows)))}
    columns |= {vary.path: [point[vary.path] for point in points[: len(rows)]] for vary in varies}
    columns |= {name: values.get(name, [None] * len(rows)) for name in ["status", "error", "engine", *metrics]}
    return Study(
        name=run.name,
        config_text="" if run.loaded is None else run.loaded.text,
        varies=tuple(varies),
        sample=sample,
        seed=seed,
        planned=len(points),
        columns=columns,
        metrics=tuple(metrics),
        wall_time=wall_time,
        broken=broken,
        limits=limits_of(run, varies),
        warning=None if len(rows) < len(points) else changed_by_thinning(run, points, rows),
    )


MOST = 200  # number of runs of a ranking that are examined


def within(
    run: Run, ranking: Sequence[int], points: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[int], dict[int, dict[str, float]]]:
    """The best runs within the bounds of `tune:`, and the stability figures of all runs that were examined for it.

    Args:
        run: The config.
        ranking: Numbers of runs, best first.
        points: Path -> value, by number of run.
        count: Number of runs to select.

    Returns:
        Numbers of the selected runs, best first; and number of an examined run -> its stability figures.
    """
    assert run.loaded is not None
    bounds, series = bounds_of(run.loaded.config.tune), Series(run.loaded, "vm", "vm", run)
    best: list[int] = []
    examined: dict[int, dict[str, float]] = {}
    for number in ranking[:MOST]:
        if len(best) == count:
            break
        made = series.make(points[number])
        figures = reserve(made).to_dict() if isinstance(made, Run) and made.system.law is not None else {}
        examined[number] = figures
        if not any((figures[name] < bounds[name]) == (name in GREATEST) and figures[name] != bounds[name]
                   for name in figures if name in bounds):  # fmt: skip
            best.append(number)
    return best, examined
