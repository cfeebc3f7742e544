"""Runs one config with many sets of values, in this process, in others or on a cluster, and returns their metrics.

Design: the backend is chosen once, before the work is divided, so the number of processes does not change the results.
Each run is the config with its own values, checked as `load` checks it, so its numbers are those of a single
run on the same engine, bit for bit. Only tracing is saved: a run whose plant, task and law differ from the previous
one's in parameters alone reuses its compiled functions.

Side by side in generated C only metrics are kept: the steps are the same to the bit, their sums are taken in another
order. One thread prepares as many runs at a time as the processor has SIMD
lanes, while the other threads integrate in C. Rows are yielded in order, so memory holds a few blocks however many runs
there are. A run that does not fit into the batch, or that stops early, is simulated alone, with its usual messages.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np

from servoctl.assembly.make import make_run
from servoctl.assembly.run import Run
from servoctl.assembly.values import Results
from servoctl.config.load import LoadedConfig
from servoctl.engine.ccode import BatchLibrary, BatchPlan, BatchResult
from servoctl.engine.step import DelayLayout
from servoctl.errors import ClusterError, CompileError, ConfigError, ServoctlError, in_one_line
from servoctl.simulation.engine_choice import batch_library, take_engine
from servoctl.simulation.monitor import MotionMonitor
from servoctl.simulation.realism import tick_noise
from servoctl.simulation.side_by_side import plan_of, summary_of
from servoctl.simulation.simulate import simulate_loop
from servoctl.study.metrics import Row, metrics_of
from servoctl.study.points import Point, brief
from servoctl.types import Array

MOST_RANDOM = 2**24
"""Random numbers drawn in advance for runs side by side (128 MB); runs that need more are simulated alone, which draws
them step by step."""


STACK = 16 * 2**20  # stack of a thread that runs generated C [bytes]: its functions keep what is in all lanes there


@contextmanager
def _deep_threads() -> Iterator[None]:
    """Threads that begin meanwhile have a stack of `STACK`, whatever the process has."""
    before = threading.stack_size(STACK)
    try:
        yield
    finally:
        threading.stack_size(before)


class SideBySide:
    """Makes the runs of a config side by side where that is possible.

    Args:
        run: The config; the library integrates its steps.
        library: The generated C.
        series: Makes the runs, and simulates alone those that do not fit.
    """

    def __init__(self, run: Run, library: BatchLibrary, series: "Series") -> None:
        self._run, self._lanes = run, library.lanes
        self._libraries: dict[DelayLayout | None, BatchLibrary | None] = {run.loop.form: library}
        self._series = series
        self._substeps = run.settings.substeps
        self._halt = np.zeros(1, dtype=np.int64)

    def rows(self, points: Sequence[Point], threads: int) -> Iterator[Row]:
        """Yields the row of each point, in order."""
        block = self._lanes
        waiting: deque[list[Callable[[], Row]]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                for begin in range(0, len(points), block):
                    waiting.append(self._block(points[begin : begin + block], pool))
                    while len(waiting) > 2 * threads:
                        yield from (finish() for finish in waiting.popleft())
                while waiting:
                    yield from (finish() for finish in waiting.popleft())
            except BaseException:
                self._halt[0] = 1  # the C code polls this flag
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _block(self, points: Sequence[Point], pool: ThreadPoolExecutor) -> list[Callable[[], Row]]:
        """Starts the runs of a block; returns one function per run that waits for its row."""
        made = [self._series.make(point) for point in points]
        waits: list[Callable[[], Row]] = [partial(self._series.row, run) for run in made]
        groups: dict[Any, list[int]] = {}
        for i, run in enumerate(made):
            if isinstance(run, Run) and self._fits(run):
                key = run.start.t, replace(run.settings, seed=0), run.loop.form
                groups.setdefault(key, []).append(i)
        for indices in groups.values():
            runs = [run for run in (made[i] for i in indices) if isinstance(run, Run)]
            first, library = runs[0], self._library(runs[0])
            plan = plan_of(first.loop, first.start.t, first.settings)
            if plan is not None and library is not None and _random_count(runs, len(plan.times)) <= MOST_RANDOM:
                with _deep_threads():  # the pool makes a thread when it is given work
                    future = pool.submit(self._take, library, plan, runs)
                for lane, i in enumerate(indices):
                    waits[i] = partial(self._finish, future, plan, lane, runs[lane])
        return waits

    def _library(self, run: Run) -> BatchLibrary | None:
        """The library for runs with this delay, compiled for the first of them; None if it cannot be compiled."""
        layout = run.loop.form
        if layout not in self._libraries:
            self._libraries[layout] = batch_library(run.loop, run.start, run.settings, "c", 2)
        return self._libraries[layout]

    def _take(self, library: BatchLibrary, plan: BatchPlan, runs: Sequence[Run]) -> BatchResult:
        starts = np.array([run.loop.vector(run.start) for run in runs])
        parameters = np.array([run.loop.step_parameters for run in runs])
        return library.run(plan, parameters, starts, self._halt, *random_of(runs, len(plan.times)))

    def _fits(self, run: Run) -> bool:
        """Whether a run evaluates the functions of the config, in as many steps per hold, and no judge needs rows."""
        loop = run.loop
        return (
            loop.shares_functions(self._run.loop)
            and run.settings.substeps == self._substeps
            and not MotionMonitor(loop, run.start, run.settings).needs_rows
        )

    def _finish(self, future: "Future[BatchResult]", plan: BatchPlan, lane: int, run: Run) -> Row:
        summary = summary_of(run.loop, future.result(), lane, plan)
        if summary is None:
            return self._series.row(run)
        return metrics_of(summary | {"status": "done", "engine": "c"})


def random_of(runs: Sequence[Run], ticks: int) -> tuple[Array, Array] | tuple[()]:
    """Random numbers of noisy runs: one table per seed, and the index of each run's table; empty without noise."""
    realism = runs[0].system.realism
    if realism is None or not realism.random:
        return ()
    seeds = list(dict.fromkeys(run.settings.seed for run in runs))
    tables = np.array([tick_noise(seed, 0, ticks, runs[0].system.model.n) for seed in seeds])
    return tables, np.array([seeds.index(run.settings.seed) for run in runs], dtype=np.int64)


