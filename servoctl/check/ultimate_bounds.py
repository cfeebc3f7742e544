"""Where the error of a row settles at last: closed forms for robust and adaptive terms and for a disturbance observer.

Words and terms are those of `laws.robust`. On the true plant beta' = (1 + E)(-kappa beta - g) + d. With rho >=
|d| / (1 + rho_E) and V = |beta|^2 / 2:

    V' <= -(1 + rho_E) (kappa |beta|^2 - eps / 4)
    |beta(t)|^2 <= |beta(0)|^2 e^(-2 (1 + rho_E) kappa t) + eps / (4 kappa) (1 - e^(...))

kappa is the smallest of all rows if they differ, or `mu / (1 + rho_E)` of `assembly.model_error` for an uncertain
plant.

With a disturbance observer of rate L instead, and rows that E does not couple:

    beta / d = s / (s^2 + (1 + E) (kappa + L) s + (1 + E) kappa L),   |beta| settles below sup|d'| / ((1 + E) kappa L)

The observer knows what acted, so it leaves alone what a late command misses: sup|T_n u_n'| (delay + h) / kappa more.

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


def observer_lag(rate: float, period: float, delay: float) -> float:
    """Time by which a held observer follows a disturbance late [s]: 1 / L, half a period, the delay and the hold.

    Args:
        rate: L [1/s].
        delay: From the measurement to the torque [s].
    """
    return period / math.expm1(rate * period) + 1.5 * period + delay


def observed(rate: float, lag: float, kappa: float, rho_E: float, missed: float = 0.0) -> float:
    """|beta| settles below it with a disturbance observer; infinite if rho_E is at or below -1.

    For E below 0 the poles may be complex. The largest answer to a bounded d' is then that of their step response with
    every swing added: coth(pi zeta / (2 sqrt(1 - zeta^2))) times as large.

    Args:
        rate: Largest |d'| [acceleration of the rows per s, scaled].
        lag: Of the observer [s]; 1 / L if it is not held.
        kappa: Decay rate of beta [1/s].
        rho_E: Worst relative error of the task map.
        missed: Largest part of the model's own acceleration that late commands miss [as of `rate`, times s].
    """
    if not rho_E > -1.0:
        return math.inf
    damping, stiffness = (1.0 + rho_E) * (kappa + 1.0 / lag), (1.0 + rho_E) * kappa / lag
    zeta = damping / (2.0 * math.sqrt(stiffness))
    swings = 1.0 if zeta >= 1.0 else 1.0 / math.tanh(math.pi * zeta / (2.0 * math.sqrt(1.0 - zeta * zeta)))
    return (rate / stiffness + missed / kappa) * swings
