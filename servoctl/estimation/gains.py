"""Steady gains of the estimators, per coordinate.

    model       x = (q, v, d),  x- = A x + (h^2/2, h, 0) a,  x = x- + K (y - q-)
                A = [[1, h, h^2/2], [0, 1, h], [0, 0, 1]],  Q = diag(0, 0, (s h)^2),  R = r^2
    alpha_beta  x = (q, v),  the same with a random acceleration of standard deviation s, constant over each period

K is the steady Kalman gain: of the discrete Riccati equation, or in closed form.

Design: the equation is solved for q / r, v h / r, d h^2 / r, where only the number s h^3 / r is left, so that its
numbers stay near 1 for every unit and period.

Source: Kalman 1960; Kalata 1984 for alpha-beta. The disturbance as a state is usual.
"""

from dataclasses import dataclass

import numpy as np

from servoctl.errors import TaskError
from servoctl.types import Array

LEAST, MOST = 1e-12, 1e6
"""Range of s h^3 / r in which the Riccati equation is solved to the last digits, and of s h^2 / r."""

SHORTEST, LONGEST = 0.2, 1e6
"""Times of a low pass, from one that passes differences unchanged to 1e-4 to one that hardly passes any [periods]."""


@dataclass(frozen=True)
class Gains:
    """Steady gains of one coordinate."""

    q: float  # [-] on the innovation, of the position
    v: float  # [1/s] of the velocity
    d: float  # of the disturbance [1/s^2]; 0 without one
    innovation: float  # [its unit] standard deviation of the innovation
    sigma: tuple[float, float, float]  # [its unit, per s, per s^2] standard deviations of q, v and d after an update

    def poles(self, h: float) -> Array:
        """Eigenvalues of the estimate's error from tick to tick, shape (2,) or (3,)."""
        size = 3 if self.d else 2
        A = np.array([[1.0, h, h * h / 2.0], [0.0, 1.0, h], [0.0, 0.0, 1.0]])[:size, :size]
        K = np.array([self.q, self.v, self.d])[:size]
        return np.linalg.eigvals(A - np.outer(K, A[0]))


def model_gains(h: float, disturbance: float, noise: float) -> Gains:
    """The Kalman gains with a disturbance acceleration.

    Args:
        h: Period [s].
        disturbance: s: how fast the disturbance changes [unit/s^2 per s].
        noise: r: standard deviation of the positions [unit].

    Raises:
        TaskError: The numbers are too far apart for a solution.
    """
    from scipy.linalg import solve_discrete_are  # here, because it takes a third of the time to start a command

    index = disturbance * h**3 / noise
    if not LEAST <= index <= MOST:
        raise TaskError(
            f"disturbance {disturbance:g} and noise {noise:g} at a period of {h:g} s: disturbance period^3 / noise is "
            f"{index:.2g} (expected {LEAST:g} to {MOST:g})"
        )
    A = np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    H, Q, R = np.array([[1.0, 0.0, 0.0]]), np.diag([0.0, 0.0, index**2]), np.eye(1)
    try:
        P = solve_discrete_are(A.T, H.T, Q, R)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise TaskError(f"disturbance {disturbance:g}, noise {noise:g}: no steady gain ({error})") from error
    for _ in range(3):  # the recursion itself takes the last digits of rounding away
        P = A @ (P - np.outer(P[:, 0], P[0]) / (P[0, 0] + 1.0)) @ A.T + Q
    S = P[0, 0] + 1.0
    K, after = P[:, 0] / S, P - np.outer(P[:, 0], P[0]) / S
    sigma = noise * np.sqrt(np.diag(after)) / np.array([1.0, h, h * h])
    return Gains(float(K[0]), float(K[1] / h), float(K[2] / h**2), float(noise * np.sqrt(S)), tuple(sigma.tolist()))


def alpha_beta_gains(h: float, acceleration: float, noise: float) -> Gains:
    """The steady Kalman gains without a model.

    Args:
        h: Period [s].
        acceleration: s: standard deviation of the acceleration [unit/s^2].
        noise: r: standard deviation of the positions [unit].

    Raises:
        TaskError: The numbers are too far apart for gains that are neither 0 nor 1.
    """
    index = acceleration * h * h / noise
    if not LEAST <= index <= MOST:
        raise TaskError(
            f"acceleration {acceleration:g} and noise {noise:g} at a period of {h:g} s: acceleration period^2 / noise "
            f"is {index:.2g} (expected {LEAST:g} to {MOST:g})"
        )
    # (4 + index - sqrt(8 index + index^2)) / 4, without the difference of two numbers that are nearly equal
    root = 4.0 / (4.0 + index + np.sqrt(8.0 * index + index * index))
    alpha = 1.0 - root * root
    beta = 2.0 * (2.0 - alpha) - 4.0 * root
    return _tracking(h, float(alpha), float(beta), noise)


def low_pass_gains(h: float, time: float, noise: float) -> Gains:
    """Gains of a filter that differentiates positions: alpha-beta with both poles at exp(-2 h / time).

    Raises:
        TaskError: The time is too short, or too long.
    """
    if not SHORTEST * h <= time <= LONGEST * h:
        raise TaskError(f"filter_time {time:g} s: expected {SHORTEST:g} to {LONGEST:g} periods of {h:g} s")
    pole = float(np.exp(-2.0 * h / time))
    return _tracking(h, 1.0 - pole * pole, (1.0 - pole) ** 2, noise)


def _tracking(h: float, alpha: float, beta: float, noise: float) -> Gains:
    speed = noise / h * float(np.sqrt(beta * (alpha - beta / 2.0) / (1.0 - alpha)))
    return Gains(alpha, beta / h, 0.0, noise / float(np.sqrt(1.0 - alpha)), (noise * float(np.sqrt(alpha)), speed, 0.0))
