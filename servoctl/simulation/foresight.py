"""What a run of adaptive steps will take on the virtual machine, foreseen from the evaluations of its beginning.

Design: evaluations and operations are counted and nothing is measured, so that the same run takes the same engine on
every machine, and its summary can say why.
"""

from dataclasses import dataclass

import numpy as np

from servoctl.engine.cost import operations
from servoctl.errors import ServoctlError
from servoctl.simulation.adaptive import solver_of
from servoctl.simulation.implicit import jacobian_of
from servoctl.simulation.integrate import sampled
from servoctl.simulation.progress import take_step
from servoctl.simulation.simulate import Settings
from servoctl.simulation.traced import CompiledLoop
from servoctl.types import State

FIRST = 1.0
"""Length of the beginning that is looked at, or a tenth of the run where that is shorter [s]."""

MOST_COUNTED = 2000
"""Evaluations after which the beginning ends."""

EVALUATION, OPERATION = 1e-5, 2e-9
"""An evaluation on the virtual machine, with a solver's part in Python, and each operation in it [s].

Shipped configs on a 2 GHz Xeon: 7 us and 1.8 to 3 ns of processor time, rows not counted.
"""


@dataclass(frozen=True)
class Foresight:
    """What a run will take.

    Attributes:
        counted: Evaluations in the beginning.
        span: Length of the beginning [s].
        evaluations: Of the whole run, rows included.
        total: On the virtual machine [s].
        saved: What of it generated C takes over [s].
    """

    counted: int
    span: float
    evaluations: float
    total: float
    saved: float

    def __str__(self) -> str:
        return (
            f"{self.counted} evaluations in the first {self.span:.3g} s foretell {self.evaluations:.3g}, about "
            f"{self.total:.2g} s on the virtual machine"
        )


def foresee(loop: CompiledLoop, start: State, settings: Settings) -> Foresight | None:
    """What comes of the beginning of a run of adaptive steps; None where that fails.

    Args:
        loop: On the virtual machine.
        start: Initial state.
        settings: How to run.
    """
    before, until = loop.evaluations, start.t + min(FIRST, settings.duration / 10)
    take = _continuous if settings.period is None else _held
    try:
        reached, rows = take(loop, start, settings, until)
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
    whole = settings.integrator.method == "dop853" and settings.period is None  # else SciPy steps, in Python
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
