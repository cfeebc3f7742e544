"""Runs one config with many sets of values; functions that fit several runs are compiled once.

Design: the backend is chosen once, before the work is divided, so the number of processes does not change the results.
On generated C, runs of fixed steps advance side by side (`side_by_side`) and their metrics are accumulated on the way:
the steps are the same to the bit, the sums are taken in another order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from servoctl.assembly.run import Run
from servoctl.errors import ConfigError
from servoctl.simulation.engine_choice import batch_library, take_engine
from servoctl.study.metrics import Row
from servoctl.study.points import Point
from servoctl.study.series import Backend, Processes, rows_of

if TYPE_CHECKING:
    from servoctl.study.cluster import Cluster


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
    """Rows as columns, `status` and `error` first; None where a row has no value."""
    names = dict.fromkeys(["status", "error", *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in names}


def run_all(
    run: Run,
    points: Sequence[Point],
    jobs: int = 1,
    cluster: "Cluster | None" = None,
    planned: int | None = None,
    processes: Processes | None = None,
) -> Iterator[Row]:
    """Yields the metrics of each run, in the order of the points.

    Args:
        points: Path -> value, a number or a word, one mapping per run.
        jobs: Processes, or threads of generated C, that work at the same time.
        cluster: Makes the runs instead of this machine; the rows are the same.
        planned: Number of runs in all calls together, which decides whether compiling pays; None: those of this call.
        processes: Worker processes to reuse; None: starts processes for this call, if it needs any.

    Raises:
        ConfigError: The run was not loaded from a config.
        ClusterError: The connection to the cluster is lost; the rows of finished runs have been yielded.
    """
    if run.loaded is None:
        raise ConfigError("batch: this run has no config (take one from servoctl.load)")
    backend = _backend(run, max(planned or 0, len(points)))
    if cluster is not None:
        yield from cluster.rows(run, backend, points)
    elif backend == "side by side" or jobs <= 1 or len(points) <= 1:
        yield from rows_of(run, backend, points, jobs)
    elif processes is not None:
        yield from processes.rows(run, backend, points)
    else:
        with Processes(min(jobs, len(points))) as started:
            yield from started.rows(run, backend, points)


def _backend(run: Run, count: int) -> Backend:
    if batch_library(run.loop, run.start, run.settings, run.engine, count) is not None:
        return "side by side"
    together = replace(run.settings, duration=run.settings.duration * max(count, 1))
    take_engine(run.loop, run.start, together, run.engine)
    return "c" if run.loop.engine == "c" else "vm"
