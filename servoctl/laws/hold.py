"""A linear plant under sampled feedback: commands are held for a period, delayed, and lag through actuators.

    x' = A x + B a,   T_i a_i' = w_i - a_i  (a_i = w_i if T_i = 0)         w_i: the command i, held
    w_i acts from t_k + delay_i on;  delay_i = (d + f) h, d whole, 0 <= f < 1: w_i(k-d-1) for f h, then w_i(k-d)
    u_k = K (C f_k + D x_k),   f_(k+1) = F f_k + G x_k                     an estimate of the state from samples

Design: this is the only discrete loop of the program. Poles and margins of a run use it with the linearised plant,
limits of gains with a chain of integrators, which the law makes of a row. The state at a sample is (x, lagging inputs,
delayed commands, f). The map is exact, by matrix exponentials.
"""

import math
from dataclasses import dataclass

import numpy as np

from servoctl.mechanics.timing import Timing, cycles
from servoctl.types import Array


@dataclass(frozen=True)
class EstimateFilter:
    """The estimate that replaces x in the law: C f + D x, with f+ = F f + G x from sample to sample."""

    F: Array  # shape (states, states)
    G: Array  # shape (states, n)
    C: Array  # shape (n, states)
    D: Array  # shape (n, n)


def differences(position: Array, velocity: Array, h: float, tau: float) -> EstimateFilter:
    """x with velocities from sampled positions, by an alpha-beta observer with a double pole at exp(-2 h / tau).

    Args:
        position: Matrix from x to the coordinates, shape (n, states).
        velocity: Matrix from the velocities of the coordinates to x, shape (states, n). The law gets the rest of x
            without an estimate.
        h: Period [s].
        tau: Time constant of the observer [s].

    Source: Benedict, Bordner 1962; alpha = 1 - p^2, beta = (1 - p)^2.
    """
    p = math.exp(-2.0 * h / tau)
    alpha, beta = 1.0 - p * p, (1.0 - p) ** 2
    U, sizes, _ = np.linalg.svd(position, full_matrices=False)
    basis = U[:, sizes > 1e-12 * max(1e-300, float(sizes.max(initial=0.0)))]  # directions in which coordinates move
    y, into, one = basis.T @ position, velocity @ basis, np.eye(basis.shape[1])
    F = np.block([[(1.0 - alpha) * one, (1.0 - alpha) * h * one], [-beta / h * one, (1.0 - beta) * one]])
    G = np.vstack([alpha * y, beta / h * y])
    C = np.hstack([-beta / h * into, (1.0 - beta) * into])
    kept = np.eye(len(velocity)) - velocity @ np.linalg.pinv(velocity)
    return EstimateFilter(F, G, C, kept + beta / h * into @ y)


@dataclass(frozen=True)
class Held:
    """The map of x and the lagging inputs a over one period."""

    after: Array  # from (x, a) at the start of the period, shape (n + lags, n + lags)
    old: Array  # from the command that acts until a new one arrives, shape (n + lags, m)
    new: Array  # from the command that arrives within the period or at its start, shape (n + lags, m)
    whole: Array  # whole periods of delay of each input, shape (m,)
    partly: Array  # whether an input's command arrives within a period, shape (m,)
    size: int  # length of x

    @property
    def kept(self) -> Array:
        """Number of delayed commands at a sample, per input, shape (m,)."""
        return self.whole + self.partly


def hold(A: Array, B: Array, timing: Timing, later: Array | float = 0.0) -> Held:
    """The map of a linear plant over one period with held inputs, after the longest delay.

    Args:
        A: Shape (n, n).
        B: Shape (n, m); inputs beyond the actuators of the timing act at once.
        timing: Of a sampled loop.
        later: Additional delay of each actuator, or of all [s].
    """
    n, m = B.shape
    h, actuators = timing.h, len(timing.actuators)
    delays, lags = np.zeros(m), np.zeros(m)
    delays[:actuators], lags[:actuators] = timing.longest_delay + later, timing.lag
    pairs = [cycles(delay, h) for delay in delays.tolist()]
    whole, part = np.array([k for k, _ in pairs], dtype=int), np.array([rest for _, rest in pairs])
    lagging = np.flatnonzero(lags > 0.0)
    index = {int(i): n + k for k, i in enumerate(lagging)}
    size = n + len(lagging)
    after, old, new = np.zeros((size, size)), np.zeros((size, m)), np.zeros((size, m))
    after[:n, :n] = transition(A, h)
    # inputs of equal delay and lag share one matrix exponential
    for f, T in sorted(set(zip(part.tolist(), lags.tolist(), strict=True))):
        group = np.flatnonzero((part == f) & (lags == T))
        moved, by_old, by_new = _hold(A, B[:, group], f * h, h - f * h, T)
        rows = np.array([*range(n), *(index[int(i)] for i in group if T > 0.0)], dtype=int)
        after[np.ix_(rows, rows)] = moved
        old[np.ix_(rows, group)], new[np.ix_(rows, group)] = by_old, by_new
    return Held(after, old, new, whole, part > 0.0, n)


