"""Integration of a closed loop in time: fixed steps, adaptive steps, or a sampled law held between ticks.

Design: every method yields chunks of rows, so that a run can be recorded, shown and stopped while it goes on. A sampled
run restarts the integration at each hold and logs a row at every tick, with the u that acts from then on. The last row
is exactly at the end.
"""

from collections.abc import Iterator

from servoctl.errors import ServoctlError, TaskError
from servoctl.simulation.adaptive import adaptive
from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.fixed import Advance, continuous, fixed, held
from servoctl.simulation.realistic import Period, TickNoise
from servoctl.simulation.rows import Chunk, Grid, RowCollector, too_many
from servoctl.simulation.settings import METHODS, Integrator
from servoctl.types import Array

__all__ = [
    "METHODS",
    "Chunk",
    "Grid",
    "Integrator",
    "continuous",
    "integrate",
    "sampled",
    "too_long",
]


def too_long(
    loop: Loop, duration: float, integrator: Integrator, period: float | None, output_step: float | None
) -> str | None:
    """Why a run is too long to start; None if it is not. Arguments as of `integrate`."""
    step = integrator.fixed_step if period is None else period / max(1, integrator.substeps(period))
    rows = (output_step or integrator.fixed_step) if period is None else period
    return too_many(duration, step, rows, 1 + loop.size + loop.carried + loop.layout.size)


def integrate(
    loop: Loop,
    x: Array,
    start: float,
    duration: float,
    integrator: Integrator,
    period: float | None = None,
    output_step: float | None = None,
    seed: int = 0,
) -> Iterator[Chunk]:
    """Runs a closed loop.

    Args:
        x: State at the start, from `Loop.vector`.
        start: Time at the start [s].
        period: Period of a sampled law with zero-order hold [s]; None: the law acts continuously.
        output_step: Spacing of the rows of a continuous run [s]; None: every step.
        seed: Seed of the random numbers of a realistic run.

    Raises:
        TaskError: There is no such method.
        KeyboardInterrupt: After the rows so far were yielded.
    """
    if integrator.method not in METHODS:
        expected = f"expected one of {', '.join(METHODS)}"
        raise TaskError(f"run.integrator.method: {expected}, got {integrator.method!r}")
    end, collector = start + duration, RowCollector(loop)
    try:
        if period is not None:
            advance, substeps = sampled(loop, integrator, period, start, seed), integrator.substeps(period)
            yield from fixed(loop, collector, x, Grid(start, end, period), advance, None, substeps)
        elif (step := integrator.fixed_step) is not None:
            times = Grid(start, end, step)
            yield from fixed(loop, collector, x, times, continuous(loop), output_step)
        else:
            yield from adaptive(loop, collector, x, start, end, integrator, output_step)
    except ServoctlError as error:
        yield collector.chunk(str(error))
    except KeyboardInterrupt:
        yield collector.chunk()
        raise


def sampled(loop: Loop, integrator: Integrator, period: float, start: float, seed: int) -> Advance:
    """The step over one period of a sampled law, with realism if the loop has it; arguments as of `integrate`."""
    if loop.system.realism is None:
        return held(loop, integrator, period)
    return Period(loop, integrator, integrator.substeps(period), TickNoise(loop, start, seed))
