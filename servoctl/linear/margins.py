"""Margins at the plant's input, with the loop opened at one actuator while the others stay closed.

    g_i = fed_i (z I - A)^-1 B_i                   closed loop, from a signal added to the command to the command
    L_i = -g_i / (1 + g_i)                         the loop opened there
    unstable from the factor k = 1 + 1/g_i on, where g_i is real;  |L_i| = 1 where Re g_i = -1/2
    1 + L_i = 1 / (1 + g_i)

Design: one solve per frequency gives all actuators. A factor counts as a margin only if the eigenvalues of the loop
with a larger factor are unstable. So a false crossing is not taken for the limit, and a loop that becomes stable again
does not hide it.

Source: Astrom, Murray, Feedback Systems, 10.3; the forms in g follow from the matrix inversion lemma.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from servoctl.linear.sampled import ROUNDING, Linear, grows
from servoctl.types import Array

POINTS = 1500  # number of frequencies, in addition to those around the poles

NARROWEST = 0.05
AROUND = np.concatenate([-np.geomspace(8.0, NARROWEST, 12), [0.0], np.geomspace(NARROWEST, 8.0, 12)])
"""Frequencies around a pole, in widths of its resonance."""

HALVINGS = 36  # bisections of the interval that contains a crossing: to 1e-13 of the frequency
CACHED = 2**16
"""Largest number of values of a solve, so that they stay in the processor's cache. Where those of two frequencies do
not, LAPACK solves each: 400 states and 100 inputs in 5 ms instead of 21. For 10 states it takes ten times as long."""
NOTHING = 1e-9  # if the response stays below this, there is no feedback through the actuator


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


def margins(linear: Linear, names: list[str]) -> list[Margin]:
    """Margins at each actuator of a stable closed loop."""
    respond, omega = _responder(linear), _frequencies(linear)
    g = respond(omega, slice(None))
    return [_margin(linear, respond, omega, g[:, i], i, name) for i, name in enumerate(names)]


Respond = Callable[[Array, slice], Array]  # frequencies [rad/s], actuators -> g, shape (frequencies, actuators)


@np.errstate(divide="ignore")  # below a double pole at 0, g is -1 to rounding
def _margin(linear: Linear, respond: Respond, omega: Array, g: Array, i: int, name: str) -> Margin:
    opened = np.abs(g) / np.abs(1.0 + g)
    if np.abs(opened).max() < NOTHING:
        return Margin(name, math.inf, 0.0, math.inf, math.inf, 1.0, None)

    def at(w: Array) -> Array:
        return respond(w, slice(i, i + 1))[:, 0]

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
        _first_unstable(linear, i, [k for k in factors if k > 1.0], math.inf),
        _first_unstable(linear, i, [k for k in reversed(factors) if 0.0 < k < 1.0], 0.0),
        math.inf if least is None else float(abs(phases[least])),
        float(delays.min()),
        float((1.0 / np.abs(1.0 + g)).min()),
        None if least is None else float(crossovers[least]),
    )


def _first_unstable(linear: Linear, i: int, factors: list[float], otherwise: float) -> float:
    """The first factor beyond which the loop is unstable; `factors` are sorted away from 1."""
    for factor, further in zip(factors, [*factors[1:], None], strict=False):
        beyond = math.sqrt(factor * further) if further else factor * (2.0 if otherwise else 0.5)
        if grows(np.linalg.eigvals(scaled(linear, i, beyond)), linear.period):
            return factor
    return otherwise


def scaled(linear: Linear, actuator: int, factor: float) -> Array:
    """A of the loop with a factor on one command."""
    return linear.A + (factor - 1.0) * np.outer(linear.B[:, actuator], linear.fed[actuator])


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


def _frequencies(linear: Linear) -> Array:
    """Frequencies at which to evaluate the loop [rad/s]: around its poles, up to half the sampling rate."""
    poles = np.linalg.eigvals(linear.A)
    found = np.concatenate([poles, *(np.linalg.eigvals(scaled(linear, i, 0.0)) for i in range(linear.B.shape[1]))])
    if linear.period is not None:
        end = math.pi / linear.period
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(found[np.abs(found) > 1e-12].astype(complex)) / linear.period
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


def _responder(linear: Linear) -> Respond:
    """g at frequencies."""
    Q, solve = _resolvent(linear.A, linear.B, linear.period)
    left = linear.fed @ Q

    def respond(omega: Array, actuators: slice) -> Array:
        return np.concatenate([np.einsum("mk,kfm->fm", left[actuators], x) for x in solve(omega, actuators)])

    return respond


def _resolvent(A: Array, B: Array, period: float | None) -> tuple[Array, Callable[[Array, slice], Iterator[Array]]]:
    """(s I - A)^-1 B at frequencies, by back substitution in the Schur form of A.

    Returns:
        Q, and a function of frequencies [rad/s] and columns of B. It yields Q^H (s I - A)^-1 B, shape (states,
        frequencies, columns), a few frequencies at a time.
    """
    T, Q = scipy.linalg.schur(A.astype(complex), output="complex")
    right, size, upper, diagonal = Q.conj().T @ B, len(T), np.triu(T, 1), np.diagonal(T)

    def solve(omega: Array, columns: slice) -> Iterator[Array]:
        into = right[:, columns]
        count = max(1, CACHED // max(1, into.size))
        for first in range(0, len(omega), count):
            w = omega[first : first + count]
            s = 1j * w if period is None else np.exp(1j * w * period)
            gaps = s[:, None] - diagonal
            gaps = np.where(gaps == 0.0, ROUNDING, gaps)  # next to an undamped pole
            if count == 1:
                yield scipy.linalg.solve_triangular(np.diag(gaps[0]) - upper, into, check_finite=False)[:, None]
                continue
            x = np.empty((size, len(s) * into.shape[1]), dtype=complex)
            for k in range(size - 1, -1, -1):
                known = (upper[k, k + 1 :] @ x[k + 1 :]).reshape(len(s), -1)
                x[k] = ((into[k] + known) / gaps[:, k : k + 1]).ravel()
            yield x.reshape(size, len(s), -1)

    return Q, solve


def at_once_delay(linear: Linear) -> float:
    """Smallest common delay of all commands at which a stable loop becomes unstable [s]; infinite if there is none.

    u = G(s) e^(-s T) u: a pole at j w where an eigenvalue of G(j w) has modulus 1, with T = its angle / w. A sampled
    loop has G(e^(j w h)) instead, which is exact where T is a whole number of periods h.
    """
    A, period = linear.A - linear.B @ linear.fed, linear.period
    sizes = np.abs(np.concatenate([np.linalg.eigvals(A), np.linalg.eigvals(linear.A)]))
    sizes = sizes[sizes > 1e-6]
    if not len(sizes):
        return math.inf
    end = math.pi / period if period else sizes.max() * 100.0

    Q, solve = _resolvent(A, linear.B, period)
    left = linear.fed @ Q

    def loci(omega: Array) -> Array:
        each = [np.einsum("mk,kfn->fmn", left, x) for x in solve(omega, slice(None))]
        return np.linalg.eigvals(np.concatenate(each))

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
