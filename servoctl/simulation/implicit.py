"""The Jacobian for implicit methods: exact if the loop is compiled, else by differences.

Design: SciPy's own differences increase the change of a coordinate that has no effect until it overflows, and the run
ends on infinities. Here the changes have a fixed size and the result is always finite: a Jacobian only directs
Newton's iteration, so a column that cannot be computed is zero.
"""

from collections.abc import Callable

import numpy as np

from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

CHANGE = float(np.finfo(float).eps ** (1 / 3))
"""Relative change of a state at which truncation and rounding errors of a central difference are alike."""


def jacobian_of(
    loop: Loop, rates: Callable[[float, Array], Array], integrator: Integrator, command: Array | None = None
) -> Callable[[float, Array], Array] | None:
    """(t, x) -> dx'/dx, shape (size, size), all finite; None for a method that needs none.

    Args:
        loop: The closed loop.
        rates: (t, x) -> x', to differentiate.
        integrator: How to step.
        command: The held command; None: the law acts continuously.
    """
    if integrator.method != "radau":
        return None
    # for entries below this size the absolute tolerance decides
    least = integrator.atol / integrator.rtol

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
