"""Integration over one hold of a sampled law: fixed substeps, or steps that the method chooses."""

from collections.abc import Callable

import numpy as np

from servoctl.simulation.adaptive import solver_of
from servoctl.simulation.progress import finish
from servoctl.simulation.rows import Integrator
from servoctl.simulation.runge_kutta import rk4_steps
from servoctl.types import Array


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
        t: Time at the start [s].
        x: State there.
        h: Length of the hold [s].
        integrator: How to step.
        substeps: Steps of rk4; 0: an adaptive method.
        jacobian: (t, x) -> dx'/dx, for an implicit method.

    Raises:
        IntegrationError: An adaptive method does not reach the end.
    """
    if substeps:
        after: Array = rk4_steps(rates, t, x, h, substeps)
        return after
    solver = solver_of(integrator, rates, t, x, t + h, jacobian)
    finish(solver, integrator.method)
    return solver.y if solver.status == "finished" else np.full(len(x), np.nan)
