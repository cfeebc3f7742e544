"""Where the error of a row settles at last: closed forms for robust and adaptive terms.

Words and terms are those of `laws.robust`. On the true plant beta' = (1 + E)(-kappa beta - g) + d. With rho >=
|d| / (1 + rho_E) and V = |beta|^2 / 2:

    V' <= -(1 + rho_E) (kappa |beta|^2 - eps / 4)
    |beta(t)|^2 <= |beta(0)|^2 e^(-2 (1 + rho_E) kappa t) + eps / (4 kappa) (1 - e^(...))

kappa is the smallest of all rows if they differ, or `mu / (1 + rho_E)` of `assembly.model_error` for an uncertain
plant.

Source: derived here, in the structure of Chen, Zhang 2010; that with a constant rho (`settled`) is ours.
"""

import math


def radius(eps: float, kappa: float) -> float:
    """R: |beta| settles below it whatever rho is [rate of the row, scaled]."""
    return math.sqrt(eps / (4.0 * kappa))


def settled(rho: float, eps: float, kappa: float) -> float:
    """|beta| settles below it for a constant rho; at most `radius`, and equal to it at rho^2 = kappa eps."""
    return rho * eps / (kappa * eps + rho * rho)


def leakage_rms(alpha: float, rate: float, leak: float, kappa: float, gain: float) -> float:
    """Root mean square of beta that a leaking estimate settles below; infinite if there is no bound.

    Averaged, -(leak / rate) (x - alpha) x + x^2 / (4 G) of the estimate x is at most
    c^2 alpha^2 / (4 (c - 1 / (4 G))) with c = leak / rate.

    Args:
        alpha: Size of the disturbance divided by 1 + rho_E.
        rate, leak: Of the estimate [1/s^2], [1/s].
        kappa: Decay rate of beta [1/s].
        gain: G, the gain budget without kappa [1/s].
    """
    c = leak / rate
    rest = c - 1.0 / (4.0 * gain)
    return alpha * math.sqrt(c * c / (4.0 * rest * kappa)) if rest > 0.0 else math.inf


def dead_zone_time(
    alpha: float, rate: float, width: float, kappa: float, gain: float, rho_E: float, beta: float = 0.0
) -> float:
    """Longest total time for which |beta| is above the dead zone [s]; infinite if there is no bound.

    Args:
        alpha, rate, kappa, gain: As of `leakage_rms`.
        width: Of the dead zone.
        rho_E: Worst relative error of the task map.
        beta: |beta| at the start.
    """
    V = beta * beta / 2.0 + (1.0 + rho_E) * alpha * alpha / (2.0 * rate)
    largest = alpha + math.sqrt(2.0 * rate * V / (1.0 + rho_E))  # of the estimate: V never grows outside the zone
    rest = kappa * width * width - largest * largest / (4.0 * gain)
    return V / ((1.0 + rho_E) * rest) if rest > 0.0 else math.inf
