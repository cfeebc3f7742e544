"""A linear plant under sampled feedback: commands are held for a period, delayed, and lag through actuators.

    x' = A x + B a,   T_i a_i' = w_i - a_i  (a_i = w_i if T_i = 0)         w_i: the command i, held
    w_i acts from t_k + delay_i on;  delay_i = (d + f) h, d whole, 0 <= f < 1: w_i(k-d-1) for f h, then w_i(k-d)
    u_k = K (C f_k + D x_k),   f_(k+1) = F f_k + G x_k                     an estimate of the state from samples

Limits of gains, for a row as the chain of integrators that the law makes of it:

    held for a period h, d cycles late   z+ = Ad z + Bd w(-d),  w = -K z,  z = (y, y', ..., y^(r-1)):  y^(r) is held
    d + f cycles late, 0 < f < 1         w(-d-1) acts for f h, then w(-d);  with a lag a' = (w - a) / T, y^(r) is a
    velocities from positions            w = -K (y, filtered differences of y),  see `differences`
    step h of rk4                        |R(s h)| < 1 at the poles s,  R(z) = 1 + z + z^2/2 + z^3/6 + z^4/24

Design: poles and margins of a run use the same loop with the linearised plant. The state at a sample is (x, lagging
inputs, delayed commands, f). The map is exact, by matrix exponentials. A limit is computed, not tabulated: the largest
h at which the violation still decays, from the eigenvalues of (z, lagging inputs, w(-1), ..., w(-d)) or from R. The
analysis is ours. A closed form serves as a check: `beta' = -kappa beta`, d cycles late, is stable for
`kappa h < 2 sin(pi / (2 (2 d + 1)))`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from servoctl.mechanics.timing import Timing, cycles
from servoctl.types import Array


@dataclass(frozen=True)
class EstimateFilter:
    """The estimate that replaces x in the law: C f + D x, with f+ = F f + G x from sample to sample.

    With K = 1 it is the command itself.
    """

    F: Array  # shape (states, states)
    G: Array  # shape (states, n)
    C: Array  # shape (n, states), or (m, states) of a command
    D: Array  # shape (n, n), or (m, n) of a command


def linear_controller(
    step: Callable[[Array, Array], tuple[Array, Array]], states: int, measured: int
) -> EstimateFilter:
    """A controller with a memory f that is linear, by its step applied to unit vectors.

    Args:
        step: (f, x) -> f at the next sample, and the command.
        states: Length of f.
        measured: Length of x.
    """
    units = np.eye(states + measured)
    after, commands = zip(*(step(unit[:states], unit[states:]) for unit in units), strict=True)
    f, u = np.array(after).T, np.array(commands).T
    return EstimateFilter(f[:, :states], f[:, states:], u[:, :states], u[:, states:])


def differences(position: Array, velocity: Array, h: float, tau: float) -> EstimateFilter:
    """x with velocities from sampled positions, by an alpha-beta observer with a double pole at exp(-2 h / tau).

    Args:
        position: Matrix from x to the coordinates, shape (n, states).
        velocity: Matrix from the velocities of the coordinates to x, shape (states, n). The law gets the rest of x
            without an estimate.
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


def decays(loops: Iterable[Array]) -> bool:
    """Whether the motions of all these sampled loops, given by their matrices from tick to tick, stay bounded."""
    return all(
        bool(np.isfinite(loop).all()) and float(np.abs(np.linalg.eigvals(loop)).max()) < 1.0 + 1e-9 for loop in loops
    )


