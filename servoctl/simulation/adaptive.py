"""Runs with adaptive steps by SciPy's solvers.

Design: SciPy takes the steps, compiled functions give the rates. Where the loop projects, a step is accepted first and
projected onto the passive constraints then: the change by projection is below the error that the method allows.

SciPy's own differences increase the change of a coordinate that has no effect until it overflows, and the run ends on
infinities. In `jacobian_of` the changes have a fixed size and the result is always finite: a Jacobian only directs
Newton's iteration, so a column that cannot be computed is zero. `Progress` counts steps, not seconds, so
that a run ends at the same time on every machine.

Source: Hairer, Lubich, Wanner 2006, IV.4, for the projection of one-step methods.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from servoctl.engine.step import rk4_steps
from servoctl.errors import IntegrationError, ServoctlError
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import (
    Chunk,
    Grid,
    RowCollector,
    RunEndedError,
)
from servoctl.simulation.settings import Integrator
from servoctl.types import Array

WINDOW = 10_000  # progress is checked after this many steps
MOST_STEPS = 1e9  # a run that needs more steps of the last size to reach its end makes no progress
MOST_IN_HOLD = 1e6  # a hold of a sampled law that needs more steps makes no progress

LONGEST, SHARE = 0.05, 1e-5
"""Longest step [s], or share of a run or hold if that is more.

