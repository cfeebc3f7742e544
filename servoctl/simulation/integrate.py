"""Integration of a closed loop in time: fixed steps, adaptive steps, or a sampled law held between ticks.

Design: every method yields chunks of rows, so that a run can be recorded, shown and stopped while it goes on. A sampled
run restarts the integration at each hold and logs a row at every tick, with the u that acts from then on. The last row
is exactly at the end.
"""

import math
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from servoctl.engine.ccode import Library
from servoctl.engine.step import hermite
from servoctl.errors import IntegrationError, ServoctlError
from servoctl.simulation.adaptive import adaptive
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import (
    CHUNK_TIME,
    Chunk,
    Grid,
    RowCollector,
    RunEndedError,
)
from servoctl.simulation.settings import Settings
from servoctl.simulation.steps import Step, step_of
from servoctl.types import Array

FIRST_STRETCH, LONGEST_STRETCH = 64, 8192  # steps that generated C takes in one call: at first, and at most
MOST_STEPS = 1e10  # largest number of steps of a run: at a million a second they take three hours
MOST_ROWS = 1e8  # largest number of rows of a run: more do not fit into memory
STEPS_PER_SECOND = 1e6  # steps per second of generated C for a small plant, in order of magnitude

_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0))


def too_long(loop: Loop, settings: Settings) -> str | None:
    """Why a run has too many steps or rows to start; None if it has not."""
    duration, period = settings.duration, settings.period
    step = settings.integrator.spacing(period) or period
    row_step = period or settings.output_step or step
    if step is not None and duration / step > MOST_STEPS:
        steps = duration / step
        return (
            f"{steps:.3g} steps of {step:.3g} s in {duration:.6g} s would take about "
            f"{_in_words(steps / STEPS_PER_SECOND)} at a million steps a second "
            f"(at most {MOST_STEPS:.0e}; take a longer step or a shorter run)"
        )
    if row_step is not None and duration / row_step > MOST_ROWS:
        rows, columns = duration / row_step, 1 + loop.size + loop.carried + loop.layout.size
        return (
            f"{rows:.3g} rows in {duration:.6g} s, {rows * columns * 8e-9:.3g} GB (at most {MOST_ROWS:.0e} rows; "
            "give a longer run.output_step)"
        )
    return None


def _in_words(seconds: float) -> str:
    """A long time in hours, days or years."""
    name, size = next(((name, size) for name, size in _UNITS if seconds >= 2 * size), _UNITS[-1])
    return f"{seconds / size:.2g} {name}"


def integrate(loop: Loop, x: Array, start: float, settings: Settings) -> Iterator[Chunk]:
    """Runs a closed loop.

    Args:
        x: State at the start, from `Loop.vector`.
        start: Time at the start [s].

    Raises:
        KeyboardInterrupt: After the rows so far were yielded.
    """
    integrator, period, output_step = settings.integrator, settings.period, settings.output_step
    end, collector = start + settings.duration, RowCollector(loop)
    try:
        spacing = integrator.fixed_step if period is None else period
        if spacing is not None:
            times = Grid(start, end, spacing)
            wanted = Wanted(times, output_step if period is None else None)
            yield from FixedSteps(loop, collector, times, step_of(loop, settings, start), wanted).chunks(x)
        else:
            yield from adaptive(loop, collector, x, start, end, integrator, output_step)
    except RunEndedError as end_of_run:
        yield collector.chunk(str(end_of_run), end_of_run.at)
    except ServoctlError as error:
        yield collector.chunk(str(error))
    except KeyboardInterrupt:
        yield collector.chunk()
        raise


