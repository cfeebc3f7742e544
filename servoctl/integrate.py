"""Integration in time of a closed loop: fixed steps, adaptive steps, or a sampled law held between ticks.

Design: every way yields chunks of rows, so that a run can be recorded, shown and stopped while it goes on. A sampled
run integrates from hold to hold and restarts at each; a row is logged at every tick, with the u in force from then on.
The last row lies exactly at the end.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from servoctl.closed_loop import CompiledLoop, Loop, rk4
from servoctl.engine.ccode import Library
from servoctl.errors import ServoctlError, TaskError
from servoctl.types import Array, Status

Advance = Callable[[float, Array, float], tuple[Array, Array]]
"""(t, x, h) -> x after h, row at t."""

CHUNK_TIME = 0.2
"""Longest wall time between two chunks [s], as long as single steps are shorter."""

FIRST_STRETCH, LONGEST_STRETCH = 64, 8192
"""Steps that generated C takes without coming back: at first, and at most."""

ADAPTIVE = ("dop853", "radau", "lsoda")

METHODS = ("rk4", *ADAPTIVE, "cvodes")


@dataclass(frozen=True)
class Integrator:
    """How to step.

    Attributes:
        method: `rk4`, `dop853`, `radau`, `lsoda` or `cvodes`.
        step: Step of `rk4` [s].
        rtol: Relative tolerance of the adaptive methods.
        atol: Absolute tolerance of the adaptive methods.
    """

    method: str = "rk4"
    step: float = 0.001
    rtol: float = 1e-10
    atol: float = 1e-12


@dataclass(frozen=True)
class Chunk:
    """Some rows of a run.

    Attributes:
        t: Times [s], shape (rows,).
        x: States, shape (rows, size).
        rows: What was logged, shape (rows, layout.size).
        stopped: Why the run ends here before its time; None while it goes on.
        at: Time and state at which the motion was found not finite; None: at the last row, if at all.
    """

    t: Array
    x: Array
    rows: Array
    stopped: str | None = None
    at: tuple[float, Array] | None = None


class _Collector:
    """Gathers rows into chunks by wall time, and knows when a run must stop."""

    def __init__(self, loop: Loop) -> None:
        self.status = loop.layout.slices["status"].start
        law = loop.system.law
        self.stops = {Status.NOT_POSITIVE.code, Status.NON_FINITE.code} | (set() if law is None else set(law.stops_on))
        self._empty = (loop.size, loop.layout.size)
        self._rows: list[tuple[float, Array, Array]] = []
        self._since = time.monotonic()

    def add(self, t: float, x: Array, row: Array) -> str | None:
        """Takes a row; says why the run must stop, if it must."""
        self._rows.append((t, x, row))
        return self.reason(t, row)

    def reason(self, t: float, row: Array) -> str | None:
        """Why the run must stop at a row, whether or not it is written; None where it may go on."""
        code = row[self.status]
        if code in self.stops:
            status = Status.from_code(code)
            return f"t = {t:.6g} s: {status.value}"
        return None

    def due(self) -> bool:
        """Whether a chunk should be handed out."""
        return time.monotonic() - self._since > CHUNK_TIME

    def chunk(self, stopped: str | None = None, at: tuple[float, Array] | None = None) -> Chunk:
        """What was gathered; starts anew."""
        rows, self._rows, self._since = self._rows, [], time.monotonic()
        size, width = self._empty
        return Chunk(
            np.array([t for t, _, _ in rows]),
            np.array([x for _, x, _ in rows]).reshape(len(rows), size),
            np.array([row for _, _, row in rows]).reshape(len(rows), width),
            stopped,
            at,
        )


class _Watched:
    """Rates that remember at which finite state they were last not finite."""

    def __init__(self, rates: Callable[[float, Array], Array]) -> None:
        self._rates = rates
        self.at: tuple[float, Array] | None = None

    def __call__(self, t: float, x: Array) -> Array:
        value = self._rates(t, x)
        if not np.isfinite(value).all() and np.isfinite(x).all():
            self.at = float(t), np.array(x, dtype=float)
        return value


def unfit(loop: Loop, method: str, period: float | None) -> str | None:
    """Why a method does not serve a loop; None where it does."""
    if method not in METHODS:
        return f"expected one of {', '.join(METHODS)}, got {method!r}"
    if loop.system.passive.projection and method != "rk4" and period is None:
        return f"plant.passive.projection ends every step on the constraints, {method}'s steps are its own (use rk4)"
    if method != "cvodes":
        return None
    if period is not None:
        return "cvodes does not serve a sampled law, which restarts at every tick (use rk4 or dop853)"
    if not isinstance(loop, CompiledLoop):
        return (
            f"cvodes needs a compiled loop, this one runs on the {loop.engine} engine"
            f"{': ' + loop.note if loop.note else ''} (use radau)"
        )
    return None


def integrate(
    loop: Loop,
    x: Array,
    start: float,
    duration: float,
    integrator: Integrator,
    period: float | None = None,
    output_step: float | None = None,
) -> Iterator[Chunk]:
    """Runs a closed loop.

    Args:
        loop: The closed loop.
        x: State and memory at the start.
        start: Time at the start [s].
        duration: Length of the run [s].
        integrator: How to step.
        period: Of a sampled law with zero-order hold [s]; None: the law acts continuously.
        output_step: Spacing of the rows of a continuous run [s]; None: every step.

    Raises:
        TaskError: The method does not serve this loop.
        KeyboardInterrupt: After what was computed so far.
    """
    wrong = unfit(loop, integrator.method, period)
    if wrong is not None:
        raise TaskError(f"run.integrator.method: {wrong}")
    end, collector = start + duration, _Collector(loop)
    try:
        if period is not None:
            advance, parts = _held(loop, integrator, period), held_steps(integrator, period)
            yield from _fixed(loop, collector, x, grid(start, end, period), advance, None, parts)
        elif integrator.method == "rk4":
            times = grid(start, end, integrator.step)
            yield from _fixed(loop, collector, x, times, _continuous(loop), output_step)
        elif integrator.method == "cvodes":
            yield from _cvodes(loop, collector, x, grid(start, end, output_step or duration / 1000), integrator)
        else:
            yield from _adaptive(loop, collector, x, start, end, integrator, output_step)
    except ServoctlError as error:
        yield collector.chunk(str(error))
    except KeyboardInterrupt:
        yield collector.chunk()
        raise


def grid(start: float, end: float, step: float) -> Array:
    """Times from start in steps, the last one exactly at the end; a last step shorter than 1e-9 of one is merged."""
    count = max(1, math.ceil((end - start) / step - 1e-9))
    times = start + step * np.arange(count + 1)
    times[-1] = end
    return times


def _continuous(loop: Loop) -> Advance:
    """One Runge-Kutta step under a law that acts continuously."""
    if isinstance(loop, CompiledLoop):
        kernel, parameters = loop.stepper(None), loop.parameters

        def compiled(t: float, x: Array, h: float) -> tuple[Array, Array]:
            loop.evaluations += 4
            following, row = kernel(x, t, h, parameters)
            return following, row

        return compiled

    def numeric(t: float, x: Array, h: float) -> tuple[Array, Array]:
        first, row = loop.rates(t, x)
        return rk4(lambda s, y: loop.rates(s, y)[0], t, x, h, first), row

    return numeric


def held_steps(integrator: Integrator, period: float) -> int:
    """Steps of rk4 in one hold; 0 for the adaptive methods."""
    return max(1, round(period / integrator.step)) if integrator.method == "rk4" else 0


def _held(loop: Loop, integrator: Integrator, period: float) -> Advance:
    """One hold of a sampled law."""
    substeps = held_steps(integrator, period)
    if isinstance(loop, CompiledLoop) and substeps:
        kernel, parameters = loop.stepper(substeps), loop.parameters

        def compiled(t: float, x: Array, h: float) -> tuple[Array, Array]:
            loop.evaluations += 4 * substeps + 2
            following, row = kernel(x, t, h, parameters)
            return following, row

        return compiled

    def numeric(t: float, x: Array, h: float) -> tuple[Array, Array]:
        command = loop.control(t, x)
        first, log = loop.motion(t, x, command)

        def rates(s: float, y: Array) -> Array:
            return loop.motion(s, y, command)[0]

        row = np.concatenate([command, log])
        if not np.isfinite(first).all():
            return np.full(len(x), np.nan), row
        if substeps:
            for i in range(substeps):
                x = rk4(rates, t + i * h / substeps, x, h / substeps)
            return x, row
        solver = _solver(integrator, rates, t, x, t + h)
        while solver.status == "running":
            _advance(solver)
        return (solver.y if solver.status == "finished" else np.full(len(x), np.nan)), row

    return numeric


def _fixed(
    loop: Loop,
    collector: _Collector,
    x: Array,
    times: Array,
    advance: Advance,
    output_step: float | None,
    parts: int | None = None,
) -> Iterator[Chunk]:
    """Over the times, in C as far as it goes, else step by step; keeps every row, or those an output step asks for.

    Args:
        loop: The closed loop.
        collector: Takes the rows.
        x: State and memory at the first time.
        times: Of the steps, shape (steps + 1,) [s].
        advance: One step.
        output_step: Spacing of the rows [s]; None: every step.
        parts: Of a hold, as `held_steps` has them; None: the law acts continuously.
    """
    wanted, done = _Wanted(times, output_step), 0
    project = loop.system.passive.projection and bool(loop.system.model.passive_rows)
    library = None if project or not isinstance(loop, CompiledLoop) else loop.library(parts)
    if isinstance(loop, CompiledLoop) and library is not None and wanted.only_steps:
        done, x = yield from _stretches(loop, library, collector, x, times, wanted, parts)
    yield from _stepped(loop, collector, x, times, advance, wanted, parts, project, done)


def _stretches(
    loop: CompiledLoop,
    library: Library,
    collector: _Collector,
    x: Array,
    times: Array,
    wanted: "_Wanted",
    parts: int | None,
) -> Generator[Chunk, None, tuple[int, Array]]:
    """Stretches of steps in C, doubled as long as one takes less than half a chunk's time.

    Returns:
        The first step that must be looked at, or the number of steps, and the state there.
    """
    done, length, count = 0, FIRST_STRETCH, len(times) - 1
    stops = np.array(sorted(collector.stops), dtype=float)
    while done < count:
        began, asked = time.monotonic(), min(length, count - done)
        states, rows = library.steps(x, times[done : done + asked + 1], loop.parameters, collector.status, stops)
        good, x = len(rows), states[-1]
        loop.evaluations += good * (4 if parts is None else 4 * parts + 2)
        kept = [k for k in range(good) if wanted.at(done + k)]
        if kept:
            yield Chunk(times[done : done + good][kept], states[kept], rows[kept])
        done += good
        if good < asked:
            break
        if time.monotonic() - began < CHUNK_TIME / 2:
            length = min(2 * length, LONGEST_STRETCH)
    return done, x


def _stepped(
    loop: Loop,
    collector: _Collector,
    x: Array,
    times: Array,
    advance: Advance,
    wanted: "_Wanted",
    parts: int | None,
    project: bool,
    done: int,
) -> Iterator[Chunk]:
    """Step by step from the step `done` on; `project` puts each end back onto the passive constraints."""
    for k in range(done, len(times) - 1):
        t, h = float(times[k]), float(times[k + 1] - times[k])
        following, row = advance(t, x, h)
        stopped = collector.reason(t, row)
        if wanted.at(k) or stopped is not None:
            collector.add(t, x, row)
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        for s in wanted.between(k):
            if stopped is None and np.isfinite(following).all():
                y = _hermite(loop, t, x, t + h, following, s)
                stopped = collector.add(s, y, loop.rates(s, y)[1])
        if stopped is None and not np.isfinite(following).all():
            if not wanted.at(k):
                collector.add(t, x, row)
            stopped = f"t = {t:.6g} s: the state is not finite after the next step of {h:.3g} s"
            yield collector.chunk(stopped, _culprit(loop, t, x, h, parts))
            return
        if stopped is not None:
            yield collector.chunk(stopped)
            return
        x = loop.projected(t + h, following) if project else following
        if collector.due():
            yield collector.chunk()
    yield _last(loop, collector, float(times[-1]), x)


def _culprit(loop: Loop, t: float, x: Array, h: float, parts: int | None) -> tuple[float, Array] | None:
    """Time and state inside a step at which the rates are not finite; None where each stage's rates are."""
    command = None if parts is None else loop.control(t, x)
    rates = _Watched(lambda s, y: loop.rates(s, y)[0] if command is None else loop.motion(s, y, command)[0])
    count = parts or (1 if parts is None else 10)
    for i in range(count):
        x = rk4(rates, t + i * h / count, x, h / count)
    return rates.at


