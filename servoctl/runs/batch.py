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
from typing import Any, TypeVar

import numpy as np

from servoctl.config.load import LoadedConfig
from servoctl.config.overrides import is_number, setting
from servoctl.errors import ConfigError, ServoctlError, in_one_line
from servoctl.runs.engine import batch_library, take_engine
from servoctl.runs.make import make_run
from servoctl.runs.many import SideBySide
from servoctl.runs.metrics import metrics_of
from servoctl.runs.run import Run
from servoctl.simulation import simulate_loop

REFUSED = "refused"
"""Status of a run that could not start; `error` says why."""

CRASHED = "crashed"
"""Status of a run whose own code raised what it should not have."""

CHUNKS = 32
"""Pieces that each process gets its work in: few enough to cost nothing, enough to end together."""


def batch(
    run: Run, parameters: Mapping[str, Sequence[float]], jobs: int = 1, progress: Callable[[float], None] | None = None
) -> dict[str, list[Any]]:
    """`Run.batch`."""
    lengths = {path: len(values) for path, values in parameters.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{path} {length}" for path, length in lengths.items())
        raise ConfigError(f"Run.batch: expected lists of one length, got {shown}")
    count = next(iter(lengths.values()), 0)
    points = [{path: _number(path, values[i]) for path, values in parameters.items()} for i in range(count)]
    rows = []
    for row in run_all(run, points, jobs):
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
    run: Run, points: Sequence[Mapping[str, Any]], jobs: int = 1, planned: int | None = None
) -> Iterator[dict[str, Any]]:
    """The metrics of each run, in order, as they come.

    Args:
        run: The config; a run that was made in Python has none.
        points: Path -> value, a number or a word, one mapping per run.
        jobs: Processes, or threads of generated C, that work at the same time.
        planned: How many runs there will be in all calls together, which is what compiling must pay for; None: these.

    Raises:
        ConfigError: The run was not loaded from a config.
    """
    planned = max(planned or 0, len(points))
    if run.loaded is None:
        raise ConfigError("Run.batch: this run has no config (take one from servoctl.load)")
    library = batch_library(run.loop, run.start, run.settings, run.engine, planned)
    if library is not None:
        series = Series(run.loaded, run.engine, "c", run)
        yield from SideBySide(run, library, series.make, series.alone, metrics_of).rows(points, jobs)
        return
    engine = _engine(run, planned)
    if jobs <= 1 or len(points) <= 1:
        series = Series(run.loaded, run.engine, engine, run)
        yield from map(series, points)
        return
    share = -(-len(points) // (min(jobs, len(points)) * CHUNKS))
    given = (run.loaded, run.engine, engine)
    with ProcessPoolExecutor(min(jobs, len(points)), get_context("spawn"), _begin, given) as pool:
        try:
            yield from pool.map(_work, points, chunksize=share)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _engine(run: Run, count: int) -> str:
    """The engine that so many runs are worth: `c`, or `vm` for whatever the loop is on already."""
    together = replace(run.settings, duration=run.settings.duration * max(count, 1))
    take_engine(run.loop, run.start, together, run.engine)
    return "c" if run.loop.engine == "c" else "vm"


class Series:
    """Runs one after the other, each of which starts from what the one before has compiled."""

    def __init__(self, loaded: LoadedConfig, asked: str, engine: str, first: Run | None = None) -> None:
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


_series: Series | None = None
"""Of a process that works for `run_all`."""


def _begin(loaded: LoadedConfig, asked: str, engine: str) -> None:
    global _series
    signal(SIGINT, SIG_IGN)  # the parent ends the work
    _series = Series(loaded, asked, engine)


def _work(point: Mapping[str, Any]) -> dict[str, Any]:
    assert _series is not None
    return _series(point)
