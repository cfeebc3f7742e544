"""Many runs of one config with other values: what is compiled is compiled once, and shared by all that it fits.

Design: every run is the config with its own overrides, checked as `load` checks it, so its numbers are those of a
single run on the same engine, bit for bit. Only the work of tracing is saved: a run whose plant, task and law differ
from the last one's in parameters alone takes over its compiled functions. The engine is chosen once, before the work
is shared out, so the number of processes changes nothing. On generated C, runs of fixed steps are taken side by side
(`runs.many`) and their metrics gathered on the way: the same steps to the bit, sums in another order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from servoctl.config.load import LoadedConfig
from servoctl.errors import CompileError, ConfigError, ServoctlError, in_one_line
from servoctl.runs.engine import batch_library, take_engine
from servoctl.runs.make import make_run
from servoctl.runs.many import SideBySide
from servoctl.runs.run import Run
from servoctl.simulation import simulate_loop

if TYPE_CHECKING:
    from servoctl.runs.cluster import Cluster

VIOLATIONS = ("max_violation", "rms_violation", "final_violation")
REFUSED = "refused"
"""Status of a run that could not start; `error` says why."""

CRASHED = "crashed"
"""Status of a run whose own code raised what it should not have."""

Way = Literal["side by side", "c", "vm"]
"""How runs are taken: side by side in C, or one by one; `vm` is whatever engine the loop starts on."""

Row = dict[str, Any]

CHUNKS = 32
"""Pieces that each process gets its work in: few enough to cost nothing, enough to end together."""


def batch(
    run: Run,
    parameters: Mapping[str, Sequence[float]],
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    cluster: "Cluster | None" = None,
) -> dict[str, list[Any]]:
    """`Run.batch`."""
    lengths = {path: len(values) for path, values in parameters.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path} {length}" for path, length in lengths.items())
        raise ConfigError(f"Run.batch: expected lists of one length, got {shown}")
    count = next(iter(lengths.values()), 0)
    points = [{path: _number(path, values[i]) for path, values in parameters.items()} for i in range(count)]
    rows = []
    for row in run_all(run, points, jobs, cluster):
        rows.append(row)
        if progress is not None:
            progress(len(rows) / count)
    return columns_of(rows)


def _number(path: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Run.batch: {path}: expected a number, got {value!r}") from error


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows -> columns, None where a row lacks one; `status` and `error` first."""
    names = dict.fromkeys(["status", "error", *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in names}


def run_all(
    run: Run, points: Sequence[Mapping[str, float]], jobs: int = 1, cluster: "Cluster | None" = None
) -> Iterator[Row]:
    """The metrics of each run, in order, as they come.

    Args:
        run: The config; a run that was made in Python has none.
        points: Path -> value, one mapping per run.
        jobs: Processes, or threads of generated C, that work at the same time.
        cluster: What does the work instead of this machine; the rows are the same.

    Raises:
        ConfigError: The run was not loaded from a config.
        ClusterError: The cluster is lost; what it had done has been handed out.
    """
    if run.loaded is None:
        raise ConfigError("Run.batch: this run has no config (take one from servoctl.load)")
    way = _way(run, len(points))
    if cluster is not None:
        yield from cluster.rows(run, way, points)
    elif way == "side by side" or jobs <= 1 or len(points) <= 1:
        yield from rows_of(run, way, points, jobs)
    else:
        yield from _in_processes(run, way, points, jobs)


def _way(run: Run, count: int) -> Way:
    """How so many runs are taken: decided once, whoever does the work."""
    if batch_library(run.loop, run.start, run.settings, run.engine, count) is not None:
        return "side by side"
    together = replace(run.settings, duration=run.settings.duration * max(count, 1))
    take_engine(run.loop, run.start, together, run.engine)
    return "c" if run.loop.engine == "c" else "vm"


def rows_of(run: Run, way: Way, points: Sequence[Mapping[str, float]], threads: int = 1) -> Iterator[Row]:
    """The rows of some runs, taken here.

    Raises:
        CompileError: They are wanted side by side, which takes a compiler.
    """
    assert run.loaded is not None
    if way != "side by side":
        yield from map(Series(run.loaded, run.engine, way, run), points)
        return
    library = batch_library(run.loop, run.start, run.settings, "c", max(2, len(points)))
    if library is None:
        raise CompileError("runs side by side: generated C cannot be compiled here (take --engine vm)")
    series = Series(run.loaded, run.engine, "c", run)
    yield from SideBySide(run, library, series.make, series.alone, metrics_of).rows(points, threads)


def _in_processes(run: Run, way: Way, points: Sequence[Mapping[str, float]], jobs: int) -> Iterator[Row]:
    assert run.loaded is not None
    share = -(-len(points) // (min(jobs, len(points)) * CHUNKS))
    given = (run.loaded, run.engine, way)
    with ProcessPoolExecutor(min(jobs, len(points)), get_context("spawn"), _begin, given) as pool:
        try:
            yield from pool.map(_work, points, chunksize=share)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class Series:
    """Runs one after the other, each of which starts from what the one before has compiled."""

    def __init__(self, loaded: LoadedConfig, asked: str, engine: Way, first: Run | None = None) -> None:
        """Takes a config.

        Args:
            loaded: The config.
            asked: Engine that was asked for.
            engine: `c`, or `vm` for what the loop starts on.
            first: The config as a run, where there is one.
        """
        self._loaded, self._asked, self._engine, self._last = loaded, asked, engine, first

    def __call__(self, point: Mapping[str, float]) -> dict[str, Any]:
        """The metrics of the run with these values."""
        run = self.make(point)
        return self.alone(run) if isinstance(run, Run) else run

    def make(self, point: Mapping[str, float]) -> Run | dict[str, Any]:
        """The run with these values, checked; or the row that says why there is none."""

        def made() -> Run:
            loaded = self._loaded.with_numbers(point)
            self._last = make_run(loaded, "auto" if self._asked == "c" else self._asked, like=self._last)
            return self._last

        return _guarded(made)

    def alone(self, run: Run) -> dict[str, Any]:
        """The metrics of a run."""

        def metrics() -> dict[str, Any]:
            take_engine(run.loop, run.start, run.settings, self._engine)
            return metrics_of(simulate_loop(run.loop, run.start, run.settings, drawing=False).summary())

        return _guarded(metrics)


T = TypeVar("T")


@np.errstate(all="ignore")
def _guarded(work: Callable[[], T]) -> T | dict[str, Any]:
    """What the work gives, or the row of a run that failed."""
    try:
        return work()
    except ServoctlError as error:
        return {"status": REFUSED, "error": "; ".join(str(error).splitlines())}
    except Exception as error:  # a user's plant may raise anything: the other runs go on
        return {"status": CRASHED, "error": in_one_line(error)}


def metrics_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run.

    Returns:
        `status`, `error`, `engine`, `max_violation`, `rms_violation` and `final_violation` (of the worst task, and
        with `.<task>` of each), `input_rms.<actuator>`, `input_max.<actuator>`, `residual_max`, `pivot_min`.
    """
    kept: dict[str, Any] = {"status": summary["status"], "error": summary.get("error"), "engine": summary["engine"]}
    for metric in VIOLATIONS:
        own = {f"{metric}.{task}": values[metric] for task, values in summary["tasks"].items()}
        if own:
            kept[metric] = None if None in own.values() else max(own.values())
        kept |= own
    for actuator, values in summary["inputs"].items():
        sides = [abs(side) for side in (values["min"], values["max"]) if side is not None]
        kept |= {f"input_rms.{actuator}": values["rms"], f"input_max.{actuator}": max(sides, default=None)}
    return kept | {name: summary[name] for name in ("residual_max", "pivot_min") if name in summary}


_series: Series | None = None
"""Of a process that works for `run_all`."""


def _begin(loaded: LoadedConfig, asked: str, engine: Way) -> None:
    global _series
    signal(SIGINT, SIG_IGN)  # the parent ends the work
    _series = Series(loaded, asked, engine)


def _work(point: Mapping[str, float]) -> dict[str, Any]:
    assert _series is not None
    return _series(point)