def _random_count(runs: Sequence[Run], ticks: int) -> int:
    realism = runs[0].system.realism
    return 0 if realism is None else len({run.settings.seed for run in runs}) * ticks * realism.width


REFUSED = "refused"  # status of a run that could not start; `error` says why
CRASHED = "crashed"  # status of a run in which the user's code raised an unexpected exception

Backend = Literal["side by side", "c", "vm"]
"""How runs are made: side by side in C, or one by one; `vm` stands for the engine that the loop starts on."""


class Workers(Protocol):
    """They make runs: a cluster, or this machine."""

    def rows(self, run: Run, backend: Backend, points: Sequence[Point]) -> Iterator[Row]:
        """Yields the row of each run, in order."""


CHUNKS = 32
"""Pieces of work per process: few, so that handing them out costs little; enough that all processes end together."""


def run_at(run: Run, point: Point) -> Run:
    """A run of the config with other values, whatever problem the model has; compiled functions are reused.

    Args:
        point: Path -> value.

    Raises:
        ConfigError: The config does not accept a value.
    """
    assert run.loaded is not None
    return make_run(run.loaded.with_values(point), run.engine, False, run.results)


def at_every_step(run: Run) -> Run:
    """The run without `run.output_step`, so that its metrics are those of every step."""
    if run.loaded is None or run.settings.output_step is None:
        return run
    return run_at(run, {"run.output_step": None})


class Broken:
    """Why the runs of a study ended early; `why` is None if they did not, or if a person interrupted them."""

    why: str | None = None


@contextmanager
def until_broken(noun: str) -> Iterator[Broken]:
    """Makes the runs of a study; a lost cluster, a worker process that dies, or Ctrl-C ends them without an error."""
    broken = Broken()
    try:
        yield broken
    except KeyboardInterrupt:
        pass  # the summary says `interrupted`
    except ClusterError as error:
        broken.why = str(error)
    except BrokenProcessPool:
        broken.why = f"a worker process of the {noun} was killed, or ran out of memory (use fewer --jobs)"


def rows_of(run: Run, backend: Backend, points: Sequence[Point], threads: int = 1) -> Iterator[Row]:
    """The rows of some runs, made in this process.

    Raises:
        CompileError: The backend is `side by side`, and there is no compiler.
    """
    assert run.loaded is not None
    if backend != "side by side":
        yield from map(Series(run.loaded, run.engine, backend, run), points)
        return
    library = batch_library(run.loop, run.start, run.settings, "c", max(2, len(points)))
    if library is None:
        raise CompileError("runs side by side: generated C cannot be compiled here (take --engine vm)")
    series = Series(run.loaded, run.engine, "c", run)
    yield from SideBySide(run, library, series).rows(points, threads)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that begin meanwhile ignore Ctrl-C from their start on; their parent hears it, and ends them."""
    if threading.current_thread() is not threading.main_thread():  # only there may handlers change
        yield
        return
    before = signal(SIGINT, SIG_IGN)
    try:
        yield
    finally:
        signal(SIGINT, before)


class Machine:
    """This machine; a context manager that ends its processes, which stay alive from one call to the next.

    Args:
        jobs: Threads of generated C, or else processes, that work at the same time; the rows do not depend on it.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._config: tuple[LoadedConfig, str, Backend] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(wait=kind is None)

    def rows(self, run: Run, backend: Backend, points: Sequence[Point]) -> Iterator[Row]:
        """Yields the row of each run, in order."""
        assert run.loaded is not None
        if backend == "side by side" or self._jobs <= 1 or len(points) <= 1:
            yield from rows_of(run, backend, points, self._jobs)
            return
        config = run.loaded, run.engine, backend
        if self._pool is None or self._config != config:
            self._end(wait=True)
            self._pool, self._config = ProcessPoolExecutor(self._jobs, get_context("spawn"), _begin, config), config
        size = -(-len(points) // (self._jobs * CHUNKS))
        with _uninterrupted():  # it starts the processes
            rows = self._pool.map(_work, points, chunksize=size)
        try:
            yield from rows
        except (Exception, KeyboardInterrupt):
            self._end(wait=False)
            raise

    def _end(self, wait: bool) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=not wait)
            self._pool = None