def _last(loop: Loop, collector: _Collector, t: float, x: Array) -> Chunk:
    return collector.chunk(collector.add(t, x, loop.rates(t, x)[1]))


class _Wanted:
    """Which rows of a fixed-step run are written: every step, every so many steps, or times between the steps."""

    def __init__(self, times: Array, output_step: float | None) -> None:
        self._times, self._every, self._output = times, 1, None
        if output_step is None:
            return
        ratio = output_step / float(times[1] - times[0])
        if len(times) > 2 and abs(ratio - round(ratio)) < 1e-9 * ratio:
            self._every = round(ratio)
        else:
            self._output = output_step

    @property
    def only_steps(self) -> bool:
        """Whether no row lies between two steps."""
        return self._output is None

    def at(self, k: int) -> bool:
        """Whether a row stands at the start of step k."""
        return k == 0 if self._output is not None else k % self._every == 0

    def between(self, k: int) -> list[float]:
        """Times of rows after the start of step k and not after its end."""
        if self._output is None:
            return []
        start, left, right = self._times[0], self._times[k], self._times[k + 1]
        first = math.floor((left - start) / self._output * (1 + 1e-12)) + 1
        last = math.floor((right - start) / self._output * (1 + 1e-12))
        wanted = [float(start + i * self._output) for i in range(first, last + 1)]
        return [s for s in wanted if left < s < self._times[-1] - 1e-9 * self._output]


