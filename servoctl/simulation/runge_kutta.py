"""The classical Runge-Kutta method, and the cubic between two of its states; on numbers or on symbols.

Source: Hairer, Norsett, Wanner 1993, II.1 (the method), II.6 (cubic Hermite interpolation).
"""

from typing import Any


def rk4(rates: Any, t: Any, x: Any, h: Any, first: Any = None) -> Any:
    """x after one step.

    Args:
        h: Step [s].
        first: rates(t, x), if the caller has it already.
    """
    k1 = rates(t, x) if first is None else first
    k2 = rates(t + h / 2, x + h / 2 * k1)
    k3 = rates(t + h / 2, x + h / 2 * k2)
    k4 = rates(t + h, x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rk4_steps(rates: Any, t: Any, x: Any, h: Any, substeps: int) -> Any:
    """x after a time h [s], in so many equal steps; the other arguments as of `rk4`."""
    for i in range(substeps):
        x = rk4(rates, t + i * h / substeps, x, h / substeps)
    return x


def hermite(x0: Any, v0: Any, x1: Any, v1: Any, h: float, z: float) -> Any:
    """Value of the cubic that has given values and rates at both ends.

    Args:
        x0: Value at the start.
        v0: Rate there [1/s].
        x1: Value at the end.
        v1: Rate there.
        h: Time from start to end [s].
        z: Time since the start, as a fraction of h.
    """
    return (1 + 2 * z) * (1 - z) ** 2 * x0 + z**2 * (3 - 2 * z) * x1 + h * z * (1 - z) * ((1 - z) * v0 - z * v1)
