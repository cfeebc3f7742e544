"""Runs of one config side by side in generated C: metrics only, on as many threads as are asked for.

Design: one thread makes the runs ready, as many at a time as the processor has lanes, while the others take their
steps in C; rows are handed out in order, so memory holds a few blocks whatever the number of runs. A run that the batch
cannot take, or that meets something to stop at, is taken alone and says what it always says.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from servoctl.assembly.run import Run
from servoctl.engine.batch import BatchLibrary, BatchPlan, BatchResult
from servoctl.engine.step import DelayLayout
from servoctl.simulation.engine_choice import batch_library
from servoctl.simulation.noise import tick_noise
from servoctl.simulation.side_by_side import channels, plan_of, summary_of
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import Array

MOST_RANDOM = 2**24
"""Random numbers of runs side by side, 128 MB; runs that need more are taken alone, which makes them on the way."""

Row = dict[str, Any]
Point = Mapping[str, Any]


class SideBySide:
    """Takes the runs of a config side by side where that can be."""

    def __init__(
        self,
        run: Run,
        library: BatchLibrary,
        make: Callable[[Point], Run | Row],
        alone: Callable[[Run], Row],
        row: Callable[[Mapping[str, Any]], Row],
    ) -> None:
        """Takes a config.

        Args:
            run: The config, whose steps the library takes.
            library: What takes them.
            make: A point -> its run, checked; or the row of one that is refused.
            alone: A run -> its row.
            row: The summary of a run -> its row.
        """
        self._run, self._lanes = run, library.lanes
        self._libraries: dict[DelayLayout | None, BatchLibrary | None] = {_form(run): library}
        self._make, self._alone, self._row = make, alone, row
        self._names, self._substeps = list(channels(run.loop)), run.settings.substeps
        self._halt = np.zeros(1, dtype=np.int64)

    def rows(self, points: Sequence[Point], threads: int) -> Iterator[Row]:
        """The rows of all points, in order, as they come."""
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
                self._halt[0] = 1
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _block(self, points: Sequence[Point], pool: ThreadPoolExecutor) -> list[Callable[[], Row]]:
        """Sets the runs of a block going; gives what waits for the row of each."""
        made = [self._make(point) for point in points]
        waits: list[Callable[[], Row]] = [partial(self._one, run) for run in made]
        groups: dict[Any, list[int]] = {}
        for i, run in enumerate(made):
            if isinstance(run, Run) and self._fits(run):
                groups.setdefault((run.start.t, replace(run.settings, seed=0), _form(run)), []).append(i)
        for members in groups.values():
            runs = [run for run in (made[i] for i in members) if isinstance(run, Run)]
            plan, library = plan_for(runs[0]), self._library(runs[0])
            if plan is not None and library is not None and _drawn(runs, len(plan.times)) <= MOST_RANDOM:
                future = pool.submit(self._take, library, plan, runs)
                for place, i in enumerate(members):
                    waits[i] = partial(self._finish, future, plan, place, runs[place])
        return waits

    def _library(self, run: Run) -> BatchLibrary | None:
        """What takes runs of this form, compiled at the first of them; None where it cannot be."""
        form = _form(run)
        if form not in self._libraries:
            self._libraries[form] = batch_library(run.loop, run.start, run.settings, "c", 2)
        return self._libraries[form]

    def _take(self, library: BatchLibrary, plan: BatchPlan, runs: Sequence[Run]) -> BatchResult:
        starts = np.array([run.loop.vector(run.start) for run in runs])
        parameters = np.array([parameters_of(run) for run in runs])
        return library.run(plan, parameters, starts, self._halt, *random_of(runs, len(plan.times)))

    def _fits(self, run: Run) -> bool:
        """Whether a run evaluates what the config's does, in as many steps."""
        loop = run.loop
        return (
            isinstance(loop, CompiledLoop)
            and loop.shares_functions(self._run.loop)
            and run.settings.substeps == self._substeps
        )

    def _one(self, run: Run | Row) -> Row:
        return self._alone(run) if isinstance(run, Run) else run

    def _finish(self, future: "Future[BatchResult]", plan: BatchPlan, place: int, run: Run) -> Row:
        summary = summary_of(self._names, future.result(), place, plan)
        if summary is None:
            return self._alone(run)
        return self._row(summary | {"status": "done", "engine": "c"})


def _form(run: Run) -> DelayLayout | None:
    """What tells the steps of runs apart that evaluate the same functions."""
    return run.loop.form if isinstance(run.loop, CompiledLoop) else None


def plan_for(run: Run) -> BatchPlan | None:
    """What runs of this one's kind have in common; None where they cannot be taken side by side."""
    s = run.settings
    return plan_of(run.loop, run.start.t, s.duration, s.integrator, s.period, s.output_step, s.settling_band)


def parameters_of(run: Run) -> Array:
    """Of the loop."""
    assert isinstance(run.loop, CompiledLoop)
    return run.loop.step_parameters


def random_of(runs: Sequence[Run], ticks: int) -> tuple[Array, Array] | tuple[()]:
    """Random numbers of realistic runs, one table per seed, and the table of each; nothing where no chance is in it."""
    realism = runs[0].system.realism
    if realism is None or not realism.random:
        return ()
    seeds = _seeds(runs)
    tables = np.array([tick_noise(seed, 0, ticks, runs[0].system.model.n) for seed in seeds])
    return tables, np.array([seeds.index(run.settings.seed) for run in runs], dtype=np.int64)


def _seeds(runs: Sequence[Run]) -> list[int]:
    return list(dict.fromkeys(run.settings.seed for run in runs))


def _drawn(runs: Sequence[Run], ticks: int) -> int:
    """How many random numbers the tables of such runs hold."""
    realism = runs[0].system.realism
    return 0 if realism is None else len(_seeds(runs)) * ticks * realism.width