class Series:
    """Makes runs one after the other; each reuses what the previous one has compiled.

    Args:
        requested: Engine that the user asked for.
        engine: `c`, or `vm` for the engine that the loop starts on.
        first: A run of the config, if there is one.
    """

    def __init__(self, loaded: LoadedConfig, requested: str, engine: Backend, first: Run | None = None) -> None:
        self._loaded, self._engine = loaded, engine
        self._requested = "auto" if requested == "c" else requested
        self._results = Results() if first is None else first.results

    def __call__(self, point: Point) -> Row:
        """The metrics of the run with these values."""
        return self.row(self.make(point))

    def make(self, point: Point) -> Run | Row:
        """The run with these values, checked; or the row of a run that the config refuses."""

        return _guarded(lambda: make_run(self._loaded.with_values(point), self._requested, results=self._results))

    def row(self, run: Run | Row) -> Row:
        """The metrics of a run, simulated by itself; of one that is refused, its row."""
        if not isinstance(run, Run):
            return run

        def metrics() -> Row:
            take_engine(run.loop, run.start, run.settings, self._engine)
            result = simulate_loop(run.loop, run.start, run.settings, drawing=False, ending=run.ending)
            return metrics_of(result.summary())

        return _guarded(metrics)


T = TypeVar("T")


@np.errstate(all="ignore")
def _guarded(work: Callable[[], T]) -> T | Row:
    """The result of the work, or the row of a run that failed."""
    try:
        return work()
    except ServoctlError as error:
        return {"status": REFUSED, "error": "; ".join(map(brief, str(error).splitlines()))}
    except (Exception, SystemExit) as error:  # a user's plant may raise anything, and the other runs must go on
        return {"status": CRASHED, "error": in_one_line(error)}


_series: Series | None = None  # the series of a worker process


def _begin(loaded: LoadedConfig, requested: str, engine: Backend) -> None:
    global _series
    signal(SIGINT, SIG_IGN)  # Ctrl-C reaches the parent too, which ends the workers
    os.dup2(2, 1)  # stdout is for the result alone: what a user's plant prints goes to stderr
    _series = Series(loaded, requested, engine)


def _work(point: Point) -> Row:
    assert _series is not None
    return _series(point)


def batch(
    run: Run,
    parameters: Mapping[str, Sequence[float]],
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
    cluster: Workers | None = None,
) -> dict[str, list[Any]]:
    """Runs one config once per set of values.

    Args:
        run: The config, from `servoctl.load`.
        parameters: Path in the config -> one value per run, all of one length, as `--set PATH=VALUE` takes them.
        jobs: Threads of generated C, or else processes, that work at the same time; the result does not depend on it.
        progress: Called now and then with the fraction that is done, 0 to 1.
        cluster: Makes the runs; None: this machine makes them.

    Returns:
        Metric -> one value per run: `status`, `error`, and the numbers of `metrics_of`; None where a run ended before
        the number existed.

    Raises:
        ConfigError: The run was not loaded from a config, or the lists differ in length.
        ClusterError: The connection to the cluster is lost.
    """
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"batch: expected a mapping of paths to lists of values, got {parameters!r}")
    lengths = {path: len(values) for path, values in parameters.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path} {length}" for path, length in lengths.items())
        raise ConfigError(f"batch: expected lists of one length, got {shown}")
    count = next(iter(lengths.values()), 0)
    points = [{path: _number(path, values[i]) for path, values in parameters.items()} for i in range(count)]
    rows = []
    with Machine(jobs) as machine:
        for row in run_all(run, points, cluster or machine):
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
    """Rows as columns, `status` and `error` first; None where a row has no value."""
    names = dict.fromkeys(["status", "error", *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in names}


def run_all(
    run: Run, points: Sequence[Point], workers: Workers | None = None, planned: int | None = None
) -> Iterator[Row]:
    """Yields the metrics of each run, in the order of the points.

    Args:
        points: Path -> value, a number or a word, one mapping per run.
        workers: Make the runs; the rows do not depend on them. None: this process, one after the other.
        planned: Number of runs in all calls together, which decides whether compiling pays; None: those of this call.

    Raises:
        ConfigError: The run was not loaded from a config.
        ClusterError: The connection to the cluster is lost; the rows of finished runs have been yielded.
    """
    if run.loaded is None:
        raise ConfigError("batch: this run has no config (take one from servoctl.load)")
    yield from (workers or Machine()).rows(run, _backend(run, max(planned or 0, len(points))), points)


def _backend(run: Run, count: int) -> Backend:
    if batch_library(run.loop, run.start, run.settings, run.engine, count) is not None:
        return "side by side"
    together = replace(run.settings, duration=run.settings.duration * max(count, 1))
    take_engine(run.loop, run.start, together, run.engine)
    return "c" if run.loop.engine == "c" else "vm"
