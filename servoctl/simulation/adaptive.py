"""Runs with adaptive steps: SciPy's solvers, and SUNDIALS' CVODES through CasADi.

Design: on generated C, the steps of DOP853 are taken in C by SciPy's own rules (`engine.adaptive_steps`). Where C stops
at a problem, SciPy repeats the step in Python and reports the reason.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import casadi as ca
import numpy as np

from servoctl.engine.adaptive_steps import AdaptiveSteps
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.grid import Grid
from servoctl.simulation.implicit import jacobian_of
from servoctl.simulation.progress import REMEDY, Progress, take_step
from servoctl.simulation.projected import Projection
from servoctl.simulation.rows import (
    CHUNK_TIME,
    FIRST_STRETCH,
    LONGEST_STRETCH,
    Chunk,
    Integrator,
    RowCollector,
    last_row,
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
    from scipy.integrate import DOP853, LSODA, Radau

    method = {"dop853": DOP853, "radau": Radau, "lsoda": LSODA}[integrator.method]
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

    solver, projection = restart(start, x), Projection(loop, restart)
    in_c = isinstance(loop, CompiledLoop) and loop.c_library(None) is not None
    while solver.status == "running":
        if isinstance(loop, CompiledLoop) and integrator.method == "dop853" and in_c:
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
        t_end, y_end = solver.t, projection.project(solver.t, solver.y)
        solver = projection.after_step(solver)
        for s in times:
            y = y_end if dense is None or s == t_end else projection.project(s, dense(s))
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
        in_c = isinstance(loop, CompiledLoop) and loop.goes_over(solver.t, None)
    yield collector.chunk()


def _reached(times: Array, t: float) -> list[float]:
    """The first of these times, which rise, up to t."""
    return [float(s) for s in times[: np.searchsorted(times, t, side="right")]]


def _steps_of(
    loop: CompiledLoop, solver: Any, collector: RowCollector, output: Array | None, position: int
) -> AdaptiveSteps:
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


def cvodes(loop: Loop, collector: RowCollector, x: Array, times: Grid, integrator: Integrator) -> Iterator[Chunk]:
    """Runs SUNDIALS' CVODES through CasADi, over 100 output times at once (1 with projection)."""
    assert isinstance(loop, CompiledLoop)
    solvers = Solvers(loop, integrator)
    length = 1 if loop.projects else 100
    for left in range(0, len(times) - 1, length):
        part = times[left : left + length + 1]
        states, reason = _stretch(solvers, part, x)
        kept = len(states) if reason is None else len(states) + 1
        for s, state in zip(part[:kept], [x, *states], strict=False):
            stopped = collector.add(float(s), np.array(state), loop.rates(float(s), state)[1])
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        if reason is not None:
            yield collector.chunk(f"t = {part[len(states)]:.6g} s: cvodes cannot go on: {reason} ({REMEDY})")
            return
        x = loop.projected(float(part[-1]), states[-1]) if loop.projects else states[-1]
        if collector.due():
            yield collector.chunk()
    yield last_row(loop, collector, times[-1], x)


class Solvers:
    """CVODES over grids of times, built once for each grid of times since the start of a stretch.

    Args:
        loop: The closed loop.
        integrator: Its tolerances.
    """

    def __init__(self, loop: CompiledLoop, integrator: Integrator) -> None:
        t, y, p = ca.MX.sym("t"), ca.MX.sym("x", loop.size), ca.MX.sym("p", len(loop.parameters))
        start = ca.MX.sym("start")
        rates = loop.rates_kernel.function(start + t, y, p)[0]
        self._problem = {"t": t, "x": y, "p": ca.vertcat(start, p), "ode": rates}
        self._options = {"reltol": integrator.rtol, "abstol": integrator.atol, "max_num_steps": 100_000}
        # the chunk reports what went wrong
        self._options |= {"show_eval_warnings": False, "disable_internal_warnings": True}
        self._parameters = loop.parameters
        self._built: dict[tuple[float, ...], Any] = {}

    def states(self, part: Array, x: Array) -> list[Array]:
        """States at part[1:], from x at part[0].

        Raises:
            RuntimeError: CVODES cannot go on.
        """
        grid = tuple(float(f"{s - part[0]:.12g}") for s in part)  # equal steps differ by rounding
        if grid not in self._built:
            self._built[grid] = ca.integrator("solver", "cvodes", self._problem, 0.0, list(grid[1:]), self._options)
        given = np.concatenate([part[:1], self._parameters])
        return list(self._built[grid](x0=x, p=given)["xf"].full().T)


def _stretch(solvers: Solvers, part: Array, x: Array) -> tuple[list[Array], str | None]:
    """States at part[1:] as far as they are reached, and why the next one is not."""
    try:
        return solvers.states(part, x), None
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
    if len(part) == 2:
        return [], reason
    states: list[Array] = []
    for i in range(len(part) - 1):
        further, wrong = _stretch(solvers, part[i : i + 2], states[-1] if states else x)
        if wrong is not None:
            return states, wrong
        states += further
    return states, None
