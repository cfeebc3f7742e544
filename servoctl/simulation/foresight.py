"""How long a run of adaptive steps takes on the virtual machine, estimated from the evaluations of its first second.

Design: evaluations and operations are counted, time is not measured. So a run takes the same engine on every machine,
and its summary can give the reason.
"""

from dataclasses import dataclass

import numpy as np

from servoctl.engine.cost import operations
from servoctl.errors import ServoctlError
from servoctl.simulation.adaptive import solver_of
from servoctl.simulation.compiled import CompiledLoop
from servoctl.simulation.implicit import jacobian_of
from servoctl.simulation.integrate import sampled
from servoctl.simulation.progress import take_step
from servoctl.simulation.settings import Settings
from servoctl.types import State

FIRST = 1.0
"""Length of the beginning that is evaluated, at most a tenth of the run [s]."""

MOST_COUNTED = 2000
"""The beginning ends after this many evaluations."""

EVALUATION, OPERATION = 1e-5, 2e-9
"""Time of an evaluation on the virtual machine, the solver's Python included, and of each operation in it [s].

Measured with the shipped configs on a 2 GHz Xeon: 7 us and 1.8 to 3 ns of processor time, rows not counted.
"""


@dataclass(frozen=True)
class Foresight:
    """Estimated cost of a run.

    Attributes:
        counted: Evaluations in the beginning.
        span: Length of the beginning [s].
        evaluations: Expected in the whole run, rows included.
        total: Expected time on the virtual machine [s].
        saved: Part of it that generated C saves [s].
    """

    counted: int
    span: float
    evaluations: float
    total: float
    saved: float

    def __str__(self) -> str:
        return (
            f"{self.counted} evaluations in the first {self.span:.3g} s predict {self.evaluations:.3g}, about "
            f"{self.total:.2g} s on the virtual machine"
        )


def foresee(loop: CompiledLoop, start: State, settings: Settings) -> Foresight | None:
    """Runs the beginning of a run of adaptive steps and extrapolates; None if the beginning fails.

    Args:
        loop: On the virtual machine.
        start: Initial state.
        settings: How to run.
    """
    before, until = loop.evaluations, start.t + min(FIRST, settings.duration / 10)
    begin = _continuous if settings.period is None else _held
    try:
        reached, rows = begin(loop, start, settings, until)
    except ServoctlError:
        return None
    finally:
        counted, loop.evaluations = loop.evaluations - before, before
    span = reached - start.t
    if not span > 0.0:
        return None
    rate = counted / span
    if settings.period is None:
        rate += rows / span if settings.output_step is None else 1.0 / settings.output_step
    evaluations = rate * settings.duration
    work = OPERATION * operations(
        loop.rates_kernel.function if settings.period is None else loop.motion_kernel.function
    )
    total = evaluations * (EVALUATION + work)
    whole = settings.integrator.method == "dop853" and settings.period is None  # else SciPy takes the steps, in Python
    return Foresight(counted, span, evaluations, total, total if whole else evaluations * work)


def _continuous(loop: CompiledLoop, start: State, settings: Settings, until: float) -> tuple[float, int]:
    """Time reached, and steps."""
    how, rates = settings.integrator, loop.derivative
    solver = solver_of(how, rates, start.t, loop.vector(start), until, jacobian_of(loop, rates, how))
    most, steps = loop.evaluations + MOST_COUNTED, 0
    while solver.status == "running" and loop.evaluations < most:
        take_step(solver)
        steps += 1
    return float(solver.t), steps


def _held(loop: CompiledLoop, start: State, settings: Settings, until: float) -> tuple[float, int]:
    """Time reached, and holds."""
    assert settings.period is not None
    advance = sampled(loop, settings.integrator, settings.period, start.t, settings.seed)
    x, t, most, holds = loop.vector(start), start.t, loop.evaluations + MOST_COUNTED, 0
    while (holds == 0 or (t < until and loop.evaluations < most)) and np.isfinite(x).all():
        x = advance(t, x, settings.period)[0]
        holds += 1
        t = start.t + holds * settings.period
    return t, holds
