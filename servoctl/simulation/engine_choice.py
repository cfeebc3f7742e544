"""Which engine runs a loop: NumPy, CasADi's virtual machine, or generated C.

Design: every compiled loop starts on the virtual machine. `c` compiles first. `auto` takes C if the library is cached.
Else a command compiles beside the run (`engine.background`), and a caller who waits compiles first where fixed steps
take longer than `LONG`.
"""

import time
from dataclasses import replace

import numpy as np

from servoctl.engine.background import Compilation
from servoctl.engine.batch import BatchLibrary
from servoctl.engine.select_engine import patience
from servoctl.errors import CompileError, TraceError
from servoctl.laws.bound_following import BoundConstraintFollowing
from servoctl.mechanics.model import Model
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.fixed import continuous
from servoctl.simulation.integrate import sampled
from servoctl.simulation.mean_bounds import foreseeing
from servoctl.simulation.monitor import MotionMonitor
from servoctl.simulation.numpy_loop import NumpyLoop
from servoctl.simulation.settings import Settings
from servoctl.simulation.side_by_side import plan_of
from servoctl.simulation.system import System
from servoctl.simulation.traced import OpaqueLoop
from servoctl.types import State

UNROLLED_ROWS = 32
"""With more rows, symbols are not unrolled: at 30 tracing takes 2 s; a run of 2 s takes 0.15 s in C, 10 s in NumPy."""

UNROLLED_COORDINATES, UNROLLED_STATEMENTS = 30, 12_000
"""With more coordinates, symbols are unrolled only if the plant has at most so many statements.

A planar chain of 30 has 10,000 statements. Tracing takes 3 s at 30 and 10 s at 50, more than it saves.
"""

LONG = 3.0
"""Fixed steps that a caller waits for are compiled first if they take longer than this on the virtual machine [s]."""


def make_loop(system: System, engine: str = "auto") -> Loop:
    """The loop on the engine asked for, or on the fastest one possible.

    Args:
        system: Plant, law and constraints.
        engine: `auto`, `c`, `vm` or `numpy`; `auto` and `c` start on the virtual machine, see `take_engine`.

    Raises:
        TraceError: `vm` is asked for and the law cannot be traced.
    """
    model = system.model
    if engine == "numpy":
        return NumpyLoop(system)
    if system.estimator is not None and model.opaque is not None:
        loop: Loop = NumpyLoop(system)
        loop.note = f"plant and estimator run in NumPy: {model.opaque}"
        return loop
    if foreseeing(system) and model.opaque is not None:
        loop = NumpyLoop(system)
        loop.note = f"plant and bounds run in NumPy: {model.opaque}"
        return loop
    n, size = _largest_part(system)
    if engine != "vm" and (size > UNROLLED_ROWS or (n > UNROLLED_COORDINATES and _is_long(model))):
        loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"{n} coordinates, {size} rows: linear algebra by LAPACK"
        if model.opaque is not None:
            loop.note += f", the plant in NumPy: {model.opaque}"
        return loop
    try:
        loop = CompiledLoop(system) if model.opaque is None else OpaqueLoop(system)
    except TraceError as error:
        if engine == "vm":
            raise
        loop = NumpyLoop(system, compiled_plant=model.opaque is None)
        loop.note = f"the law runs in NumPy, it cannot be compiled: {error}"
        return loop
    if model.opaque is not None:
        loop.note = f"the plant runs in NumPy, only the law is compiled: {model.opaque}"
    return loop


def _largest_part(system: System) -> tuple[int, int]:
    """Coordinates and rows of the largest part; those of the whole machine if its law couples the parts."""
    model, law = system.model, system.law
    plain = isinstance(law, BoundConstraintFollowing) and not (law.limited or law.observer or law.robust)
    coupled = not (law is None or plain) or model.singular or system.passive.clearance or system.estimator is not None
    whole = (model.n, model.m, len(model.passive_rows), len(model.task_rows))
    n, _, p, r = np.max([whole] if coupled else [part.size for part in model.parts], axis=0)
    return n, max(p, r)