@dataclass(frozen=True)
class FixedSteps:
    """A run of fixed steps over given times: in C as far as possible, then step by step."""

    loop: Loop
    collector: RowCollector  # collects the rows
    times: Grid  # start of each step, and the end [s]
    step: Step
    wanted: "Wanted"  # which rows are written

    def chunks(self, x: Array) -> Iterator[Chunk]:
        """The rows of the run from q, v and memory at the first time."""
        reached: tuple[int, Array] | None = (0, x)
        while reached is not None:  # once more if C is ready only during the run
            library = self.loop.c_library(self.step.substeps)
            if library is not None and self.wanted.only_steps:
                reached = yield from self._in_c(library, *reached)
            reached = yield from self._one_by_one(*reached)

    def _in_c(self, library: Library, done: int, x: Array) -> Generator[Chunk, None, tuple[int, Array]]:
        """Many steps at a time from the step `done` on; their number doubles until they take half a chunk's time.

        C stops before a step that is not finite or has a status that ends the run; Python repeats it to say why.

        Returns:
            The step at which C stopped, or the number of steps, and the state there.
        """
        loop, step, collector = self.loop, self.step, self.collector
        length, count = FIRST_STRETCH, len(self.times) - 1
        stops, parameters = np.array(sorted(collector.stops), dtype=float), loop.step_parameters
        while done < count:
            began, asked = time.monotonic(), min(length, count - done)
            moments = self.times[done : done + asked + 1]
            random = None if step.ticks is None else step.ticks.several(done, asked)
            states, rows = library.steps(x, moments, parameters, collector.status, stops, random)
            good, x = len(rows), states[-1]
            loop.evaluations += good * step.evaluations
            kept = [k for k in range(good) if self.wanted.at(done + k)]
            if kept:
                yield Chunk(moments[kept], states[kept], rows[kept])
            done += good
            if good < asked:
                break
            if time.monotonic() - began < CHUNK_TIME / 2:
                length = min(2 * length, LONGEST_STRETCH)
        return done, x

    def _one_by_one(self, done: int, x: Array) -> Generator[Chunk, None, tuple[int, Array] | None]:
        """Runs from the step `done` on; with projection, each state returns to the passive constraints.

        Returns:
            The step before which the loop went over to C, and the state there; None: this was the rest of the run.
        """
        loop, step, collector, times, wanted = self.loop, self.step, self.collector, self.times, self.wanted
        plant = loop.simulated()
        for k in range(done, len(times) - 1):
            t, h = times[k], times[k + 1] - times[k]
            if loop.goes_over(t, step.substeps) and wanted.only_steps:
                if collector.filled:
                    yield collector.chunk()
                return k, x
            try:
                following, row = step(t, x, h)
            except IntegrationError:
                collector.add(t, x, step.row(t, x))
                raise
            collector.judge(t, x, row, wanted.at(k))
            if not np.isfinite(following).all():
                if not wanted.at(k):
                    collector.add(t, x, row)
                reason = f"t = {t:.6g} s: the state is not finite after the next step of {h:.3g} s"
                raise RunEndedError(reason, step.culprit(t, x, h))
            for s in wanted.between(k):
                y = _between(loop, t, x, t + h, following, s)
                collector.judge(s, y, loop.rates(s, y)[1])
            x = plant.projected(t + h, following) if loop.projects else following
            if collector.due():
                yield collector.chunk()
        end = times[-1]
        collector.judge(end, x, step.row(end, x))
        yield collector.chunk()
        return None


class Wanted:
    """Which rows of a fixed-step run are written: at every step, at every n-th step, or at times between steps.

    Args:
        times: Times of the steps [s].
    """

    def __init__(self, times: Grid, output_step: float | None) -> None:
        # every: a row is written at every n-th step, if rows are at steps only
        self._times, self.every, self._output = times, 1, None
        if output_step is None:
            return
        ratio = output_step / (times[1] - times[0])
        if 2 < len(times) > ratio and abs(ratio - round(ratio)) < 1e-9 * ratio:  # no row lies beyond the end
            self.every = round(ratio)
        else:
            self._output = output_step

    @property
    def only_steps(self) -> bool:
        """Whether all rows are at steps."""
        return self._output is None

    def at(self, k: int) -> bool:
        """Whether a row is written at the start of step k."""
        return k == 0 if self._output is not None else k % self.every == 0

    def between(self, k: int) -> list[float]:
        """Times of the rows between the start of step k and its end, the end included."""
        if self._output is None:
            return []
        start, left, right = self._times[0], self._times[k], self._times[k + 1]
        first = math.floor((left - start) / self._output * (1 + 1e-12)) + 1
        last = math.floor((right - start) / self._output * (1 + 1e-12))
        wanted = [float(start + i * self._output) for i in range(first, last + 1)]
        return [s for s in wanted if left < s < self._times[-1] - 1e-9 * self._output]


def _between(loop: Loop, t: float, x: Array, end: float, following: Array, s: float) -> Array:
    """State at a time s between two states, by the cubic that has their rates at both ends."""
    first, last = loop.rates(t, x)[0], loop.rates(end, following)[0]
    y: Array = hermite(x, first, following, last, end - t, (s - t) / (end - t))
    return y
