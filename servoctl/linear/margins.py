"""Margins of a loop with its timing at the plant's input: opened at one actuator while the others stay closed.

    g_i = fed_i (z I - A)^-1 B_i                   closed loop, from a signal added to the command to the command
    L_i = -g_i / (1 + g_i)                         the loop opened there
    unstable from the factor k = 1 + 1/g_i on, where g_i is real;  |L_i| = 1 where Re g_i = -1/2
    1 + L_i = 1 / (1 + g_i)

Design: one solve per frequency gives all actuators. A factor counts as a margin only if the eigenvalues of the loop
with a larger factor are unstable. So a false crossing is not taken for the limit, and a loop that becomes stable again
does not hide it. With more delay a sampled loop has another response, so its exact delays are searched for.

Source: Astrom, Murray, Feedback Systems, 10.3; the forms in g follow from the matrix inversion lemma.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from servoctl.laws.hold import Closed, stable_range
from servoctl.linear.loop import ROUNDING, LocalLoop, grows
from servoctl.mechanics.timing import Timing
from servoctl.types import Array

POINTS = 1500  # number of frequencies, in addition to those around the poles

NARROWEST = 0.05
AROUND = np.concatenate([-np.geomspace(8.0, NARROWEST, 12), [0.0], np.geomspace(NARROWEST, 8.0, 12)])
"""Frequencies around a pole, in widths of its resonance."""

HALVINGS = 36  # bisections of the interval that contains a crossing: to 1e-13 of the frequency
DELAY_HALVINGS = 20  # of the interval that contains a limit of the delay: to 1e-6 of it
CACHED = 2**16
"""Largest number of values of a solve, so that they stay in the processor's cache. Where those of two frequencies do
not, LAPACK solves each: 400 states and 100 inputs in 5 ms instead of 21. For 10 states it takes ten times as long."""
NOTHING = 1e-9  # if the response stays below this, there is no feedback through the actuator

LONGEST = 20
"""A delay of more periods is taken from the frequency response, which is exact for whole periods; a search would need
the eigenvalues of a matrix with a state for each actuator and period."""

SEARCHED = 1e9
"""Largest number of actuators times states^3 for which exact delays are searched: the eigenvalues of 200 states and 50
actuators take 20 s, those of 500 states and 100 actuators 6 minutes."""


@dataclass(frozen=True)
class Margin:
    """Margins at one actuator, with all others unchanged."""

    actuator: str  # where the loop is opened
    # factor above 1 on the actuator's torque, as deviation from its value on the constraint, at which the loop becomes
    # unstable; infinite if there is none
    gain: float
    gain_down: float  # the same below 1; 0 if there is none
    phase: float  # phase margin [deg]; infinite if the loop gain never crosses 1
    delay: float  # additional delay at this actuator at which the loop becomes unstable [s]; infinite if there is none
    modulus: float  # smallest |1 + L|: the distance from the critical point
    crossover: float | None  # crossover frequency of `phase` [rad/s]; None if there is none


@dataclass(frozen=True)
class Margins:
    """Margins of the loop with a timing."""

    timing: Timing  # period, delay and lag
    growth: float  # largest real part of a pole [1/s]; of a sampled loop the largest |z|
    actuators: tuple[Margin, ...]  # margins at each actuator; empty if the closed loop is unstable at this state
    # additional delay at all actuators together at which the loop becomes unstable [s]; infinite if there is none; None
    # if the loop is unstable, or delays are phase / crossover
    delay_margin: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        timing = self.timing
        return {
            "timing": str(timing), "period": timing.period, "delay": timing.at(1.0).longest_delay,  # [cycles]
            "drives": timing.on_drives,
            "delay_time": timing.longest_delay, "lag": list(timing.lag),
            "velocity_filter": timing.velocity_filter, "growth": self.growth,
            "delay_margin": self.delay_margin,
            "actuators": {one.actuator: one for one in self.actuators},
        }  # fmt: skip

    @property
    def worst(self) -> dict[str, float]:
        """The smallest gain, phase [deg] and delay [s] and the largest gain_down over the actuators.

        Those of an unstable loop are 1, 0, 0 and 1.
        """
        if not self.actuators:
            return {"gain": 1.0, "gain_down": 1.0, "phase": 0.0, "delay": 0.0}
        return {
            "gain": min(one.gain for one in self.actuators), "gain_down": max(one.gain_down for one in self.actuators),
            "phase": min(one.phase for one in self.actuators), "delay": min(one.delay for one in self.actuators),
        }  # fmt: skip


def margins_of(loop: LocalLoop, exact: bool = False) -> Margins:
    """The margins of a loop.

    Args:
        exact: Whether to search for the exact delay margins of a sampled loop, unless it is large. Else each delay is
            phase / crossover.
    """
    if not loop.stable:
        return Margins(loop.timing, loop.growth, ())
    closed = loop.closed
    found = margins(closed, loop.timing.actuators)
    if not exact or (closed.period is not None and len(found) * len(closed.A) ** 3 > SEARCHED):
        return Margins(loop.timing, loop.growth, tuple(found))
    sharp = tuple(replace(one, delay=_delay(loop, one.delay, i)) for i, one in enumerate(found))
    together = _delay(loop, at_once_delay(closed), None)
    return Margins(loop.timing, loop.growth, sharp, together)


def _delay(loop: LocalLoop, estimate: float, actuator: int | None) -> float:
    """Smallest additional delay at which a loop is unstable [s], near an estimate."""
    if loop.timing.period is None or not 0.0 < estimate < LONGEST * loop.timing.period:
        return estimate

    def stable(time: float) -> bool:
        later = time if actuator is None else time * np.eye(loop.at.m)[actuator]
        return LocalLoop(loop.at, loop.timing, later).stable

    low, high = stable_range(stable, [k * estimate / 4.0 for k in range(18)], DELAY_HALVINGS)
    return estimate if high == math.inf else (low + high) / 2.0


def margins(closed: Closed, names: Sequence[str]) -> list[Margin]:
    """Margins at each actuator of a stable closed loop."""
    respond, omega = _responder(closed, closed.A), _frequencies(closed)
    g = np.einsum("fii->fi", respond(omega, slice(None)))
    return [_margin(closed, respond, omega, g[:, i], i, name) for i, name in enumerate(names)]


Respond = Callable[[Array, slice], Array]  # frequencies [rad/s], k actuators -> response, shape (frequencies, k, k)


@np.errstate(divide="ignore")  # below a double pole at 0, g is -1 to rounding
def _margin(closed: Closed, respond: Respond, omega: Array, g: Array, i: int, name: str) -> Margin:
    opened = np.abs(g) / np.abs(1.0 + g)
    if np.abs(opened).max() < NOTHING:
        return Margin(name, math.inf, 0.0, math.inf, math.inf, 1.0, None)

    def at(w: Array) -> Array:
        return respond(w, slice(i, i + 1))[:, 0, 0]

    real = _crossings(omega, g, at, lambda y: y.imag)
    turned = np.concatenate([at(real).real if len(real) else [], g[[0, -1]].real])
    factors = sorted(float(1.0 + 1.0 / x) for x in turned if x != 0.0)
    crossovers = _crossings(omega, g, at, lambda y: y.real + 0.5)
    response = at(crossovers) if len(crossovers) else np.zeros(0, dtype=complex)
    phases = np.degrees(np.angle(response / (1.0 + response)))
    delays = np.radians(phases % 360.0) / crossovers if len(phases) else np.array([math.inf])
    least = int(np.argmin(np.abs(phases))) if len(phases) else None
    return Margin(
        name,
        _first_unstable(closed, i, [k for k in factors if k > 1.0], math.inf),
        _first_unstable(closed, i, [k for k in reversed(factors) if 0.0 < k < 1.0], 0.0),
        math.inf if least is None else float(abs(phases[least])),
        float(delays.min()),
        float((1.0 / np.abs(1.0 + g)).min()),
        None if least is None else float(crossovers[least]),
    )


def _first_unstable(closed: Closed, i: int, factors: list[float], otherwise: float) -> float:
    """The first factor beyond which the loop is unstable; `factors` are sorted away from 1."""
    for factor, further in zip(factors, [*factors[1:], None], strict=False):
        beyond = math.sqrt(factor * further) if further else factor * (2.0 if otherwise else 0.5)
        if grows(np.linalg.eigvals(scaled(closed, i, beyond)), closed.period):
            return factor
    return otherwise


def scaled(closed: Closed, actuator: int, factor: float) -> Array:
    """A of the loop with a factor on one command."""
    return closed.A + (factor - 1.0) * np.outer(closed.B[:, actuator], closed.fed[actuator])


def _crossings(omega: Array, g: Array, at: Callable[[Array], Array], part: Callable[[Array], Array]) -> Array:
    """Frequencies at which a part of g crosses 0, by bisection."""
    low, high = _changes(omega, part(g) > 0.0, lambda w: part(at(w)) > 0.0)
    return np.asarray(np.sqrt(low * high))


def _changes(omega: Array, values: Array, at: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Narrow intervals [low, high] of frequency in which the discrete function `at` changes its value, by bisection."""
    left = np.flatnonzero(values[1:] != values[:-1])
    low, high, before = omega[left], omega[left + 1], values[left]
    for _ in range(HALVINGS if len(left) else 0):
        middle = np.sqrt(low * high)
        same = at(middle) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low, high


