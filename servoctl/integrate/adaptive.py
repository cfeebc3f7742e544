"""Steps that the method chooses: SciPy's solvers, and SUNDIALS' CVODES through CasADi.

Design: on generated C, DOP853's steps are taken there by SciPy's own rules (`engine.walk`), and SciPy goes on where
one must be looked at, so that it says what is wrong.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import casadi as ca
import numpy as np

from servoctl.closed_loop import CompiledLoop, Loop
from servoctl.engine.walk import Walk
from servoctl.errors import ServoctlError
from servoctl.integrate.projected import Projection
from servoctl.integrate.rows import (
    CHUNK_TIME,
    FIRST_STRETCH,
    LONGEST_STRETCH,
    Chunk,
    Collector,
    Integrator,
    grid,
    last_row,
)
from servoctl.types import Array


class Watched:
    """Rates that remember at which finite state they were last not finite."""

    def __init__(self, rates: Callable[[float, Array], Array]) -> None:
        self._rates = rates
        self.at: tuple[float, Array] | None = None

    def __call__(self, t: float, x: Array) -> Array:
        value = self._rates(t, x)
        # a sum is the quicker test; it overflows where numbers are huge, hence the second one
        if not math.isfinite(np.add.reduce(value)) and not np.isfinite(value).all() and np.isfinite(x).all():
            self.at = float(t), np.array(x, dtype=float)
        return value


def solver_of(integrator: Integrator, rates: Callable[[float, Array], Array], t: float, x: Array, end: float) -> Any:
    from scipy.integrate import DOP853, LSODA, Radau

    method = {"dop853": DOP853, "radau": Radau, "lsoda": LSODA}[integrator.method]
    return method(rates, t, x, end, rtol=integrator.rtol, atol=integrator.atol)


def take_step(solver: Any) -> str | None:
    """One step of a solver; why it failed, if it did."""
    try:
        message: str | None = solver.step()
    except ServoctlError:
        raise
    except ValueError as error:  # Radau's linear algebra refuses numbers that are not finite
        solver.status, message = "failed", str(error)
    return message


def adaptive(
    loop: Loop,
    collector: Collector,
    x: Array,
    start: float,
    end: float,
    integrator: Integrator,
    output_step: float | None,
) -> Iterator[Chunk]:
    """SciPy's solvers; rows at every step, or at output times from the dense output."""
    first = loop.rates(start, x)
    stopped = collector.add(start, x, first[1])
    if stopped is not None:
        yield collector.chunk(stopped)
        return
    output = None if output_step is None else grid(start, end, output_step)[1:]
    position = 0
    rates = Watched(loop.derivative)

    def restart(t: float, x: Array) -> Any:
        return solver_of(integrator, rates, t, x, end)

    solver, projection = restart(start, x), Projection(loop, restart)
    library = loop.c_library(None) if isinstance(loop, CompiledLoop) and integrator.method == "dop853" else None
    if isinstance(loop, CompiledLoop) and library is not None:
        yield collector.chunk()
        walk = Walk(
            library, solver, loop.parameters, collector.status, np.array(sorted(collector.stops), dtype=float), output
        )
        yield from _walked(loop, walk)
        if walk.done:
            return
        position, solver = walk.position, restart(walk.t, walk.x)
    while solver.status == "running":
        t, rates.at = solver.t, None
        message = take_step(solver)
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            reason = "the motion is not finite" if rates.at is not None else message or "the state is not finite"
            yield collector.chunk(f"t = {t:.6g} s: {integrator.method} cannot go on: {reason}", rates.at)
            return
        if output is None:
            times = [solver.t]
        else:
            count = int(np.searchsorted(output, solver.t, side="right")) - position
            times = [float(s) for s in output[position : position + count]]
            position += count
        dense = solver.dense_output() if output is not None and times else None
        t_end, y_end = solver.t, projection.project(solver.t, solver.y)
        solver = projection.after_step(solver)
        for s in times:
            y = y_end if dense is None or s == t_end else projection.project(s, dense(s))
            stopped = collector.add(s, y, loop.rates(s, y)[1])
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        if collector.due():
            yield collector.chunk()
    yield collector.chunk()


def _walked(loop: Loop, walk: Walk) -> Iterator[Chunk]:
    """The rows of adaptive steps in C, up to one that must be looked at."""
    length = FIRST_STRETCH
    while not walk.done:
        began, before = time.monotonic(), walk.evaluations
        good, (times, states, rows) = walk.go(length)
        loop.evaluations += walk.evaluations - before
        if len(times):
            yield Chunk(times, states, rows)
        if good < length:
            return
        if time.monotonic() - began < CHUNK_TIME / 2:
            length = min(2 * length, LONGEST_STRETCH)


def cvodes(loop: Loop, collector: Collector, x: Array, times: Array, integrator: Integrator) -> Iterator[Chunk]:
    """SUNDIALS' CVODES through CasADi, in stretches of the output grid."""
    assert isinstance(loop, CompiledLoop)
    t, y, p = ca.MX.sym("t"), ca.MX.sym("x", loop.size), ca.MX.sym("p", len(loop.parameters))
    problem = {"t": t, "x": y, "p": p, "ode": loop.rates_kernel.function(t, y, p)[0]}
    options = {"reltol": integrator.rtol, "abstol": integrator.atol, "max_num_steps": 100_000}
    options |= {"show_eval_warnings": False, "disable_internal_warnings": True}  # the chunk says what went wrong
    length = 1 if loop.projects else 100
    for left in range(0, len(times) - 1, length):
        part = times[left : left + length + 1]
        solver = ca.integrator("solver", "cvodes", problem, float(part[0]), part[1:].tolist(), options)
        try:
            states = solver(x0=x, p=loop.parameters)["xf"].full().T
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            collector.add(float(part[0]), x, loop.rates(float(part[0]), x)[1])
            yield collector.chunk(f"t = {part[0]:.6g} s: cvodes cannot go on: {reason}")
            return
        for s, state in zip(part[:-1], [x, *states[:-1]], strict=True):
            stopped = collector.add(float(s), np.array(state), loop.rates(float(s), state)[1])
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        x = loop.projected(float(part[-1]), states[-1]) if loop.projects else states[-1]
        if collector.due():
            yield collector.chunk()
    yield last_row(loop, collector, float(times[-1]), x)
