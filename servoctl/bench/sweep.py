"""Many closed-loop runs with different gains in one call, on one core and on several."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from servoctl.assembly.make import load
from servoctl.assembly.run import Run
from servoctl.bench import peers
from servoctl.bench.closed_loop import DURATION, PART, STEP, pinocchio_part
from servoctl.bench.report import BenchReport, Comparison, Effort, Progress, TextTable, at_most
from servoctl.bench.timing import shown
from servoctl.sweep.batch import batch
from servoctl.sweep.metrics import metrics_of

COUNT, ROUNDS = 256, 3
GAIN = "law.correction.baumgarte"
LOW, HIGH = 5.0, 20.0  # [1/s]
Metrics = Mapping[str, Sequence[Any]]
PARTS = 5
"""Timings of Pinocchio's part after each batch."""

CHECKED = 3
"""Runs of the batch that are repeated one by one."""

TOLERANCE = 1e-9
"""Largest difference of a metric at which runs count as equal."""


def sweep(effort: Effort, progress: Progress) -> BenchReport:
    """256 gain sets of the closed loop of two robots, 2 pi s each, on one core and on several.

    Args:
        effort: Quick takes four gain sets of a tenth of a second, once.
        progress: Called with the share of batches that are done.
    """
    count, rounds = (4, 1) if effort.quick else (COUNT, ROUNDS)
    run = our_run(effort.quick)
    gains = gain_sets(count)
    cores = [jobs for jobs in (1, 2, 4, 8, 16, 32) if jobs <= (os.cpu_count() or 1)]
    pinocchio = None if effort.quick else pinocchio_part(PART)
    parts: list[float] = []
    times: dict[int, list[float]] = {jobs: [] for jobs in cores}
    metrics: dict[int, Metrics] = {}
    batch(run, {path: values[:1] for path, values in gains.items()})  # compiles and fills the cache
    for turn in range(rounds):
        for number, jobs in enumerate(cores):
            with on_cores(jobs):
                began = time.perf_counter()
                metrics[jobs] = batch(run, gains, jobs)
                times[jobs].append(time.perf_counter() - began)
            parts += [] if pinocchio is None else pinocchio(PARTS).tolist()
            progress((turn * len(cores) + number + 1) / (rounds * len(cores)))
    medians = {jobs: float(np.median(each)) for jobs, each in times.items()}
    off = max(difference(metrics[1], metrics[jobs], k, k) for jobs in cores for k in range(count))
    for k in np.linspace(0, count - 1, CHECKED).astype(int).tolist():
        off = max(off, difference(metrics[1], alone(gains, k, effort.quick), k, 0))
    rows = [
        [f"servoctl, {jobs} core{'s' if jobs > 1 else ''}", shown(seconds), shown(seconds / count),
         f"{medians[1] / (jobs * seconds):.0%}"]
        for jobs, seconds in medians.items()
    ]  # fmt: skip
    notes = peers.notes()
    ends = ", ".join(sorted({str(status) for status in metrics[1]["status"]}))
    notes.append(
        f"every run ended as {ends}; largest difference between the metrics of the batch, on one and on several cores, "
        f"and of {CHECKED} single runs: {off:.1e} (equal up to {TOLERANCE:g})"
    )
    theirs = float(np.median(parts)) * DURATION / (PART * STEP) if parts else None
    work = f"{count} gain sets of two robots, 2 pi s"
    findings = []
    best = max(cores) if 2 not in cores else 2
    if theirs is not None:
        rows.append([f"Pinocchio + pinv, 1 core (x {count * DURATION / (PART * STEP):.3g})", shown(theirs * count),
                     shown(theirs), ""])  # fmt: skip
        notes.append(f"Pinocchio: {PART} steps of one run are timed and extrapolated")
        if off <= TOLERANCE:
            findings.append(Comparison(f"{work}, {best} cores", "Pinocchio + pinv, 1 core", medians[best],
                                    theirs * count, 100.0))  # fmt: skip
    if not effort.quick:
        findings.append(at_most(f"{work}, {best} cores", medians[best], 1.0))
    if 2 in cores and not effort.quick:
        findings.append(Comparison(f"{work}, 2 cores", "1 core", medians[2], medians[1], 1.8))
    values = {"count": count, "seconds": medians, "difference": off, "pinocchio_seconds_each": theirs}
    table = TextTable("All runs, each run, and efficiency", ("", "all", "each", "efficiency"), rows)
    return BenchReport("Sweep: gains of two robots", [table], values, notes, findings)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Binds the process to some of its cores: the thread that prepares runs would take part of another one."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def our_run(quick: bool, overrides: Sequence[str] = ()) -> Run:
    """The closed loop with the object 9 cm too high at the start, so that the gains matter."""
    outer = np.radians(65.0)
    inner = np.arccos(1.0 - np.cos(outer))  # the loop stays closed
    q = [float(angle) for angle in (outer, -inner, 0.0, inner, -outer)]
    settings = [f"initial.q={q!r}", "initial.max_violation=1", *(["run.duration=0.1"] if quick else [])]
    return load("coordinated_robots", [*settings, *overrides])


def gain_sets(count: int) -> dict[str, list[float]]:
    """Evenly spread pairs of alpha and beta [1/s]; the same for each call."""
    k = np.arange(count)
    spread = [(k + 0.5) / count, ((k + 0.5) * 0.6180339887498949) % 1.0]
    return {
        f"{GAIN}.{name}": (LOW + (HIGH - LOW) * part).tolist()
        for name, part in zip(("alpha", "beta"), spread, strict=True)
    }


def alone(gains: Mapping[str, Sequence[float]], k: int, quick: bool) -> Metrics:
    """Metrics of one run of the batch, run alone."""
    values = [f"{path}={each[k]!r}" for path, each in gains.items()]
    summary = our_run(quick, values).simulate().summary()
    return {name: [value] for name, value in metrics_of(summary).items()}


def difference(one: Metrics, other: Metrics, i: int, j: int) -> float:
    """Largest difference of a number between run `i` of one and run `j` of the other; infinite where one is missing."""
    off = 0.0
    for name, values in one.items():
        if isinstance(values[i], float):
            value = other[name][j] if name in other else None
            off = max(off, abs(values[i] - value) if isinstance(value, float) else np.inf)
    return off
