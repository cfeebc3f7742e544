"""The Jacobian that an implicit method asks for: exact where the loop is compiled, else by differences.

Design: SciPy's own differences enlarge the change of a coordinate that nothing depends on until it overflows, and the
method ends on infinities. The changes here have a fixed size, and no answer holds a number that is not finite: a
Jacobian only directs Newton's iteration, so a column that cannot be had is a column of zeros.
"""

from collections.abc import Callable

import numpy as np

from servoctl.simulation.closed_loop import Loop
from servoctl.simulation.rows import Integrator
from servoctl.types import Array

IMPLICIT = ("radau", "lsoda")

CHANGE = float(np.finfo(float).eps ** (1 / 3))
"""Change of a state relative to its size, at which the errors of a central difference and of rounding are alike."""


def jacobian_of(
    loop: Loop, rates: Callable[[float, Array], Array], integrator: Integrator, command: Array | None = None
) -> Callable[[float, Array], Array] | None:
    """(t, x) -> dx'/dx, shape (size, size), all finite; None for a method that asks for none.

    Args:
        loop: The closed loop.
        rates: (t, x) -> x', whose derivative it is.
        integrator: How to step.
        command: What is held; None: the law acts continuously.
    """
    if integrator.method not in IMPLICIT:
        return None
    # below this size it is the absolute tolerance that counts
    least = integrator.atol / integrator.rtol

    def jacobian(t: float, x: Array) -> Array:
        exact = loop.jacobian(t, x, command)
        if exact is not None and np.isfinite(exact).all():
            return exact
        return differences(lambda y: rates(t, y), x, least)

    return jacobian


def differences(function: Callable[[Array], Array], x: Array, least: float) -> Array:
    """Derivative of a function of a vector, shape (values, len(x)), by central differences.

    One-sided where one side is not finite; an entry is zero where neither is.

    Args:
        function: x -> values.
        x: Where.
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