@dataclass(frozen=True)
class Held:
    """The map of x and the lagging inputs a over one period."""

    after: Array  # from (x, a) at the start of the period, shape (n + lags, n + lags)
    old: Array  # from the command that acts until a new one arrives, shape (n + lags, m)
    new: Array  # from the command that arrives within the period or at its start, shape (n + lags, m)
    whole: Array  # whole periods of delay of each input, shape (m,)
    partly: Array  # whether an input's command arrives within a period, shape (m,)
    period: float  # [s]
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
    return Held(after, old, new, whole, part > 0.0, h, n)


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
    """A loop from sample to sample, s+ = A s + B w, or s' = A s + B w; w is added to the commands u = fed s."""

    A: Array  # shape (states, states)
    B: Array  # shape (states, m)
    fed: Array  # shape (m, states)
    period: float | None  # [s] from sample to sample; None: continuous time
    line: tuple[slice, ...] = ()  # slices of the delayed commands in s, one for each age, for the inputs `late`
    late: tuple[int, ...] = ()  # indices of the inputs with a delay

    def without_idle_line(self, K: Array) -> Array:
        """A restricted to commands in the range of K: all other delayed commands are zero and stay zero."""
        if not self.line:
            return self.A
        U, sizes, _ = np.linalg.svd(K[list(self.late)], full_matrices=False)
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
    return Closed(A, B, fed, held.period, line, tuple(late.tolist()))


def _index(line: tuple[slice, ...], late: Array, age: int, i: int) -> int:
    """Index in s of the command of input i that is `age` samples old."""
    return int(line[age - 1].start + np.searchsorted(late, i))


KEPT = 1024  # number of cached results: rows share gains, and the runs of a sweep share rows


class RowFeedback(NamedTuple):
    """Feedback of the violation of one row."""

    damping: float  # [1/s]
    stiffness: float  # [1/s^2], or [1/s] for a row without a violation rate
    has_rate: bool = True  # whether the row has a violation rate
    higher: tuple[float, ...] = ()  # gains on the second and higher derivatives, for rows of `input_output`

    @property
    def gains(self) -> list[float]:
        """K: on the violation, its rate, and so on. Without stiffness the rate takes the place of the violation."""
        gains = [self.stiffness, self.damping, *self.higher] if self.has_rate else [self.stiffness]
        return gains[1:] if self.has_rate and not self.stiffness and not self.higher else gains

    @property
    def corrects(self) -> bool:
        """Whether there is any feedback."""
        return bool(self.damping or self.stiffness)

    @property
    def poles(self) -> Array:
        """The violation's poles [1/s] in continuous time."""
        return np.roots([1.0, *reversed(self.gains)])

    @property
    def speed(self) -> float:
        """The magnitude of the fastest pole [1/s]; 0 without feedback."""
        return float(np.max(np.abs(self.poles), initial=0.0))


def sampled(gains: Sequence[float], timing: Timing) -> Array:
    """The map of (y, y', ..., y^(r-1), what lags, w(-1), w(-2), ...) over one period.

    Args:
        gains: Gains on the violation, its rate, and so on: `y^(r) = -gains . (y, y', ...)`.
        timing: Of a sampled loop; the longest delay and the largest lag count. With a velocity filter a chain of one
            integrator is a velocity, and the map also has its position, at z = 1. Chains of more than two count as
            measured.
    """
    filtered = timing.velocity_filter and len(gains) == 1
    K = [0.0, *gains] if filtered else list(gains)
    chain, estimate = _integrators(len(K), timing)
    return close(chain, -np.array([K]), estimate).A


@lru_cache(KEPT)
def _integrators(count: int, timing: Timing) -> tuple[Held, EstimateFilter | None]:
    """A chain of integrators over one period, and the filter of its velocity, if it has one."""
    tau, unit = timing.velocity_filter if count <= 2 else None, np.eye(count)
    estimate = differences(unit[:1], unit[:, 1:2], timing.h, tau) if tau else None
    return hold(np.eye(count, k=1), unit[:, -1:], timing.of_one), estimate


RK4 = (1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)  # R of the classical Runge-Kutta method, the highest power first
RK4_LIMIT = 2.785  # largest decay rate times step at which it is stable


@lru_cache(KEPT)
def growth(row: RowFeedback, timing: Timing, h: float) -> float:
    """Spectral radius of the violation's map over a period or step: it decays below 1.

    Args:
        row: The feedback.
        timing: How it acts, in periods.
        h: Period, or step of rk4 if the law acts continuously [s].
    """
    return _radius(row, timing, h)


