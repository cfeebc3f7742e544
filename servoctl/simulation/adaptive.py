"""Runs with adaptive steps by SciPy's solvers.

Design: on generated C, the steps of DOP853 are taken in C by SciPy's own rules (`engine.adaptive_steps`). Where C stops
at a problem, SciPy repeats the step in Python and reports the reason. Where the loop projects, a step is accepted first
and projected onto the passive constraints then: the change by projection is below the error that the method allows.

Source: Hairer, Lubich, Wanner 2006, IV.4, for the projection of one-step methods.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from servoctl.engine.adaptive_steps import AdaptiveSteps
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.grid import Grid
from servoctl.simulation.implicit import jacobian_of
from servoctl.simulation.progress import Progress, take_step
from servoctl.simulation.rows import (
    CHUNK_TIME,
    FIRST_STRETCH,
    LONGEST_STRETCH,
    Chunk,
    Integrator,
    RowCollector,
)
from servoctl.types import Array


class Watched:
    """Rates that record the last finite state at which they were not finite."""

    def __init__(self, rates: Callable[[float, Array], Array]) -> None:
        self._rates = rates
        self.at: tuple[float, Array] | None = None

    def __call__(self, t: float, x: Array) -> Array:
        value = self._rates(t, x)
        # the sum is a faster test, but it overflows for huge numbers: hence the second test
        if not math.isfinite(np.add.reduce(value)) and not np.isfinite(value).all() and np.isfinite(x).all():
            self.at = float(t), np.array(x, dtype=float)
        return value


def solver_of(
    integrator: Integrator,
    rates: Callable[[float, Array], Array],
    t: float,
    x: Array,
    end: float,
    jacobian: Callable[[float, Array], Array] | None = None,
) -> Any:
    """SciPy's solver, ready to step.

    Args:
        integrator: How to step.
        rates: (t, x) -> x'.
        t: Time at the start [s].
        x: State there.
        end: Time at the end [s].
        jacobian: (t, x) -> dx'/dx, for an implicit method.
    """
    from scipy.integrate import DOP853, Radau

    method = {"dop853": DOP853, "radau": Radau}[integrator.method]
    options = {} if jacobian is None else {"jac": jacobian}
    return method(rates, t, x, end, rtol=integrator.rtol, atol=integrator.atol, **options)


def adaptive(
    loop: Loop,
    collector: RowCollector,
    x: Array,
    start: float,
    end: float,
    integrator: Integrator,
    output_step: float | None,
) -> Iterator[Chunk]:
    """Runs SciPy's solvers; rows at every step, or at output times from the dense output."""
    first = loop.rates(start, x)
    stopped = collector.add(start, x, first[1])
    if stopped is not None:
        yield collector.chunk(stopped)
        return
    output = None if output_step is None else Grid(start, end, output_step)[1:]
    position = 0
    rates = Watched(loop.derivative)
    jacobian = jacobian_of(loop, loop.derivative, integrator)
    progress = Progress(start, end, integrator.method)

    def restart(t: float, x: Array) -> Any:
        return solver_of(integrator, rates, t, x, end, jacobian)

    def projected(t: float, x: Array) -> Array:
        return plant.projected(t, x) if loop.projects else x

    solver, plant = restart(start, x), loop.simulated()
    in_c = loop.c_library(None) is not None
    while solver.status == "running":
        if integrator.method == "dop853" and in_c:
            in_c = False
            if collector.filled:
                yield collector.chunk()
            steps = _steps_of(loop, solver, collector, output, position)
            stopped = yield from _steps_in_c(loop, steps, progress)
            if stopped is not None:
                yield collector.chunk(stopped)
                return
            if steps.done:
                return
            position, solver = steps.position, restart(steps.t, steps.x)
        t, rates.at = solver.t, None
        message = take_step(solver)
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            reason = "the motion is not finite" if rates.at is not None else message or "the state is not finite"
            yield collector.chunk(f"t = {t:.6g} s: {integrator.method} cannot go on: {reason}", rates.at)
            return
        times = [solver.t] if output is None else _reached(output[position:], solver.t)
        dense = solver.dense_output() if output is not None and times else None
        position += 0 if output is None else len(times)
        t_end, y_end = solver.t, projected(solver.t, solver.y)
        if loop.projects and solver.status == "running":
            solver.y, solver.f = y_end, solver.fun(solver.t, y_end)
        for s in times:
            y = y_end if dense is None or s == t_end else projected(s, dense(s))
            stopped = collector.add(s, y, loop.rates(s, y)[1])
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        stopped = progress.stalled(solver.t)
        if stopped is not None:
            yield collector.chunk(stopped)
            return
        if collector.due():
            yield collector.chunk()
        in_c = loop.goes_over(solver.t, None)
    yield collector.chunk()


def _reached(times: Array, t: float) -> list[float]:
    """The first of these times, which rise, up to t."""
    return [float(s) for s in times[: np.searchsorted(times, t, side="right")]]


def _steps_of(loop: Loop, solver: Any, collector: RowCollector, output: Array | None, position: int) -> AdaptiveSteps:
    """Adaptive steps in C that go on where a solver is; `position` rows of the output are there already."""
    library, stops = loop.c_library(None), np.array(sorted(collector.stops), dtype=float)
    assert library is not None
    return AdaptiveSteps(library, solver, loop.parameters, collector.status, stops, output, position)


def _steps_in_c(loop: Loop, steps: AdaptiveSteps, progress: Progress) -> Generator[Chunk, None, str | None]:
    """Yields the rows of adaptive steps in C, up to a step that C cannot take.

    Returns:
        Why the run ends here; None if it does not.
    """
    length = FIRST_STRETCH
    while not steps.done:
        began, before = time.monotonic(), steps.evaluations
        good, (times, states, rows) = steps.go(length)
        loop.evaluations += steps.evaluations - before
        if len(times):
            yield Chunk(times, states, rows)
        stopped = progress.stalled(steps.t, good)
        if stopped is not None or good < length:
            return stopped
        if time.monotonic() - began < CHUNK_TIME / 2:
            length = min(2 * length, LONGEST_STRETCH)
    return None
