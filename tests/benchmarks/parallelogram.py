"""The overconstrained parallelogram: its starts, and the closed solution of its motion.

12 absolute coordinates, 12 rows of rank 11, one degree of freedom. Three parallel links and a coupler swing under
gravity. The angle theta follows the equation of a pendulum, which has a closed solution.
"""

from functools import cache

import numpy as np
from scipy.integrate import OdeSolution, solve_ivp
from scipy.special import ellipj, ellipk

from servoctl.types import Array

START = -np.pi / 4  # [rad]
DURATION = 20.0  # [s]

INERTIA = 3.05  # [kg m^2] 3 (I + m L^2 / 4) + m2 L^2
MOMENT = 3.5 * 9.81  # [N m] (3 m / 2 + m2) g L: theta'' = -MOMENT / INERTIA cos(theta)

EIGHT_STARTS = (
    *((float(np.deg2rad(angle)), 0.0) for angle in (10, 30, 45, 60, 80)),
    *((np.pi / 2, rate) for rate in (0.2, 1.0, 3.0)),
)
"""theta [rad] and its rate [rad/s] at eight starts, from each of which the linkage passes its flat pose."""


def exact_angle(t: Array, start: float = START) -> Array:
    """theta(t) [rad] of `INERTIA theta'' = -MOMENT cos(theta)`, from rest at `start`.

        sin(psi/2) = k cn(w t) / dn(w t),   psi = theta + pi/2,   k = sin(psi(0)/2),   w^2 = MOMENT / INERTIA

    Args:
        t: Times [s].
        start: theta(0) [rad], between -3/2 pi and pi/2.
    """
    k = np.sin((start + np.pi / 2) / 2)
    _, cn, dn, _ = ellipj(np.sqrt(MOMENT / INERTIA) * np.asarray(t), k**2)
    angle: Array = 2.0 * np.arcsin(k * cn / dn) - np.pi / 2
    return angle


def rotating_angle(t: Array, rate: float) -> Array:
    """theta(t) [rad] of a linkage that passes the top, theta = pi/2, at t = 0 and turns on.

        psi = 2 am(K(m) + w_0 t / 2, m),   psi = theta + pi/2,   w_0^2 = rate^2 + 4 w^2,   m = 4 w^2 / w_0^2

    Args:
        t: Times [s].
        rate: theta'(0), positive [rad/s].
    """
    lowest = rate**2 + 4.0 * MOMENT / INERTIA
    m = 4.0 * MOMENT / INERTIA / lowest
    *_, amplitude = ellipj(ellipk(m) + np.sqrt(lowest) / 2 * np.asarray(t), m)
    angle: Array = 2.0 * amplitude - np.pi / 2
    return angle


@cache
def pendulum(theta: float, rate: float, end: float = 20.0, acceleration: float = -MOMENT / INERTIA) -> OdeSolution:
    """theta and its rate as a function of time, up to `end` [s], of `theta'' = acceleration cos(theta)`."""
    return solve_ivp(
        lambda _, y: [y[1], acceleration * np.cos(y[0])], (0.0, end), [theta, rate], "DOP853", dense_output=True,
        rtol=1e-13, atol=1e-13,
    ).sol  # fmt: skip


def pose(theta: float) -> Array:
    """q, shape (12,), of the closed linkage: (x, y, phi) of three links and of the coupler."""
    x, y = np.cos(theta), np.sin(theta)
    links = [(pivot + x / 2, y / 2, theta) for pivot in (0.0, 1.0, 2.0)]
    return np.array([*np.ravel(links), 1.0 + x, y, 0.0])


def pose_rate(theta: float, rate: float) -> Array:
    """v, shape (12,), of the closed linkage whose links turn at `rate` [rad/s]."""
    x, y = -np.sin(theta) * rate, np.cos(theta) * rate
    return np.array([*(x / 2, y / 2, rate) * 3, x, y, 0.0])


def start_overrides(theta: float, rate: float) -> list[str]:
    """Settings that put the shipped parallelogram at a start, as after `--set`."""
    names = [f"{body}_{axis}" for body in ("link1", "link2", "link3", "coupler") for axis in ("x", "y", "phi")]
    values = {"q": pose(theta), "v": pose_rate(theta, rate)}
    return [
        f"initial.{key}={{{', '.join(f'{name}: {float(x)!r}' for name, x in zip(names, state, strict=True))}}}"
        for key, state in values.items()
    ]
