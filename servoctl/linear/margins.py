"""Margins at the plant's input, with the loop opened at one actuator while the others stay closed.

    L_i = -fed_i (s I - A_i)^-1 B_i,   A_i = A - B_i fed_i

Source: Astrom, Murray, Feedback Systems, 10.3; python-control finds the margins on the frequency response.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import control
import numpy as np

from servoctl.analysis import MARGINAL
from servoctl.linear.jacobians import Linear
from servoctl.types import Array

POINTS = 4000
"""Frequencies at which a loop is looked at."""

AROUND = 24
"""Frequencies on either side of a crossing that python-control is given, which looks at them one by one.

Its cubic spline swings where there is a gap; what is left of that falls to a quarter from point to point.
"""

NOTHING = 1e-9
"""A loop whose response stays below has no feedback through this actuator."""


@dataclass(frozen=True)
class Margin:
    """What one actuator's path bears, the others being as they are.

    Attributes:
        actuator: Where the loop is opened.
        gain: Factor on the gain at which it becomes unstable, above 1; infinite where there is none.
        gain_down: The same below 1; 0 where there is none.
        phase: [deg]; infinite where the loop's gain never passes 1.
        delay: Time that may be lost on top [s]; infinite likewise.
        modulus: Least |1 + L|: the distance from the critical point.
        crossover: Frequency of `phase` [rad/s]; None where there is none.
    """

    actuator: str
    gain: float
    gain_down: float
    phase: float
    delay: float
    modulus: float
    crossover: float | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is infinite is None."""
        return {key: None if value == math.inf else value for key, value in vars(self).items()}


def stable(linear: Linear) -> bool:
    """Whether no mode grows."""
    poles = np.linalg.eigvals(linear.A)
    if linear.period is not None:
        return bool((np.abs(poles) <= 1.0 + MARGINAL).all())
    return bool((poles.real <= MARGINAL * (1.0 + np.abs(poles))).all())


def loop_at(linear: Linear, actuator: int) -> control.StateSpace:
    """L_i, for negative feedback."""
    B, fed = linear.B[:, [actuator]], linear.fed[[actuator]]
    timebase = 0 if linear.period is None else linear.period
    return control.ss(linear.A - B @ fed, B, -fed, np.zeros((1, 1)), timebase)


def margin(linear: Linear, actuator: int, name: str) -> Margin:
    """The margins at one actuator; the closed loop is stable."""
    omega = _frequencies(linear)
    opened = loop_at(linear, actuator)
    s = 1j * omega if linear.period is None else np.exp(1j * omega * linear.period)
    response = _response(opened.A, opened.B[:, 0], opened.C[0], s)
    if np.abs(response).max() < NOTHING:
        return Margin(name, math.inf, 0.0, math.inf, math.inf, 1.0, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near = _near_crossings(response)
        found = control.stability_margins(control.frd(response[near], omega[near], smooth=True), returnall=True)
    gains, phases, crossovers = (np.atleast_1d(found[k]).astype(float) for k in (0, 1, 4))
    at_end = complex(_response(opened.A, opened.B[:, 0], opened.C[0], np.array([-1.0 + 0j]))[0]).real
    if linear.period is not None and at_end < 0.0:  # z = -1 is real, where no crossing shows
        gains = np.append(gains, -1.0 / at_end)
    delays = np.radians(phases % 360.0) / crossovers if len(phases) else np.array([math.inf])
    least = int(np.argmin(np.abs(phases))) if len(phases) else None
    return Margin(
        name,
        float(min(gains[gains > 1.0], default=math.inf)),
        float(max(gains[gains < 1.0], default=0.0)),
        math.inf if least is None else float(abs(phases[least])),
        float(delays.min()),
        float(np.abs(1.0 + response).min()),
        None if least is None else float(crossovers[least]),
    )


def _near_crossings(response: Array) -> Array:
    """Where |L| passes 1 or L passes the real axis, and both ends: the other frequencies decide nothing."""
    near = np.zeros(len(response), dtype=bool)
    near[:AROUND] = near[-AROUND:] = True
    for side in (np.abs(response) > 1.0, response.imag > 0.0):
        for i in np.flatnonzero(np.diff(side)):
            near[max(0, i + 1 - AROUND) : i + 1 + AROUND] = True
    return near


def _frequencies(linear: Linear) -> Array:
    """Where the loop does something, up to half the sampling rate."""
    poles = np.linalg.eigvals(linear.A)
    if linear.period is not None:
        return np.logspace(-6, 0, POINTS) * math.pi / linear.period * (1 - 1e-6)
    sizes = np.abs(poles)[np.abs(poles) > MARGINAL]
    low, high = (min(sizes), max(sizes)) if len(sizes) else (1.0, 1.0)
    return np.logspace(math.log10(low) - 2, math.log10(high) + 2, POINTS)


def _response(A: Array, B: Array, C: Array, s: Array) -> Array:
    """C (s I - A)^-1 B at each s."""
    resolvents = s[:, None, None] * np.eye(len(A)) - A
    return np.asarray(np.linalg.solve(resolvents, np.broadcast_to(B[:, None], (len(s), len(B), 1)))[:, :, 0] @ C)