A machine at rest has no error, so steps would grow until one passes over a motion of seconds: nothing would move.
"""

REMEDY = "raise rtol or atol, use rk4, or smooth what jumps there"


class Progress:
    """Checks the progress of a run, or of a hold.

    Args:
        start: Time at which the steps begin [s].
        end: Time at which they end [s].
        method: Name of the method.
        most: Largest number of steps to come.
    """

    def __init__(self, start: float, end: float, method: str, most: float = MOST_STEPS) -> None:
        self._since, self._end, self._method, self._most = start, end, method, most
        self._count = 0

    def count(self, t: float, steps: int = 1) -> None:
        """Counts steps up to the time t [s].

        Raises:
            IntegrationError: The run should end.
        """
        self._count += steps
        if self._count < WINDOW:
            return
        step = (t - self._since) / self._count
        self._since, self._count = t, 0
        if self._end - t <= self._most * step:
            return
        rest = f"the rest would take {(self._end - t) / step:.1e} of them" if step > 0.0 else "time stands still"
        raise IntegrationError(
            f"t = {t:.6g} s: {self._method} makes no progress: its steps are {step:.2g} s long on average, {rest} "
            f"({REMEDY})"
        )


def take_step(solver: Any) -> str | None:
    """Takes one step of a SciPy solver; returns why it failed, or None."""
    try:
        message: str | None = solver.step()
    except ServoctlError:
        raise
    except ValueError as error:  # SciPy's linear algebra refuses numbers that are not finite
        solver.status, message = "failed", str(error)
    if solver.status == "failed" and message == solver.TOO_SMALL_STEP:
        least = 10 * abs(float(np.nextafter(solver.t, np.inf)) - solver.t)
        message = f"the step that its tolerances ask for is shorter than {least:.2g} s ({REMEDY})"
    return message


def finish(solver: Any, method: str) -> None:
    """Takes the steps of one hold; afterwards the solver's status is `finished` or `failed`.

    Raises:
        IntegrationError: The steps make no progress, or fail at a finite state.
    """
    progress = Progress(float(solver.t), float(solver.t_bound), method, MOST_IN_HOLD)
    while solver.status == "running":
        message = take_step(solver)
        progress.count(float(solver.t))
        if (
            solver.status == "failed"
            and np.isfinite(solver.y).all()
            and np.isfinite(solver.fun(solver.t, solver.y)).all()
        ):
            raise IntegrationError(f"t = {solver.t:.6g} s: {method} cannot go on: {message}")


CHANGE = float(np.finfo(float).eps ** (1 / 3))
"""Relative change of a state at which truncation and rounding errors of a central difference are alike."""


def jacobian_of(
    loop: Loop, rates: Callable[[float, Array], Array], integrator: Integrator, command: Array | None = None
) -> Callable[[float, Array], Array] | None:
    """(t, x) -> dx'/dx, shape (size, size), all finite; None for a method that needs none.

    Args:
        rates: (t, x) -> x', to differentiate.
    """
    if integrator.method != "radau":
        return None
    # for entries below this size the absolute tolerance decides
    rtol, atol = integrator.tolerances
    least = atol / rtol

    def jacobian(t: float, x: Array) -> Array:
        exact = loop.jacobian(t, x, command)
        if exact is not None and np.isfinite(exact).all():
            return exact
        return differences(lambda y: rates(t, y), x, least)

    return jacobian


def differences(function: Callable[[Array], Array], x: Array, least: float) -> Array:
    """Derivative of a function of a vector, shape (values, len(x)), by central differences.

    One-sided if only one side is finite, and zero if neither is.

    Args:
        function: x -> values.
        x: Point.
        least: Entries of x below this count as this large.
    """
    middle, columns = function(x), []
    for i, value in enumerate(x):
        change = CHANGE * (max(abs(value), least) or 1.0)
        after, before = x.copy(), x.copy()
        after[i], before[i] = value + change, value - change
        right, left = (function(after) - middle) / (after[i] - value), (middle - function(before)) / (value - before[i])
        known = np.isfinite(right).astype(float) + np.isfinite(left)
        total = np.nan_to_num(right, nan=0.0, posinf=0.0, neginf=0.0)
        total += np.nan_to_num(left, nan=0.0, posinf=0.0, neginf=0.0)
        columns.append(total / np.maximum(known, 1.0))
    return np.array(columns).T


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
        end: Time at the end [s].
    """
    from scipy.integrate import DOP853, Radau

    method = {"dop853": DOP853, "radau": Radau}[integrator.method]
    options = {} if jacobian is None else {"jac": jacobian}
    rtol, atol = integrator.tolerances
    longest = max(LONGEST, SHARE * (end - t))
    return method(rates, t, x, end, rtol=rtol, atol=atol, max_step=longest, **options)


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
    collector.judge(start, x, first[1])
    output = None if output_step is None else Grid(start, end, output_step)[1:]
    position = 0
    rates = Watched(loop.derivative)
    jacobian = jacobian_of(loop, loop.derivative, integrator)
    progress = Progress(start, end, integrator.method)

    def projected(t: float, x: Array) -> Array:
        return plant.projected(t, x) if loop.projects else x

    solver, plant = solver_of(integrator, rates, start, x, end, jacobian), loop.simulated()
    while solver.status == "running":
        loop.goes_over(solver.t, None)
        t, rates.at = solver.t, None
        message = take_step(solver)
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            reason = "the motion is not finite" if rates.at is not None else message or "the state is not finite"
            raise RunEndedError(f"t = {t:.6g} s: {integrator.method} cannot go on: {reason}", rates.at)
        times = [solver.t] if output is None else _reached(output[position:], solver.t)
        dense = solver.dense_output() if output is not None and times else None
        position += 0 if output is None else len(times)
        t_end, y_end = solver.t, projected(solver.t, solver.y)
        if loop.projects and solver.status == "running":
            solver.y, solver.f = y_end, solver.fun(solver.t, y_end)
        for s in times:
            y = y_end if dense is None or s == t_end else projected(s, dense(s))
            collector.judge(s, y, loop.rates(s, y)[1])
        progress.count(solver.t)
        if collector.due():
            yield collector.chunk()
    yield collector.chunk()


def _reached(times: Array, t: float) -> list[float]:
    """The first of these times, which rise, up to t."""
    return [float(s) for s in times[: np.searchsorted(times, t, side="right")]]


def hold(
    rates: Callable[[float, Array], Array],
    t: float,
    x: Array,
    h: float,
    integrator: Integrator,
    substeps: int,
    jacobian: Callable[[float, Array], Array] | None = None,
) -> Array:
    """x after a hold; NaN where an adaptive method fails on rates that are not finite.

    Args:
        rates: (t, x) -> x' under the held command.
        h: Length of the hold [s].
        substeps: Steps of rk4; 0: an adaptive method.

    Raises:
        IntegrationError: An adaptive method does not reach the end.
    """
    if substeps:
        after: Array = rk4_steps(rates, t, x, h, substeps)
        return after
    solver = solver_of(integrator, rates, t, x, t + h, jacobian)
    finish(solver, integrator.method)
    return solver.y if solver.status == "finished" else np.full(len(x), np.nan)
