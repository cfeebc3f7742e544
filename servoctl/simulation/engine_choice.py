"""Which engine runs a loop: CasADi's virtual machine, with the plant compiled or in NumPy, or generated C.

Design: every loop starts on the virtual machine. `c` compiles first. `auto` takes C if the library is cached.
Else a command compiles beside the run (`engine.background`), and a caller who waits compiles first where fixed steps
take longer than `LONG`.
"""

import time
from dataclasses import replace

from servoctl.engine.background import Compilation
from servoctl.engine.ccode import BatchLibrary
from servoctl.engine.kernel import patience
from servoctl.errors import CompileError
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.monitor import MotionMonitor
from servoctl.simulation.settings import Settings
from servoctl.simulation.side_by_side import plan_of
from servoctl.simulation.steps import step_of
from servoctl.simulation.system import System
from servoctl.types import State

LONG = 3.0
"""Fixed steps that a caller waits for are compiled first if they take longer than this on the virtual machine [s]."""


def make_loop(system: System, engine: str = "auto") -> Loop:
    """The loop on the engine asked for, or on the fastest one possible; `loop.note` says what runs in NumPy.

    Args:
        engine: `auto`, `c`, `vm` or `numpy`; `auto` and `c` start on the virtual machine, see `take_engine`.

    Raises:
        TraceError: The law cannot be traced.
    """
    loop = Loop(system, in_numpy=engine == "numpy")
    law, model = system.acting, system.model
    if model.opaque is not None:
        loop.note = f"the plant runs in NumPy, only the law is compiled: {model.opaque}"
    elif law.opaque is not None:
        loop.note = f"a function of the law runs in NumPy: {law.opaque}"
    return loop


def take_engine(loop: Loop, start: State, settings: Settings, engine: str, wait: bool = True) -> None:
    """Puts a loop on generated C if that is asked for or pays; `loop.note` says why an engine is not available.

    Args:
        wait: Whether `auto` waits for the compiler; else the run starts on the virtual machine and goes over to C at a
            moment that differs from run to run, so that two runs may differ by rounding.
    """
    refused = loop.note is not None and loop.note.startswith("--engine")
    if engine not in ("auto", "c") or loop.engine == "c" or refused:
        return
    try:
        if loop.traced:
            _take_c(loop, start, settings, engine == "c", wait or engine == "c")
        elif engine == "c":
            loop.note = f"--engine c: the run takes engine {loop.engine} instead: {loop.note}"
    except CompileError as error:
        loop.note = f"--engine {engine}: the run takes engine {loop.engine} instead: {error}"
        loop.choice = None


def take_engine_at_once(loop: Loop, engine: str) -> str:
    """Puts the law of a loop on generated C for a loop in real time, unless `auto` would have to wait long for it.

    Returns:
        Why the law runs on the virtual machine instead; empty where nothing else is asked for.
    """
    if engine not in ("auto", "c") or not loop.traced:
        return ""
    try:
        loop.run_on(loop.program(0).load(patience(engine)), 0)
    except CompileError as error:
        return str(error)
    return ""


def _take_c(loop: Loop, start: State, settings: Settings, sure: bool, wait: bool) -> None:
    if not (sure or loop.differentiable):
        return  # bands in NumPy take less time than dense loops in C
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
        count: Number of runs.
    """
    plan = plan_of(loop, start.t, settings)
    if engine not in ("auto", "c") or count < 2 or plan is None:
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


def _takes_long(loop: Loop, start: State, settings: Settings) -> bool:
    """Whether the steps of rk4 take longer than `LONG` on the virtual machine, from the median of five steps."""
    x, how, period, times = loop.vector(start), settings.integrator, settings.period, []
    if how.fixed_step is None:
        return False
    step = step_of(loop, settings, start.t)
    h = period or how.fixed_step
    for _ in range(5):
        began = time.perf_counter()
        step(start.t, x, h)
        times.append(time.perf_counter() - began)
    return sorted(times)[2] * settings.duration / h > LONG
