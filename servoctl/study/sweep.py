"""Runs a sweep, and holds its result: a table with one row per run, rankings, a summary, and stability limits.

    growth = 1,  growth: the largest spectral radius of the map of a violation over one period or step h
    (`laws.hold`)

Design: for limits nothing is simulated. The gains of runs with other numbers are evaluated on a separate grid, which is
refined along the limit. Only varied paths on which the gains, the period or the step depend become axes of this grid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from servoctl.assembly.gains import RowGains, all_gains, drives_gains
from servoctl.assembly.run import Run
from servoctl.errors import ConfigError, ServoctlError
from servoctl.linear.reserve import bounds_of, reserve
from servoctl.run_folder.metrics import greatest_is_best
from servoctl.study.batch import Series, Workers, at_every_step, columns_of, run_all, run_at, until_broken
from servoctl.study.metrics import Row, excess_of, metric_names, metric_unit, no_such_metric, path_unit
from servoctl.study.points import Vary
from servoctl.study.store import RowStore, identity_of
from servoctl.types import Array
from servoctl.version import VERSION

GRID = {1: (41, 6), 2: (11, 3)}
"""Number of axes -> points along each axis, and how often the cells that the limit crosses are halved."""

STABILITY_PREFIXES = ("law.", "task.", "run.", "realism.", "hil.", "plant.passive.")
"""Config prefixes that affect stability."""


@dataclass(frozen=True)
class Limit:
    """The growth of the fastest-growing violation, over one or two varied numbers."""

    name: str  # `stability limit`, as the run is simulated, or `stability limit on drives`
    axes: dict[str, Array]  # path -> values
    # factor per period or step, one array axis per path: 1 at the limit; NaN where the config refuses the numbers
    growth: Array

    @property
    def crossings(self) -> list[float]:
        """Values of the path at which the growth crosses 1; empty if there are two paths."""
        if len(self.axes) > 1:
            return []
        (x,), above, crossings = self.axes.values(), self.growth - 1.0, []
        for i in range(len(x) - 1):
            a, b = above[i], above[i + 1]
            if (a < 0.0) != (b < 0.0) and np.isfinite(a) and np.isfinite(b):
                crossings.append(float(x[i] + (x[i + 1] - x[i]) * a / (a - b)))
        return crossings

    def over(self, varies: Sequence[Vary]) -> tuple[Array, Array, Array]:
        """Values of the two paths of a sweep, and the growth over them, shape (first, second).

        The growth is constant along a path that is no axis of the limit.
        """
        x, y = (self.axes.get(vary.path, np.array([vary.low, vary.high])) for vary in varies)
        shape = [len(line) if vary.path in self.axes else 1 for vary, line in zip(varies, (x, y), strict=True)]
        return x, y, np.broadcast_to(self.growth.reshape(shape), (len(x), len(y)))


def limits_of(run: Run, varies: Sequence[Vary]) -> tuple[Limit, ...]:
    """The limits that a picture of the sweep can show: of one varied path, or of two if there are only two."""
    limits = []
    for name, kind in (("stability limit", _simulated), ("stability limit on drives", _on_drives)):
        axes = [vary for vary in varies if vary.path.startswith(STABILITY_PREFIXES) and _matters(run, vary, kind)]
        if len(axes) == 1 or len(axes) == len(varies) == 2:
            limit = _over(run, axes, name, kind)
            if np.any(limit.growth < 1.0) and np.any(limit.growth > 1.0):
                limits.append(limit)
    return tuple(limits)


Kind = Callable[[Run], Iterable[RowGains]]
"""A run -> the gains of each row, with their growth."""


def _over(run: Run, axes: Sequence[Vary], name: str, kind: Kind) -> Limit:
    """The growth over the axes: on a coarse grid first, then on halved cells along the limit."""
    points, halvings = GRID[len(axes)]
    paths = [vary.path for vary in axes]
    growth = np.full([points] * len(axes), np.nan)

    def lines() -> list[Array]:
        return [vary.line(count) for vary, count in zip(axes, growth.shape, strict=True)]

    nodes: Iterable[tuple[int, ...]] = np.ndindex(growth.shape)
    for halving in range(1 + halvings):
        if halving:
            growth, nodes = _halved(growth)
        along = lines()
        for node in nodes:
            at = {path: float(line[i]) for path, line, i in zip(paths, along, node, strict=True)}
            growth[node] = _growth(_gains(run, at, kind))
    return Limit(name, dict(zip(paths, lines(), strict=True)), growth)


def _halved(growth: Array) -> tuple[Array, set[tuple[int, ...]]]:
    """The growth interpolated on cells half as wide, and the new nodes to recompute: those in cells on the limit."""
    fine = growth
    for axis in range(growth.ndim):
        fine = np.moveaxis(fine, axis, 0)
        wide = np.empty((2 * len(fine) - 1, *fine.shape[1:]))
        wide[::2], wide[1::2] = fine, (fine[:-1] + fine[1:]) / 2
        fine = np.moveaxis(wide, 0, axis)
    corners = [growth[tuple(slice(o, n - 1 + o) for o, n in zip(offset, growth.shape, strict=True))]
               for offset in product((0, 1), repeat=growth.ndim)]  # fmt: skip
    crossed = (np.minimum.reduce(corners) < 1.0) & (np.maximum.reduce(corners) >= 1.0)
    near = {
        tuple(int(2 * i + o) for i, o in zip(cell, offset, strict=True))
        for cell in np.argwhere(crossed)
        for offset in product((0, 1, 2), repeat=growth.ndim)
    }
    return fine, {node for node in near if any(i % 2 for i in node)}


def _matters(run: Run, vary: Vary, kind: Kind) -> bool:
    """Whether a varied number changes a gain, a period or a step."""
    samples = [_gains(run, {vary.path: x}, kind) for x in vary.line(3)]
    return any(gains != samples[0] for gains in samples)


def _gains(run: Run, numbers: Mapping[str, float], kind: Kind) -> list[RowGains] | None:
    """The gains of the config with other numbers; None if it refuses them."""
    try:
        return list(kind(run_at(run, numbers)))
    except ServoctlError:
        return None


def _growth(gains: list[RowGains] | None) -> float:
    return max((gain.growth for gain in gains or [] if gain.growth is not None), default=np.nan)


def _simulated(run: Run) -> Iterable[RowGains]:
    return all_gains(run.system, run.settings)


def _on_drives(run: Run) -> Iterable[RowGains]:
    return drives_gains(run.system, run.hil)


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
    units: Mapping[str, str] = field(default_factory=dict)  # path or metric -> its unit; empty: it has none
    # stability limits of the gains over the varied numbers; empty if none depends on them
    limits: tuple[Limit, ...] = ()
    within: tuple[
        int, ...
    ] = ()  # the best runs within the bounds of `tune:`, best first; empty before they are examined
    beyond: tuple[int, ...] = ()  # the runs among them, by their rank, that are beyond one of these bounds

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

    def lacks(self, metric: str) -> Array:
        """Whether each run reached its end and does not have this metric, shape (runs,)."""
        lacks: Array = self.done & ~np.isfinite(self.numbers(metric))
        return lacks

    def examined(self, within: Sequence[int], figures: Mapping[int, Mapping[str, float]]) -> "Study":
        """The study with a column for each stability figure, by `within`; None where a run was not examined."""
        names = dict.fromkeys(name for of in figures.values() for name in of)
        count = range(len(self.columns["run"]))
        columns = {name: [figures.get(i, {}).get(name) for i in count] for name in names}
        beyond = tuple(i for i in figures if i not in within)
        return replace(self, columns=self.columns | columns, within=tuple(within), beyond=beyond)

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
            "within_bounds": list(self.within),
            "beyond_bounds": list(self.beyond),
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
        raise ConfigError(f"--metric {no_such_metric(metric, names)}")
    if not names:
        raise ConfigError(f"{run.name}: there is nothing to compare runs by (give a task, or a plant with actuators)")
    return metric or ("rms_violation" if "rms_violation" in names else names[0])


def identity(run: Run, varies: Sequence[Vary], sample: str, seed: int, planned: int) -> dict[str, Any]:
    """What identifies a sweep: `identity_of` with the engine, the varied numbers and the points."""
    vary = [astuple(each)[1:] for each in varies]  # all but the text
    return identity_of(
        run, engine=run.engine, vary=vary, sample=sample, seed=None if sample == "grid" else seed, runs=planned
    )


def sweep(
    run: Run,
    varies: Sequence[Vary],
    points: Sequence[dict[str, float]],
    sample: str = "grid",
    seed: int = 0,
    workers: Workers | None = None,
    progress: Callable[[float], None] | None = None,
    store: "RowStore | None" = None,
) -> Study:
    """Runs a config at every point. On Ctrl-C, or if a worker process dies, returns the runs made so far.

    Metrics are those of every step: `run.output_step` has no influence.

    Args:
        sample: How the points were chosen: `grid`, `lhs` or `monte-carlo`.
        seed: Seed with which they were drawn.
        workers: Make the runs, as of `run_all`; the table does not depend on them.
        store: Keeps each row when its run ends; rows that it already holds are not run again.

    Raises:
        ConfigError: The run was not loaded from a config.
        RunFolderError: A row cannot be stored; the rows before it are.
    """
    rows: list[Row] = [] if store is None else list(store.rows)
    before, left = 0.0 if store is None else store.seconds, points[len(rows) :]
    began = perf_counter()
    with until_broken("sweep") as broken:
        for row in run_all(at_every_step(run), left, workers, len(points)) if left else ():
            rows.append(row)
            if store is not None:
                store.add(row, before + perf_counter() - began)
            if progress is not None:
                progress(len(rows) / len(points))
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
        broken=broken.why,
        units={vary.path: path_unit(run, vary.path) for vary in varies}
        | {name: metric_unit(run, name) for name in metrics},
        limits=limits_of(run, varies),
    )


MOST = 200  # number of runs of a ranking that are examined


def within(
    run: Run, ranking: Sequence[int], points: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[int], dict[int, dict[str, float]]]:
    """The best runs within the bounds of `tune:`, and the stability figures of all runs that were examined for it.

    Args:
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
        if not any(excess_of(name, figure, bounds[name]) > 0.0 for name, figure in figures.items() if name in bounds):
            best.append(number)
    return best, examined