def _radius(row: RowFeedback, timing: Timing, h: float) -> float:
    if timing.period is not None:
        return max(_radius_of_held(row, each, h) for each in timing.extremes)
    return float(np.max(np.abs(np.polyval(RK4, h * row.poles))))


def _radius_of_held(row: RowFeedback, timing: Timing, h: float) -> float:
    gains = row.gains
    with np.errstate(all="ignore"):  # in periods as unit of time, so that the chain is the same for every h
        closed = sampled(gains * h ** np.arange(len(gains), 0.0, -1.0), timing.at(1.0))
    if not np.isfinite(closed).all():
        return np.inf  # of a period like 1e300 s
    eigenvalues = np.asarray(np.linalg.eigvals(closed), dtype=complex)
    # the position of a velocity row is not controlled: its eigenvalue at 1 does not count
    free = [int(np.argmin(np.abs(eigenvalues - 1.0)))] if timing.velocity_filter and len(gains) == 1 else []
    return float(np.max(np.abs(np.delete(eigenvalues, free))))


@lru_cache(KEPT)
def longest_spacing(row: RowFeedback, timing: Timing) -> float:
    """The smallest h [s] at which the violation no longer decays; infinite without feedback.

    Delay, lag and velocity filter keep their number of periods.

    A position without feedback does not count. The search bisects between a fine h and the first coarse one that is
    unstable.
    """
    if row.speed <= 0.0:
        return math.inf
    stable = 1e-2 / (row.speed * (1 + timing.at(1.0).lateness))
    if _radius(row, timing, stable) >= 1.0:
        return 0.0
    points = (stable * 1.1**k for k in count())
    return stable_range(lambda h: _radius(row, timing, h) < 1.0, points, 40)[0]


@lru_cache(KEPT)
def overshoot(row: RowFeedback, timing: Timing) -> float:
    """How far the violation swings past zero after a step, relative to the step; 1 if it does not decay.

    Args:
        row: The feedback.
        timing: How it acts; velocities count as measured.
    """
    if row.speed <= 0.0:
        return 0.0
    if timing.period is not None:
        each = replace(timing, velocity_filter=None).extremes
        return max(_swing(sampled(row.gains, one)) for one in each)
    companion = np.eye(len(row.gains), k=1)
    companion[-1] = -np.array(row.gains)
    return _swing(transition(companion, SAMPLE / row.speed))


def _swing(step: Array) -> float:
    """How far the first state swings past zero from 1, by its map from sample to sample; 1 if it does not decay."""
    samples = settling(step)
    return float(np.clip(-response(step, np.eye(len(step))[0], SETTLED * samples).min(), 0.0, 1.0)) if samples else 1.0


def settling(step: Array) -> float | None:
    """Slowest time constant of a map from sample to sample [samples]; None if it does not decay."""
    radius = float(np.max(np.abs(np.linalg.eigvals(step))))
    return 1.0 / (1.0 - radius) if radius < 1.0 else None


def response(step: Array, start: Array, samples: float) -> Array:
    """The first state at `start` and after it, for at least so many samples, as far as these are not too many."""
    following, power = start[:, None], step  # doubling: columns z, step z, then the next two, the next four, ...
    while len(following.T) < min(samples, LONGEST):
        following, power = np.hstack([following, power @ following]), power @ power
    first: Array = following[0]
    return first


SAMPLE = 0.05  # sampling interval of a response in continuous time, in units of 1 / |fastest pole|
SETTLED, LONGEST = 12.0, 1 << 18  # length of a response in slowest time constants, and its largest number of samples


def stable_range(stable: Callable[[float], bool], points: Iterable[float], halvings: int) -> tuple[float, float]:
    """The last value up to which a loop is stable, and the first beyond it; infinite if it is stable at every point.

    Args:
        stable: Whether the loop is stable with a value.
        points: Values to look at, rising; the first one is stable.
        halvings: Bisections between the last stable point and the first unstable one.
    """
    rising = iter(points)
    low = next(rising)
    for high in rising:
        if not stable(high):
            for _ in range(halvings):
                middle = (low + high) / 2.0
                low, high = (middle, high) if stable(middle) else (low, middle)
            return low, high
        low = high
    return low, math.inf