def _hold(A: Array, B: Array, first: float, rest: float, lag: float) -> tuple[Array, Array, Array]:
    """For inputs with one lag: the transition of (x, a), and the parts of the commands before and after the arrival."""
    n, m = B.shape
    size = n + m * (lag > 0.0)
    rates = np.zeros((size + m, size + m))
    rates[:n, :n], rates[:n, n : n + m] = A, B
    if lag > 0.0:
        rates[n:size, n:size], rates[n:size, size:] = -np.eye(m) / lag, np.eye(m) / lag
    later = transition(rates, rest)
    if first <= 0.0:
        return later[:size, :size], np.zeros((size, m)), later[:size, size:]
    early = transition(rates, first)
    step = later[:size, :size]
    return step @ early[:size, :size], step @ early[:size, size:], later[:size, size:]


def transition(rates: Array, s: float) -> Array:
    """exp(rates s), shape of `rates`."""
    if np.tril(rates).any():
        from scipy.linalg import expm  # a fifth of a second

        return np.asarray(expm(s * rates))
    # strictly upper triangular: nilpotent, so the series ends and is exact
    total = term = np.eye(len(rates))
    for k in range(1, len(rates)):
        term = term @ rates * (s / k)
        total = total + term
    return total


@dataclass(frozen=True)
class Closed:
    """The loop from sample to sample: s+ = A s + B w, where w is added to the commands u = fed s."""

    A: Array  # shape (states, states)
    B: Array  # shape (states, m)
    fed: Array  # shape (m, states)
    line: tuple[slice, ...]  # slices of the delayed commands in s, one for each age, for the inputs `late`
    late: Array  # indices of the inputs with a delay

    def without_idle_line(self, K: Array) -> Array:
        """A restricted to commands in the range of K: all other delayed commands are zero and stay zero."""
        if not self.line:
            return self.A
        U, sizes, _ = np.linalg.svd(K[self.late], full_matrices=False)
        basis = U[:, sizes > 1e-12 * max(1e-300, float(sizes.max(initial=0.0)))]
        before, first = self.line[0].start, [basis] * len(self.line)
        behind = len(self.A) - self.line[-1].stop
        from scipy.linalg import block_diag

        wide = block_diag(np.eye(before), *first, np.eye(behind))
        return np.asarray(wide.T @ self.A @ wide)


def close(held: Held, K: Array, estimate: EstimateFilter | None = None) -> Closed:
    """The loop under u = K x, or K times an estimate of x; K has shape (m, n)."""
    body, n, m = len(held.after), held.size, len(K)
    late = np.flatnonzero(held.kept > 0)
    length = int(held.kept.max(initial=0))
    filtered = 0 if estimate is None else len(estimate.F)
    line = tuple(slice(body + k * len(late), body + (k + 1) * len(late)) for k in range(length))
    ends = body + length * len(late)
    size = ends + filtered
    fed = np.zeros((m, size))
    if estimate is None:
        fed[:, :n] = K
    else:
        fed[:, :n], fed[:, ends:] = K @ estimate.D, K @ estimate.C
    A, B = np.zeros((size, size)), np.zeros((size, m))
    A[:body, :body] = held.after
    for i in range(m):
        if held.whole[i]:
            A[:body, _index(line, late, held.whole[i], i)] += held.new[:, i]
        else:
            A[:body] += np.outer(held.new[:, i], fed[i])
            B[:body, i] = held.new[:, i]
        if held.partly[i]:
            A[:body, _index(line, late, held.whole[i] + 1, i)] += held.old[:, i]
    for k, part in enumerate(line):
        A[part] = fed[late] if k == 0 else np.eye(size)[line[k - 1]]
    if line:
        B[line[0], late] = np.eye(len(late))
    if estimate is not None:
        A[ends:, :n], A[ends:, ends:] = estimate.G, estimate.F
    return Closed(A, B, fed, line, late)


def _index(line: tuple[slice, ...], late: Array, age: int, i: int) -> int:
    """Index in s of the command of input i that is `age` samples old."""
    return int(line[age - 1].start + np.searchsorted(late, i))