def _frequencies(closed: Closed) -> Array:
    """Frequencies at which to evaluate the loop [rad/s]: around its poles, up to half the sampling rate."""
    poles = np.linalg.eigvals(closed.A)
    found = np.concatenate([poles, *(np.linalg.eigvals(scaled(closed, i, 0.0)) for i in range(closed.B.shape[1]))])
    if closed.period is not None:
        end = math.pi / closed.period
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(found[np.abs(found) > 1e-12].astype(complex)) / closed.period
        low, high = 1e-6 * end, end
    else:
        sizes = np.abs(poles)[np.abs(poles) > 1e-6]
        low, high = (min(sizes) / 100.0, max(sizes) * 100.0) if len(sizes) else (0.01, 100.0)
    oscillating = found[found.imag > 0.0][:, None]
    width = np.maximum(np.abs(oscillating.real), ROUNDING * oscillating.imag)
    # most poles hardly move where another loop is opened: frequencies that are equal to a share of the width are one
    step = np.exp2(np.floor(np.log2(NARROWEST / 2.0 * width)))
    around = np.unique(np.round((oscillating.imag + width * AROUND) / step) * step)
    around = around[(around > low) & (around < high)]
    return np.unique(np.concatenate([np.geomspace(low, high, POINTS), around]))


def _responder(closed: Closed, A: Array) -> Respond:
    """fed (s I - A)^-1 B at frequencies, by back substitution in the Schur form of A, a few frequencies at a time."""
    T, Q = scipy.linalg.schur(A.astype(complex), output="complex")
    right, left, size = Q.conj().T @ closed.B, closed.fed @ Q, len(T)
    upper, diagonal = np.triu(T, 1), np.diagonal(T)

    def solve(w: Array, into: Array, alone: bool) -> Array:
        s = 1j * w if closed.period is None else np.exp(1j * w * closed.period)
        gaps = s[:, None] - diagonal
        gaps = np.where(gaps == 0.0, ROUNDING, gaps)  # next to an undamped pole
        if alone:
            return scipy.linalg.solve_triangular(np.diag(gaps[0]) - upper, into, check_finite=False)[None]
        x = np.empty((size, len(s) * into.shape[1]), dtype=complex)
        for k in range(size - 1, -1, -1):
            known = (upper[k, k + 1 :] @ x[k + 1 :]).reshape(len(s), -1)
            x[k] = ((into[k] + known) / gaps[:, k : k + 1]).ravel()
        return x.reshape(size, len(s), -1).swapaxes(0, 1)

    def respond(omega: Array, actuators: slice) -> Array:
        into = right[:, actuators]
        count = max(1, CACHED // max(1, into.size))
        pieces = [omega[first : first + count] for first in range(0, len(omega), count)]
        return np.concatenate([left[actuators] @ solve(w, into, count == 1) for w in pieces])

    return respond


def at_once_delay(closed: Closed) -> float:
    """Smallest common delay of all commands at which a stable loop becomes unstable [s]; infinite if there is none.

    u = G(s) e^(-s T) u: a pole at j w where an eigenvalue of G(j w) has modulus 1, with T = its angle / w. A sampled
    loop has G(e^(j w h)) instead, which is exact where T is a whole number of periods h.
    """
    A, period = closed.A - closed.B @ closed.fed, closed.period
    sizes = np.abs(np.concatenate([np.linalg.eigvals(A), np.linalg.eigvals(closed.A)]))
    sizes = sizes[sizes > 1e-6]
    if not len(sizes):
        return math.inf
    end = math.pi / period if period else sizes.max() * 100.0

    respond = _responder(closed, A)

    def loci(omega: Array) -> Array:
        return np.linalg.eigvals(respond(omega, slice(None)))

    def above_one(omega: Array) -> Array:
        return np.asarray((np.abs(loci(omega)) > 1.0).sum(axis=1))

    omega = np.geomspace(1e-6 * end if period else sizes.min() / 100.0, end, POINTS)
    low, _ = _changes(omega, above_one(omega), above_one)
    if not len(low):
        return math.inf
    found = loci(low)
    at_one = np.argmin(np.abs(np.abs(found) - 1.0), axis=1)
    found = found[np.arange(len(low)), at_one]
    angles = np.angle(found) % (2.0 * math.pi)
    delays = (angles / low)[np.abs(found - 1.0) > NOTHING]  # a neutral pole is on the axis without any delay
    return float(delays.min(initial=math.inf))
