"""Runs with fixed steps: Runge-Kutta steps of a continuous law, or the holds of a sampled law."""

import math
import time
from collections.abc import Callable, Generator, Iterator

import numpy as np

from servoctl.engine.ccode import Library
from servoctl.engine.step import hermite, rk4_steps
from servoctl.errors import IntegrationError
from servoctl.simulation.adaptive import Watched, hold, jacobian_of
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.realistic import Period, TickNoise
from servoctl.simulation.rows import CHUNK_TIME, FIRST_STRETCH, LONGEST_STRETCH, Chunk, Grid, RowCollector, last_row
from servoctl.simulation.settings import Integrator
from servoctl.types import Array

Advance = Callable[[float, Array, float], tuple[Array, Array]]  # (t, x, h) -> x after h, row at t


def continuous(loop: Loop) -> Advance:
    """The Runge-Kutta step under a law that acts continuously."""
    kernel, parameters = loop.stepper(None), loop.parameters

    def step(t: float, x: Array, h: float) -> tuple[Array, Array]:
        loop.evaluations += 4
        following, row = kernel(x, t, h, parameters)
        return following, row

    return step


def held(loop: Loop, integrator: Integrator, period: float) -> Advance:
    """The step over one hold of a sampled law."""
    substeps = integrator.substeps(period)
    if substeps:
        kernel, parameters = loop.stepper(substeps), loop.parameters

        def compiled(t: float, x: Array, h: float) -> tuple[Array, Array]:
            loop.evaluations += 4 * substeps + 2
            following, row = kernel(x, t, h, parameters)
            return following, row

        return compiled

    def numeric(t: float, x: Array, h: float) -> tuple[Array, Array]:
        command = loop.control(t, x)
        first, log = loop.motion(t, x, command)
        row = np.concatenate([command, log])
        if not np.isfinite(first).all():
            return np.full(len(x), np.nan), row

        def rates(s: float, y: Array) -> Array:
            # not `held_derivative`: in C its rounding differs, and results stay as they were
            return loop.motion(s, y, command)[0]

        return hold(rates, t, x, h, integrator, substeps, jacobian_of(loop, rates, integrator, command)), row

    return numeric


def fixed(
    loop: Loop,
    collector: RowCollector,
    x: Array,
    times: Grid,
    advance: Advance,
    output_step: float | None,
    substeps: int | None = None,
) -> Iterator[Chunk]:
    """Runs a loop over the times: in C as far as possible, then step by step.

    Args:
        collector: Collects the rows.
        x: q, v and memory at the first time.
        times: Start of each step, and the end [s].
        advance: The step.
    """
    wanted = Wanted(times, output_step)
    reached: tuple[int, Array] | None = (0, x)
    while reached is not None:  # once more if C is ready only during the run
        done, x = reached
        library = loop.c_library(substeps)
        if library is not None and wanted.only_steps:
            ticks = advance.ticks if isinstance(advance, Period) else None
            done, x = yield from _stretches(loop, library, collector, x, times, wanted, substeps, ticks, done)
        reached = yield from _stepped(loop, collector, x, times, advance, wanted, substeps, done)


def _stretches(
    loop: Loop,
    library: Library,
    collector: RowCollector,
    x: Array,
    times: Grid,
    wanted: "Wanted",
    substeps: int | None,
    ticks: TickNoise | None,
    done: int,
) -> Generator[Chunk, None, tuple[int, Array]]:
    """Many steps at a time in C from the step `done` on; their number doubles until they take half a chunk's time.

    C stops before a step that is not finite or has a status that ends the run; Python repeats it to say why.

    Returns:
        The step at which C stopped, or the number of steps, and the state there.
    """
    length, count = FIRST_STRETCH, len(times) - 1
    stops, parameters = np.array(sorted(collector.stops), dtype=float), loop.step_parameters
    while done < count:
        began, asked = time.monotonic(), min(length, count - done)
        moments, random = times[done : done + asked + 1], None if ticks is None else ticks.several(done, asked)
        states, rows = library.steps(x, moments, parameters, collector.status, stops, random)
        good, x = len(rows), states[-1]
        loop.evaluations += good * (4 if substeps is None else 4 * substeps + 2)
        kept = [k for k in range(good) if wanted.at(done + k)]
        if kept:
            yield Chunk(moments[kept], states[kept], rows[kept])
        done += good
        if good < asked:
            break
        if time.monotonic() - began < CHUNK_TIME / 2:
            length = min(2 * length, LONGEST_STRETCH)
    return done, x


def _stepped(
    loop: Loop,
    collector: RowCollector,
    x: Array,
    times: Grid,
    advance: Advance,
    wanted: "Wanted",
    substeps: int | None,
    done: int,
) -> Generator[Chunk, None, tuple[int, Array] | None]:
    """Runs step by step from the step `done` on; with projection, each state returns to the passive constraints.

    Returns:
        The step before which the loop went over to C, and the state there; None: this was the rest of the run.
    """
    plant = loop.simulated()
    for k in range(done, len(times) - 1):
        t, h = times[k], times[k + 1] - times[k]
        if loop.goes_over(t, substeps) and wanted.only_steps:
            if collector.filled:
                yield collector.chunk()
            return k, x
        try:
            following, row = advance(t, x, h)
        except IntegrationError as error:
            collector.add(t, x, advance.row(t, x) if isinstance(advance, Period) else loop.rates(t, x)[1])
            yield collector.chunk(str(error))
            return None
        stopped = collector.reason(t, row)
        if wanted.at(k) or stopped is not None:
            collector.add(t, x, row)
            if stopped is not None:
                yield collector.chunk(stopped)
                return None
        for s in wanted.between(k):
            if stopped is None and np.isfinite(following).all():
                y = _between(loop, t, x, t + h, following, s)
                stopped = collector.add(s, y, loop.rates(s, y)[1])
        if stopped is None and not np.isfinite(following).all():
            if not wanted.at(k):
                collector.add(t, x, row)
            stopped = f"t = {t:.6g} s: the state is not finite after the next step of {h:.3g} s"
            at = advance.at if isinstance(advance, Period) else _culprit(loop, t, x, h, substeps)
            yield collector.chunk(stopped, at)
            return None
        if stopped is not None:
            yield collector.chunk(stopped)
            return None
        x = plant.projected(t + h, following) if loop.projects else following
        if collector.due():
            yield collector.chunk()
    if isinstance(advance, Period):
        end = times[-1]
        yield collector.chunk(collector.add(end, x, advance.row(end, x)))
    else:
        yield last_row(loop, collector, times[-1], x)
    return None


def _culprit(loop: Loop, t: float, x: Array, h: float, substeps: int | None) -> tuple[float, Array] | None:
    """Time and state inside a step at which the rates are not finite; None if they are finite at every stage."""
    command = None if substeps is None else loop.control(t, x)
    rates = Watched(lambda s, y: loop.rates(s, y)[0] if command is None else loop.motion(s, y, command)[0])
    count = substeps or (1 if substeps is None else 10)
    rk4_steps(rates, t, x, h, count)
    return rates.at


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