def _is_long(model: Model) -> bool:
    """Whether the plant cannot be traced, or has more statements than are worth it."""
    if model.plant_kernel is None:
        return True
    function = model.plant_kernel.function
    return bool(function.n_instructions() - function.nnz_out() > UNROLLED_STATEMENTS)


def take_engine(loop: Loop, start: State, settings: Settings, engine: str, wait: bool = True) -> None:
    """Puts a loop on generated C if that is asked for or pays; `loop.note` says why an engine is not available.

    Args:
        loop: From `make_loop`.
        start: Initial state.
        settings: How to run.
        engine: `auto`, `c`, `vm` or `numpy`.
        wait: Whether `auto` waits for the compiler; else the run starts on the virtual machine and goes over to C at a
            moment that differs from run to run, so that two runs may differ by rounding.
    """
    if engine not in ("auto", "c") or loop.engine == "c" or engine_note(loop) is not None:
        return
    try:
        if isinstance(loop, CompiledLoop):
            _take_c(loop, start, settings, engine == "c", wait or engine == "c")
        elif engine == "c":
            loop.note = f"--engine c: the run takes engine {loop.engine} instead: {loop.note}"
    except CompileError as error:
        loop.note = f"--engine {engine}: the run takes engine {loop.engine} instead: {error}"
        loop.choice = None


def take_engine_at_once(loop: Loop, engine: str) -> str:
    """Puts the law of a loop on generated C for a loop in real time, unless `auto` would have to wait long for it.

    Args:
        loop: From `make_loop`.
        engine: `auto`, `c`, `vm` or `numpy`.

    Returns:
        Why the law runs on the virtual machine instead; empty where nothing else is asked for.
    """
    if engine not in ("auto", "c") or not isinstance(loop, CompiledLoop):
        return ""
    try:
        loop.run_on(loop.program(0).load(patience(engine)), 0)
    except CompileError as error:
        return str(error)
    return ""


def engine_note(loop: Loop) -> str | None:
    """Why a loop is not on the engine that was asked for; None if it is."""
    return loop.note if loop.note is not None and loop.note.startswith("--engine") else None


def _take_c(loop: CompiledLoop, start: State, settings: Settings, sure: bool, wait: bool) -> None:
    program = loop.program(settings.substeps)
    known = loop.is_stored and program.cached
    if known:
        loop.choice = "generated C was there already"
    if known or sure or (wait and _takes_long(loop, start, settings)):
        loop.run_on(program.load(), settings.substeps)
    elif not wait:
        loop.compilation = Compilation(program)


def batch_library(loop: Loop, start: State, settings: Settings, engine: str, count: int) -> BatchLibrary | None:
    """The library that takes many runs side by side; None if they cannot be, or are not worth a compilation.

    Args:
        loop: Loop of one run.
        start: Initial state of that run.
        settings: How to run it.
        engine: `auto`, `c`, `vm` or `numpy`.
        count: Number of runs.
    """
    s = settings
    plan = plan_of(loop, start.t, s.duration, s.integrator, s.period, s.output_step)
    if engine not in ("auto", "c") or count < 2 or plan is None or not isinstance(loop, CompiledLoop):
        return None
    if MotionMonitor(loop, start, settings).needs_rows:
        return None
    program = loop.batch_program(settings.substeps)
    together = replace(settings, duration=settings.duration * count)
    worth = engine == "c" or (loop.is_stored and program.cached) or _takes_long(loop, start, together)
    try:
        return program.load() if worth else None
    except CompileError:
        return None  # the runs one by one report why


def _takes_long(loop: CompiledLoop, start: State, settings: Settings) -> bool:
    """Whether the steps of rk4 take longer than `LONG` on the virtual machine, from the median of five steps."""
    x, how, period, times = loop.vector(start), settings.integrator, settings.period, []
    if how.method != "rk4":
        return False
    step = continuous(loop) if period is None else sampled(loop, how, period, start.t, settings.seed)
    h = period or how.step
    for _ in range(5):
        began = time.perf_counter()
        step(start.t, x, h)
        times.append(time.perf_counter() - began)
    return sorted(times)[2] * settings.duration / h > LONG
