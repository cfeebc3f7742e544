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

from servoctl.assembly.make import make_run
from servoctl.assembly.paths import brief
from servoctl.assembly.run import Run
from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import is_number, setting
from servoctl.errors import CompileError, ConfigError, ServoctlError, in_one_line
from servoctl.simulation.engine_choice import batch_library, take_engine
from servoctl.simulation.simulate import simulate_loop
from servoctl.sweep.metrics import metrics_of
from servoctl.sweep.side_by_side import SideBySide

if TYPE_CHECKING:
    from servoctl.sweep.cluster import Cluster

REFUSED = "refused"
"""Status of a run that could not start; `error` says why."""

CRASHED = "crashed"
"""Status of a run whose own code raised what it should not have."""

Backend = Literal["side by side", "c", "vm"]
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
    """Runs one config once per set of values.

    Args:
        run: The config, from `servoctl.load`.
        parameters: Path in the config -> one value per run, all of one length, as `--set PATH=VALUE` takes them.
        jobs: Threads of generated C, else processes, that work at the same time; the result does not depend on it.
        progress: Called now and then with the fraction that is done, 0 to 1.
        cluster: Does the work instead of this machine; None: this machine does it.

    Returns:
        Metric -> one value per run: `status`, `error`, and the numbers of `metrics_of`; None where a run ended before
        the number existed.

    Raises:
        ConfigError: The run was not loaded from a config, or the lists differ in length.
        ClusterError: The cluster is lost.
    """
    lengths = {path: len(values) for path, values in parameters.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path} {length}" for path, length in lengths.items())
        raise ConfigError(f"batch: expected lists of one length, got {shown}")
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
        raise ConfigError(f"batch: {path}: expected a number, got {value!r}") from error


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows -> columns, None where a row lacks one; `status` and `error` first."""
    names = dict.fromkeys(["status", "error", *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in names}


def run_all(
    run: Run,
    points: Sequence[Mapping[str, Any]],
    jobs: int = 1,
    cluster: "Cluster | None" = None,
    planned: int | None = None,
    processes: "Processes | None" = None,
) -> Iterator[Row]:
    """The metrics of each run, in order, as they come.

    Args:
        run: The config; a run that was made in Python has none.
        points: Path -> value, a number or a word, one mapping per run.
        jobs: Processes, or threads of generated C, that work at the same time.
        cluster: What does the work instead of this machine; the rows are the same.
        planned: How many runs there will be in all calls together, which is what compiling must pay for; None: these.
        processes: Those of the caller, kept for the next call; None: own ones, where they are needed.

    Raises:
        ConfigError: The run was not loaded from a config.
        ClusterError: The cluster is lost; what it had done has been handed out.
    """
    if run.loaded is None:
        raise ConfigError("batch: this run has no config (take one from servoctl.load)")
    way = _way(run, max(planned or 0, len(points)))
    if cluster is not None:
        yield from cluster.rows(run, way, points)
    elif way == "side by side" or jobs <= 1 or len(points) <= 1:
        yield from rows_of(run, way, points, jobs)
    elif processes is not None:
        yield from processes.rows(run, way, points)
    else:
        with Processes(min(jobs, len(points))) as own:
            yield from own.rows(run, way, points)


def _way(run: Run, count: int) -> Backend:
    """How so many runs are taken: decided once, whoever does the work."""
    if batch_library(run.loop, run.start, run.settings, run.engine, count) is not None:
        return "side by side"
    together = replace(run.settings, duration=run.settings.duration * max(count, 1))
    take_engine(run.loop, run.start, together, run.engine)
    return "c" if run.loop.engine == "c" else "vm"


def rows_of(run: Run, way: Backend, points: Sequence[Mapping[str, Any]], threads: int = 1) -> Iterator[Row]:
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


class Processes:
    """Processes that work for a config from one call to the next; a context that ends them."""

    def __init__(self, jobs: int) -> None:
        """Takes their number."""
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._given: tuple[LoadedConfig, str, Backend] | None = None

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(wait=kind is None)

    def rows(self, run: Run, way: Backend, points: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        """The rows of some runs, taken one by one."""
        assert run.loaded is not None
        share = -(-len(points) // (self.jobs * CHUNKS))
        yield from self._working(run.loaded, run.engine, way).map(_work, points, chunksize=share)

    def _working(self, *given: Any) -> ProcessPoolExecutor:
        if self._pool is None or self._given != given:
            self._end(wait=True)
            self._pool = ProcessPoolExecutor(self.jobs, get_context("spawn"), _begin, given)
            self._given = given
        return self._pool

    def _end(self, wait: bool) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=not wait)


class Series:
    """Runs one after the other, each of which starts from what the one before has compiled."""

    def __init__(self, loaded: LoadedConfig, asked: str, engine: Backend, first: Run | None = None) -> None:
        """Takes a config.

        Args:
            loaded: The config.
            asked: Engine that was asked for.
            engine: `c`, or `vm` for what the loop starts on.
            first: The config as a run, where there is one.
        """
        self._loaded, self._asked, self._engine, self._last = loaded, asked, engine, first

    def __call__(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of the run with these values."""
        run = self.make(point)
        return self.alone(run) if isinstance(run, Run) else run

    def make(self, point: Mapping[str, Any]) -> Run | dict[str, Any]:
        """The run with these values, checked; or the row that says why there is none."""

        def made() -> Run:
            words = [setting(path, value) for path, value in point.items() if not is_number(value)]
            loaded = self._loaded.overridden(words) if words else self._loaded
            loaded = loaded.with_numbers({path: value for path, value in point.items() if is_number(value)})
            self._last = make_run(loaded, "auto" if self._asked == "c" else self._asked, like=self._last)
            return self._last

        return _guarded(made)

    def alone(self, run: Run) -> dict[str, Any]:
        """The metrics of a run."""

        def metrics() -> dict[str, Any]:
            take_engine(run.loop, run.start, run.settings, self._engine)
            done = simulate_loop(run.loop, run.start, run.settings, drawing=False, ending=run.ending)
            return metrics_of(done.summary())

        return _guarded(metrics)


T = TypeVar("T")


@np.errstate(all="ignore")
def _guarded(work: Callable[[], T]) -> T | dict[str, Any]:
    """What the work gives, or the row of a run that failed."""
    try:
        return work()
    except ServoctlError as error:
        return {"status": REFUSED, "error": "; ".join(map(brief, str(error).splitlines()))}
    except (Exception, SystemExit) as error:  # a user's plant may raise anything: the other runs go on
        return {"status": CRASHED, "error": in_one_line(error)}


_series: Series | None = None
"""Of a process that works for `run_all`."""


def _begin(loaded: LoadedConfig, asked: str, engine: Backend) -> None:
    global _series
    signal(SIGINT, SIG_IGN)  # the parent ends the work
    _series = Series(loaded, asked, engine)


def _work(point: Mapping[str, Any]) -> dict[str, Any]:
    assert _series is not None
    return _series(point)