def _hermite(loop: Loop, t: float, x: Array, end: float, following: Array, s: float) -> Array:
    """The cubic between two states that has their rates at both ends."""
    h, z = end - t, (s - t) / (end - t)
    first, last = loop.rates(t, x)[0], loop.rates(end, following)[0]
    return (
        (1 + 2 * z) * (1 - z) ** 2 * x
        + z**2 * (3 - 2 * z) * following
        + h * z * (1 - z) ** 2 * first
        - h * z**2 * (1 - z) * last
    )


def _solver(integrator: Integrator, rates: Callable[[float, Array], Array], t: float, x: Array, end: float) -> Any:
    from scipy.integrate import DOP853, LSODA, Radau

    method = {"dop853": DOP853, "radau": Radau, "lsoda": LSODA}[integrator.method]
    return method(rates, t, x, end, rtol=integrator.rtol, atol=integrator.atol)


def _advance(solver: Any) -> str | None:
    """One step of a solver; why it failed, if it did."""
    try:
        message: str | None = solver.step()
    except ServoctlError:
        raise
    except ValueError as error:  # Radau's linear algebra refuses numbers that are not finite
        solver.status, message = "failed", str(error)
    return message


def _adaptive(
    loop: Loop,
    collector: _Collector,
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
    rates = _Watched(lambda t, y: loop.rates(t, y)[0])
    solver = _solver(integrator, rates, start, x, end)
    while solver.status == "running":
        t, rates.at = solver.t, None
        message = _advance(solver)
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
        for s in times:
            y = solver.y if dense is None or s == solver.t else dense(s)
            stopped = collector.add(s, y, loop.rates(s, y)[1])
            if stopped is not None:
                yield collector.chunk(stopped)
                return
        if collector.due():
            yield collector.chunk()
    yield collector.chunk()


def _cvodes(loop: Loop, collector: _Collector, x: Array, times: Array, integrator: Integrator) -> Iterator[Chunk]:
    """SUNDIALS' CVODES through CasADi, in stretches of the output grid."""
    assert isinstance(loop, CompiledLoop)
    t, y, p = ca.MX.sym("t"), ca.MX.sym("x", loop.size), ca.MX.sym("p", len(loop.parameters))
    problem = {"t": t, "x": y, "p": p, "ode": loop.rates_kernel.function(t, y, p)[0]}
    options = {"reltol": integrator.rtol, "abstol": integrator.atol, "max_num_steps": 100_000}
    options |= {"show_eval_warnings": False, "disable_internal_warnings": True}  # the chunk says what went wrong
    for left in range(0, len(times) - 1, 100):
        part = times[left : left + 101]
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
        x = states[-1]
        if collector.due():
            yield collector.chunk()
    yield _last(loop, collector, float(times[-1]), x)
