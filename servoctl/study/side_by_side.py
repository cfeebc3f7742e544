"""Runs of one config that advance side by side in generated C; only their metrics are kept.

Design: one thread prepares as many runs at a time as the processor has SIMD lanes, while the other threads integrate in
C. Rows are yielded in order, so memory holds a few blocks however many runs there are. A run that does not fit into the
batch, or that stops early, is simulated alone, with its usual messages.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from servoctl.assembly.run import Run
from servoctl.engine.batch import BatchLibrary, BatchPlan, BatchResult
from servoctl.engine.step import DelayLayout
from servoctl.simulation.engine_choice import batch_library
from servoctl.simulation.monitor import MotionMonitor
from servoctl.simulation.realism import tick_noise
from servoctl.simulation.side_by_side import plan_of, summary_of
from servoctl.study.metrics import Row, metrics_of
from servoctl.study.points import Point
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
        make: A point -> its run, checked; or the row of a run that is refused.
        alone: A run -> its row, simulated by itself.
    """

    def __init__(
        self, run: Run, library: BatchLibrary, make: Callable[[Point], Run | Row], alone: Callable[[Run], Row]
    ) -> None:
        self._run, self._lanes = run, library.lanes
        self._libraries: dict[DelayLayout | None, BatchLibrary | None] = {run.loop.form: library}
        self._make, self._alone = make, alone
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
        made = [self._make(point) for point in points]
        waits: list[Callable[[], Row]] = [partial(self._one, run) for run in made]
        groups: dict[Any, list[int]] = {}
        for i, run in enumerate(made):
            if isinstance(run, Run) and self._fits(run):
                key = run.start.t, replace(run.settings, seed=0), run.loop.form
                groups.setdefault(key, []).append(i)
        for indices in groups.values():
            runs = [run for run in (made[i] for i in indices) if isinstance(run, Run)]
            plan, library = plan_for(runs[0]), self._library(runs[0])
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

    def _one(self, run: Run | Row) -> Row:
        return self._alone(run) if isinstance(run, Run) else run

    def _finish(self, future: "Future[BatchResult]", plan: BatchPlan, lane: int, run: Run) -> Row:
        summary = summary_of(run.loop, future.result(), lane, plan)
        if summary is None:
            return self._alone(run)
        return metrics_of(summary | {"status": "done", "engine": "c"})


def plan_for(run: Run) -> BatchPlan | None:
    """The plan of a batch of runs like this one; None if they cannot run side by side."""
    s = run.settings
    return plan_of(run.loop, run.start.t, s.duration, s.integrator, s.period, s.output_step, s.settling_band)


def random_of(runs: Sequence[Run], ticks: int) -> tuple[Array, Array] | tuple[()]:
    """Random numbers of noisy runs: one table per seed, and the index of each run's table; empty without noise."""
    realism = runs[0].system.realism
    if realism is None or not realism.random:
        return ()
    seeds = list(dict.fromkeys(run.settings.seed for run in runs))
    tables = np.array([tick_noise(seed, 0, ticks, runs[0].system.model.n) for seed in seeds])
    return tables, np.array([seeds.index(run.settings.seed) for run in runs], dtype=np.int64)


def _random_count(runs: Sequence[Run], ticks: int) -> int:
    """Number of random numbers in the tables of these runs."""
    realism = runs[0].system.realism
    return 0 if realism is None else len({run.settings.seed for run in runs}) * ticks * realism.width
